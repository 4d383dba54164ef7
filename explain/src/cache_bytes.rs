//! Bytes of keys and values.
//!
//! *Units*: bytes; `GiB` is 2^30 of them.

use super::Shape;
use serde::Serialize;

/// How a cache stores its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheType {
    /// Single floats.
    F32,
    /// Half floats.
    F16,
    /// 16-bit codes.
    U16,
    /// 8-bit codes with one scale for a tensor.
    U8,
    /// Blocks of 32 codes of 8 bits with a half float each.
    Q8_0,
}

impl CacheType {
    /// Those that tables compare.
    pub const COMPARED: [Self; 3] = [Self::F16, Self::U8, Self::Q8_0];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::U16 => "u16",
            Self::U8 => "u8",
            Self::Q8_0 => "q8_0",
        }
    }

    /// Bytes of that many numbers.
    pub const fn bytes(self, n: u64) -> u64 {
        match self {
            Self::F32 => 4 * n,
            Self::F16 | Self::U16 => 2 * n,
            Self::U8 => n,
            Self::Q8_0 => n.div_ceil(32) * 34,
        }
    }
}

impl Shape {
    /// Numbers that a token leaves in the cache: a key and a value in each head of each layer.
    pub const fn cache_numbers_per_token(&self) -> u64 {
        2 * self.layers * self.kv_heads * self.head_dim
    }

    /// Bytes of the cache for that many tokens.
    pub const fn cache_bytes(&self, ty: CacheType, tokens: u64) -> u64 {
        ty.bytes(self.cache_numbers_per_token()) * tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notebooks_model_needs_one_two_and_four_gibibytes() {
        let shape = Shape { layers: 32, hidden: 4096, kv_heads: 32, head_dim: 128, ..Shape::LLAMA_2_7B };
        for (tokens, gib) in [(2048, 1), (4096, 2), (8192, 4)] {
            assert_eq!(shape.cache_bytes(CacheType::F16, tokens), gib << 30, "{tokens}");
        }
    }

    #[test]
    fn shared_key_heads_and_smaller_types_divide_it() {
        let (all, shared) = (Shape::LLAMA_2_7B, Shape::LLAMA_3_8B);
        assert_eq!(all.cache_bytes(CacheType::F16, 100), 4 * shared.cache_bytes(CacheType::F16, 100));
        assert_eq!(shared.cache_bytes(CacheType::F16, 1), 131_072);
        assert_eq!(shared.cache_bytes(CacheType::U8, 1), 65_536);
        assert_eq!(shared.cache_bytes(CacheType::Q8_0, 1), 65_536 / 32 * 34);
        // 2 * 24 layers * 2 heads * 64 numbers of two bytes.
        assert_eq!(Shape::QWEN_2_5_0_5B.cache_bytes(CacheType::F16, 1), 12_288);
    }
}

//! A decoder's extents, as far as operations and memory depend on them; those of some well-known models by name.
//!
//! *Source* of the named ones: the `config.json` of each checkpoint as published.

use serde::Serialize;

/// Extents of a decoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// What tables call it.
    pub name: std::borrow::Cow<'static, str>,
    /// Decoder layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Width of the feed-forward part.
    pub ffn: u64,
    /// Matrices of the feed-forward part: three with a gate, two without.
    pub ffn_matrices: u64,
    /// Rows of the LM head.
    pub vocab: u64,
}

const fn gated(name: &'static str, layers: u64, hidden: u64, heads: [u64; 3], ffn: u64, vocab: u64) -> Shape {
    let [heads, kv_heads, head_dim] = heads;
    Shape {
        name: std::borrow::Cow::Borrowed(name),
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn,
        ffn_matrices: 3,
        vocab,
    }
}

impl Shape {
    /// Llama 2 of 7 billion weights: as many key heads as query heads.
    pub const LLAMA_2_7B: Self = gated("Llama-2-7B", 32, 4096, [32, 32, 128], 11_008, 32_000);
    /// Llama 3 of 8 billion weights: four query heads share a key head.
    pub const LLAMA_3_8B: Self = gated("Llama-3-8B", 32, 4096, [32, 8, 128], 14_336, 128_256);
    /// Llama 3.2 of 1 billion weights.
    pub const LLAMA_3_2_1B: Self = gated("Llama-3.2-1B", 16, 2048, [32, 8, 64], 8192, 128_256);
    /// Qwen 2.5 of half a billion weights.
    pub const QWEN_2_5_0_5B: Self = gated("Qwen2.5-0.5B", 24, 896, [14, 2, 64], 4864, 151_936);
    /// All of them.
    pub const NAMED: [Self; 4] = [Self::LLAMA_2_7B, Self::LLAMA_3_8B, Self::LLAMA_3_2_1B, Self::QWEN_2_5_0_5B];

    /// Weights of the linear layers of all decoder layers.
    pub const fn layer_weights(&self) -> u64 {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let attention = self.hidden * q + 2 * self.hidden * kv + q * self.hidden;
        self.layers * (attention + self.ffn_matrices * self.hidden * self.ffn)
    }

    /// Weights of the LM head.
    pub const fn head_weights(&self) -> u64 {
        self.hidden * self.vocab
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn named_shapes_have_the_weights_that_they_are_named_after() {
        // With the embedding; norms are left out.
        let all = |shape: &Shape, tables: u64| shape.layer_weights() + tables * shape.head_weights();
        assert_eq!(all(&Shape::LLAMA_2_7B, 2), 6_738_149_376);
        assert_eq!(all(&Shape::LLAMA_3_8B, 2), 8_029_995_008);
        // Tied: one table.
        assert_eq!(all(&Shape::LLAMA_3_2_1B, 1), 1_235_746_816);
        assert_eq!(all(&Shape::QWEN_2_5_0_5B, 1), 493_961_216);
    }
}

//! The block formats: codes that share scales.
//!
//! ```text
//! Q8_0   32 elements    f16 d | 32 x i8                                     d * code
//! Q4_0   32 elements    f16 d | 16 bytes: element i below, i + 16 above      d * (code - 8)
//! Q4_K  256 elements    f16 d | f16 m | 12 bytes: 8 scales, 8 minima of 6 bits | 128 bytes: 64 elements to 32 bytes,
//!                       the first 32 below                                  d * scale * code - m * minimum
//! Q6_K  256 elements    128 bytes of lower 4 bits | 64 bytes of upper 2 bits | 16 x i8 scale | f16 d
//!                                                                           d * scale * (code - 32)
//! ```

use half::f16;

/// A block format that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the formats' own names")]
pub enum BlockFormat {
    /// 4 bits, blocks of 32.
    Q4_0,
    /// 8 bits, blocks of 32.
    Q8_0,
    /// 4 bits, sub-blocks of 32 with scale and minimum, eight to a block.
    Q4K,
    /// 6 bits, sub-blocks of 16 with a scale, sixteen to a block.
    Q6K,
}

/// Elements of a block of the k-formats.
const K: usize = 256;

impl BlockFormat {
    /// Elements of a block.
    pub const fn elems(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q6K => K,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 2 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q4K => 2 + 2 + 12 + K / 2,
            Self::Q6K => K / 2 + K / 4 + K / 16 + 2,
        }
    }

    /// The numbers of whole blocks.
    ///
    /// # Panics
    /// When `bytes` and `to` are not the same number of whole blocks.
    pub(crate) fn decode(self, bytes: &[u8], to: &mut [f32]) {
        assert_eq!(bytes.len() / self.bytes() * self.elems(), to.len(), "whole blocks");
        for (bytes, to) in bytes.chunks_exact(self.bytes()).zip(to.chunks_exact_mut(self.elems())) {
            match self {
                Self::Q4_0 | Self::Q8_0 => {
                    let mut codes = [0; 32];
                    let scale = self.codes(bytes, &mut codes).to_f32();
                    to.iter_mut().zip(codes).for_each(|(to, code)| *to = scale * f32::from(code));
                }
                Self::Q4K => q4_k(bytes, to),
                Self::Q6K => q6_k(bytes, to),
            }
        }
    }

    /// Codes and scale of one block of `Q4_0` or `Q8_0`.
    ///
    /// # Panics
    /// For other formats.
    pub(crate) fn codes(self, block: &[u8], codes: &mut [i8; 32]) -> f16 {
        let data = &block[2..];
        match self {
            Self::Q8_0 => codes.iter_mut().zip(data).for_each(|(code, &byte)| *code = byte.cast_signed()),
            Self::Q4_0 => {
                let (low, high) = codes.split_at_mut(16);
                for ((low, high), &byte) in low.iter_mut().zip(high).zip(data) {
                    *low = (byte & 15).cast_signed() - 8;
                    *high = (byte >> 4).cast_signed() - 8;
                }
            }
            Self::Q4K | Self::Q6K => panic!("{self:?} has no single scale"),
        }
        half(block, 0)
    }
}

fn half(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn q4_k(block: &[u8], to: &mut [f32]) {
    let (d, m) = (half(block, 0).to_f32(), half(block, 2).to_f32());
    let (packed, data) = (&block[4..16], &block[16..]);
    for (sub, to) in to.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = scale_and_minimum(packed, sub);
        let (scale, minimum) = (d * f32::from(scale), m * f32::from(minimum));
        let shift = sub % 2 * 4;
        for (to, byte) in to.iter_mut().zip(&data[sub / 2 * 32..]) {
            *to = scale * f32::from(byte >> shift & 15) - minimum;
        }
    }
}

/// Six bits each: the first four lie whole in bytes 0..4 and 4..8, the others are spread over the tops of those and bytes 8..12.
fn scale_and_minimum(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        return (packed[sub] & 63, packed[sub + 4] & 63);
    }
    let (scale, minimum, low) = (packed[sub - 4], packed[sub], packed[sub + 4]);
    (low & 15 | scale >> 2 & 48, low >> 4 | minimum >> 2 & 48)
}

fn q6_k(block: &[u8], to: &mut [f32]) {
    let (low, rest) = block.split_at(K / 2);
    let (high, rest) = rest.split_at(K / 4);
    let d = half(rest, K / 16).to_f32();
    for (i, to) in to.iter_mut().enumerate() {
        let (half, row, col) = (i / 128, i / 32 % 4, i % 32);
        let low = low[half * 64 + row % 2 * 32 + col] >> (row / 2 * 4) & 15;
        let high = high[half * 32 + col] >> (row * 2) & 3;
        let code = (low | high << 4).cast_signed() - 32;
        *to = d * f32::from(rest[i / 16].cast_signed()) * f32::from(code);
    }
}

//! The block formats: quantised values that share scales. `q` is the stored value.
//!
//! ```text
//! Q8_0   32 elements    f16 d | 32 x i8                                     d * q
//! Q4_0   32 elements    f16 d | 16 bytes: element i below, i + 16 above      d * (q - 8)
//! Q4_1   32 elements    f16 d | f16 m | 16 bytes as above                    d * q + m
//! Q5_0   32 elements    f16 d | u32: element i's fifth bit at i | 16 bytes    d * (q - 16)
//! Q5_1   32 elements    f16 d | f16 m | u32 | 16 bytes                       d * q + m
//! Q4_K  256 elements    f16 d | f16 m | 12 bytes: 8 scales, 8 minima of 6 bits | 128 bytes: 64 elements to 32 bytes,
//!                       the first 32 below                                  d * scale * q - m * minimum
//! Q5_K  256 elements    as Q4_K, with 32 bytes of fifth bits before the values: that of element i of sub-block s is bit s
//!                       of byte i
//! Q6_K  256 elements    128 bytes of lower 4 bits | 64 bytes of upper 2 bits | 16 x i8 scale | f16 d
//!                                                                           d * scale * (q - 32)
//! Q2_K  256 elements    16 bytes: scale below, minimum above | 64 bytes of 2 bits | f16 d | f16 m
//!                                                                           d * scale * q - m * minimum
//! Q3_K  256 elements    32 bytes of third bits | 64 bytes of lower 2 bits | 12 bytes: 16 scales of 6 bits | f16 d
//!                                                                           d * (scale - 32) * (q - 4)
//! IQ4_NL 32 elements    f16 d | 16 bytes as Q4_0                             d * LEVELS[q]
//! IQ4_XS 256 elements   f16 d | u16: upper 2 bits of 8 scales | 4 bytes: lower 4 bits | 8 times 16 bytes as Q4_0
//!                                                                           d * (scale - 32) * LEVELS[q]
//! MXFP4  32 elements    u8 e | 16 bytes as Q4_0                              2^(e - 128) * FLOATS[q]; NaN if e = 255
//! ```
//! Values of 2 bits of Q2_K and Q3_K: of 128 elements, element i lies at bit 2 * (i / 32) of byte i % 32; the third bit of element i
//! of all 256 is bit i / 32 of byte i % 32.
//! MXFP4 is that of the *OCP Microscaling Formats Specification* 1.0 (4-bit floats E2M1, scales E8M0), except that ggml has no -0.

use half::f16;

/// A supported block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the formats' own names")]
pub enum BlockFormat {
    /// 4 bits, blocks of 32.
    Q4_0,
    /// 4 bits, blocks of 32 with a minimum.
    Q4_1,
    /// 5 bits, blocks of 32: llama.cpp's substitute for k-formats where rows are no multiple of 256.
    Q5_0,
    /// 5 bits, blocks of 32 with a minimum.
    Q5_1,
    /// 8 bits, blocks of 32.
    Q8_0,
    /// 4 bits, sub-blocks of 32 with scale and minimum, eight to a block.
    Q4K,
    /// As `Q4K` with 5 bits.
    Q5K,
    /// 6 bits, sub-blocks of 16 with a scale, sixteen to a block.
    Q6K,
    /// 2 bits, sub-blocks of 16 with scale and minimum, sixteen to a block.
    Q2K,
    /// 3 bits, sub-blocks of 16 with a scale, sixteen to a block.
    Q3K,
    /// 4 bits that name one of 16 levels, blocks of 32.
    IQ4_NL,
    /// As `IQ4_NL`, sub-blocks of 32 with a scale, eight to a block.
    IQ4_XS,
    /// Floats of 4 bits, blocks of 32 whose scale is a power of two.
    MXFP4,
}

/// One block of 256 with a scale for each 32: `w = q * scale - minimum * unit`, exact up to the difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steps {
    /// 0..=15, 0..=31, or levels.
    pub(crate) q: [i8; K],
    /// Of each 32 values: a float16 times a whole number, exact in f32.
    pub(crate) scales: [f32; K / 32],
    /// Of each 32 values, and the unit that they share: 0 to 63.
    pub(crate) minima: Option<([u8; K / 32], f32)>,
}

/// One block of `Q2_K`: `w = q * scale - minimum * unit`, exact up to the difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HalfSteps {
    /// 0..=3.
    pub(crate) q: [i8; K],
    /// Of each 16 values: a float16 times a whole number of 4 bits, exact in f32.
    pub(crate) scales: [f32; K / 16],
    /// Of each 16 values: 0..=15.
    pub(crate) minima: [u8; K / 16],
    /// What they share.
    pub(crate) unit: f32,
}

/// What 4 bits stand for in the formats with levels.
const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice what 4 bits stand for in `MXFP4`: a sign, two bits of exponent, one of fraction.
const FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Elements of a block of the k-formats.
const K: usize = 256;

impl BlockFormat {
    /// The format's name in ggml.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::IQ4_NL => "IQ4_NL",
            Self::IQ4_XS => "IQ4_XS",
            Self::MXFP4 => "MXFP4",
        }
    }

    /// Elements of a block.
    pub const fn elems(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::IQ4_NL | Self::MXFP4 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K | Self::Q2K | Self::Q3K | Self::IQ4_XS => K,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 | Self::IQ4_NL => 2 + 16,
            Self::Q4_1 => 2 + 2 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q5_1 => 2 + 2 + 4 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q4K => 2 + 2 + 12 + K / 2,
            Self::Q5K => 2 + 2 + 12 + K / 8 + K / 2,
            Self::Q6K => K / 2 + K / 4 + K / 16 + 2,
            Self::Q2K => K / 16 + K / 4 + 2 + 2,
            Self::Q3K => K / 8 + K / 4 + 12 + 2,
            Self::IQ4_XS => 2 + 2 + 4 + K / 2,
            Self::MXFP4 => 1 + 16,
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
                Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::IQ4_NL | Self::MXFP4 => {
                    let mut q = [0; 32];
                    let scale = self.unpack(bytes, &mut q);
                    to.iter_mut().zip(q).for_each(|(to, q)| *to = scale * f32::from(q));
                }
                Self::Q4_1 => with_minimum(bytes, [0; 4], &bytes[4..], to),
                Self::Q5_1 => with_minimum(bytes, [bytes[4], bytes[5], bytes[6], bytes[7]], &bytes[8..], to),
                Self::Q4K => sub_blocks(bytes, None, &bytes[16..], to),
                Self::Q5K => sub_blocks(bytes, Some(&bytes[16..48]), &bytes[48..], to),
                Self::Q6K | Self::Q3K => with_scales(self.two_levels(bytes), to),
                Self::Q2K => q2_k(bytes, to),
                Self::IQ4_XS => iq4_xs(bytes, to),
            }
        }
    }

    /// Bits of a value where a block is one scale and 32 values: such a block fits any format of as many bits or more.
    pub(crate) const fn plain_bits(self) -> Option<u32> {
        match self {
            Self::Q4_0 => Some(4),
            Self::Q5_0 => Some(5),
            Self::Q8_0 | Self::IQ4_NL | Self::MXFP4 => Some(8),
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K | Self::Q6K | Self::Q2K | Self::Q3K | Self::IQ4_XS => None,
        }
    }

    /// Whether a block is values of at most six bits, -32..=31, with a scale for each 16 that is a float16 times a whole number.
    pub(crate) const fn has_two_levels(self) -> bool {
        matches!(self, Self::Q6K | Self::Q3K)
    }

    /// Values, and a scale per 16 of them, of one block of a format that [`Self::has_two_levels`]; scales are exact in f32.
    ///
    /// # Panics
    /// For other formats.
    pub(crate) fn two_levels(self, block: &[u8]) -> ([i8; K], [f32; K / 16]) {
        match self {
            Self::Q6K => q6_k_parts(block),
            Self::Q3K => q3_k_parts(block),
            other => panic!("{other:?} has no scales of two levels"),
        }
    }

    /// One block of `Q4_K`, `Q5_K` or `IQ4_XS`.
    ///
    /// # Panics
    /// For other formats.
    pub(crate) fn steps(self, block: &[u8]) -> Steps {
        match self {
            Self::Q4K => sub_block_parts(block, None, &block[16..]),
            Self::Q5K => sub_block_parts(block, Some(&block[16..48]), &block[48..]),
            Self::IQ4_XS => iq4_xs_parts(block),
            other => panic!("{other:?} has no scale for each 32 values of a longer block"),
        }
    }

    /// One block of `Q2_K`.
    ///
    /// # Panics
    /// For other formats.
    pub(crate) fn half_steps(self, block: &[u8]) -> HalfSteps {
        assert_eq!(self, Self::Q2K, "a format with minima for each 16");
        let (packed, rest) = block.split_at(K / 16);
        let d = half(rest, K / 4).to_f32();
        HalfSteps {
            q: std::array::from_fn(|i| two_bits(rest, i).cast_signed()),
            scales: std::array::from_fn(|sub| d * f32::from(packed[sub] & 15)),
            minima: std::array::from_fn(|sub| packed[sub] >> 4),
            unit: half(rest, K / 4 + 2).to_f32(),
        }
    }

    /// Unpacks the values of one block of `Q4_0`, `Q5_0`, `Q8_0`, `IQ4_NL` or `MXFP4`; returns its scale, exact in f32. Twice the
    /// floats of `MXFP4` are whole numbers, which go with half its scale.
    ///
    /// # Panics
    /// For other formats.
    pub(crate) fn unpack(self, block: &[u8], to: &mut [i8; 32]) -> f32 {
        if self == Self::MXFP4 {
            *to = in_halves([0; 4], &block[1..]).map(|q| FLOATS[usize::from(q)]);
            return half_of_power(block[0], to);
        }
        let data = &block[2..];
        match self {
            Self::Q8_0 => to.iter_mut().zip(data).for_each(|(q, &byte)| *q = byte.cast_signed()),
            Self::Q4_0 => {
                let unsigned = in_halves([0; 4], data);
                to.iter_mut().zip(unsigned).for_each(|(q, u)| *q = u.cast_signed() - 8);
            }
            Self::Q5_0 => {
                let unsigned = in_halves([data[0], data[1], data[2], data[3]], &data[4..]);
                to.iter_mut().zip(unsigned).for_each(|(q, u)| *q = u.cast_signed() - 16);
            }
            Self::IQ4_NL => {
                let levels = in_halves([0; 4], data).map(|q| LEVELS[usize::from(q)]);
                to.copy_from_slice(&levels);
            }
            other => panic!("{other:?} has no single scale"),
        }
        half(block, 0).to_f32()
    }
}

/// Half of a scale of `MXFP4`: 2^(e - 128), or NaN for 255. Zeros have the scale 0 where f32 has no normal number for it: `ggml` writes
/// them with e = 0.
fn half_of_power(e: u8, values: &[i8; 32]) -> f32 {
    /// What f64 adds to an exponent, less the 128.
    const BIAS: u64 = 1023 - 128;
    match e {
        255 => f32::NAN,
        0 | 1 if *values == [0; 32] => 0.0,
        // Exact: f32 has powers of two down to 2^-149.
        e => f64::from_bits((u64::from(e) + BIAS) << 52) as f32,
    }
}

/// Values of 32 elements: the first 16 in the lower halves of the bytes, the others above, their fifth bits apart.
fn in_halves(fifth: [u8; 4], data: &[u8]) -> [u8; 32] {
    let fifth = u32::from_le_bytes(fifth);
    std::array::from_fn(|i| data[i % 16] >> (i / 16 * 4) & 15 | ((fifth >> i & 1) as u8) << 4)
}

fn with_minimum(block: &[u8], fifth: [u8; 4], data: &[u8], to: &mut [f32]) {
    let (d, m) = (half(block, 0).to_f32(), half(block, 2).to_f32());
    to.iter_mut().zip(in_halves(fifth, data)).for_each(|(to, q)| *to = d * f32::from(q) + m);
}

fn half(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn sub_blocks(block: &[u8], fifth: Option<&[u8]>, data: &[u8], to: &mut [f32]) {
    let (d, m) = (half(block, 0).to_f32(), half(block, 2).to_f32());
    let packed = &block[4..16];
    for (sub, to) in to.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = scale_and_minimum(packed, sub);
        let (scale, minimum) = (d * f32::from(scale), m * f32::from(minimum));
        let shift = sub % 2 * 4;
        for (i, (to, byte)) in to.iter_mut().zip(&data[sub / 2 * 32..]).enumerate() {
            let fifth = fifth.map_or(0, |bits| bits[i] >> sub & 1);
            *to = scale * f32::from(byte >> shift & 15 | fifth << 4) - minimum;
        }
    }
}

/// The parts of what [`sub_blocks`] decodes.
fn sub_block_parts(block: &[u8], fifth: Option<&[u8]>, data: &[u8]) -> Steps {
    let (d, m) = (half(block, 0).to_f32(), half(block, 2).to_f32());
    let both: [(u8, u8); K / 32] = std::array::from_fn(|sub| scale_and_minimum(&block[4..16], sub));
    let q = |i: usize| {
        let (sub, col) = (i / 32, i % 32);
        let fifth = fifth.map_or(0, |bits| bits[col] >> sub & 1);
        (data[sub / 2 * 32 + col] >> (sub % 2 * 4) & 15 | fifth << 4).cast_signed()
    };
    Steps {
        q: std::array::from_fn(q),
        scales: both.map(|(scale, _)| d * f32::from(scale)),
        minima: Some((both.map(|(_, minimum)| minimum), m)),
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

/// Values, and a scale per 16 of them, of one block of `Q6_K`: each scale is a float16 times a whole number, exact in f32.
fn q6_k_parts(block: &[u8]) -> ([i8; K], [f32; K / 16]) {
    let (low, rest) = block.split_at(K / 2);
    let (high, rest) = rest.split_at(K / 4);
    let d = half(rest, K / 16).to_f32();
    let q = |i: usize| {
        let (half, row, col) = (i / 128, i / 32 % 4, i % 32);
        let low = low[half * 64 + row % 2 * 32 + col] >> (row / 2 * 4) & 15;
        let high = high[half * 32 + col] >> (row * 2) & 3;
        (low | high << 4).cast_signed() - 32
    };
    (std::array::from_fn(q), std::array::from_fn(|i| d * f32::from(rest[i].cast_signed())))
}

/// As [`q6_k_parts`], of `Q3_K`.
fn q3_k_parts(block: &[u8]) -> ([i8; K], [f32; K / 16]) {
    let (third, rest) = block.split_at(K / 8);
    let (low, rest) = rest.split_at(K / 4);
    let d = half(rest, 12).to_f32();
    let q = |i: usize| (two_bits(low, i) | (third[i % 32] >> (i / 32) & 1) << 2).cast_signed() - 4;
    let scale = |i: usize| {
        let low = rest[i % 8] >> (i / 8 * 4) & 15;
        let high = rest[8 + i % 4] >> (i / 4 * 2) & 3;
        d * f32::from((low | high << 4).cast_signed() - 32)
    };
    (std::array::from_fn(q), std::array::from_fn(scale))
}

/// Element `i` of 256 in two bits.
fn two_bits(data: &[u8], i: usize) -> u8 {
    data[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

fn with_scales((q, scales): ([i8; K], [f32; K / 16]), to: &mut [f32]) {
    for (i, (to, q)) in to.iter_mut().zip(q).enumerate() {
        *to = scales[i / 16] * f32::from(q);
    }
}

fn q2_k(block: &[u8], to: &mut [f32]) {
    let (packed, rest) = block.split_at(K / 16);
    let (d, m) = (half(rest, K / 4).to_f32(), half(rest, K / 4 + 2).to_f32());
    for (i, to) in to.iter_mut().enumerate() {
        let (scale, minimum) = (packed[i / 16] & 15, packed[i / 16] >> 4);
        *to = d * f32::from(scale) * f32::from(two_bits(rest, i)) - m * f32::from(minimum);
    }
}

/// The parts of what [`iq4_xs`] decodes.
fn iq4_xs_parts(block: &[u8]) -> Steps {
    let (d, high) = (half(block, 0).to_f32(), u16::from_le_bytes([block[2], block[3]]));
    let scale = |sub: usize| {
        let low = block[4 + sub / 2] >> (sub % 2 * 4) & 15;
        d * f32::from((low | ((high >> (2 * sub) & 3) as u8) << 4).cast_signed() - 32)
    };
    let q = |i: usize| {
        let byte = block[8 + i / 32 * 16 + i % 16];
        LEVELS[usize::from(byte >> (i % 32 / 16 * 4) & 15)]
    };
    Steps { q: std::array::from_fn(q), scales: std::array::from_fn(scale), minima: None }
}

fn iq4_xs(block: &[u8], to: &mut [f32]) {
    let (d, high) = (half(block, 0).to_f32(), u16::from_le_bytes([block[2], block[3]]));
    let subs = to.chunks_exact_mut(32).zip(block[8..].chunks_exact(16));
    for (sub, (to, data)) in subs.enumerate() {
        let low = block[4 + sub / 2] >> (sub % 2 * 4) & 15;
        let scale = d * f32::from((low | ((high >> (2 * sub) & 3) as u8) << 4).cast_signed() - 32);
        let levels = in_halves([0; 4], data).map(|q| LEVELS[usize::from(q)]);
        to.iter_mut().zip(levels).for_each(|(to, level)| *to = scale * f32::from(level));
    }
}

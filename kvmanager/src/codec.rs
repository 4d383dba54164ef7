//! Cache elements as numbers and back.
//!
//! *Units and dtype*: fixed point `real = (quantised + offset) * scale`, rounded to the nearest integer and clamped to the
//! type's range; float16 rounds to nearest, ties to even.

use crate::geometry::{KvDtype, KvTensor};

/// Reads one element.
pub(crate) fn decode(tensor: &KvTensor, bytes: &[u8]) -> f32 {
    let fixed = |q: u16| (f32::from(q) + tensor.offset as f32) * tensor.scale;
    match (tensor.dtype, bytes) {
        (KvDtype::U8, &[a]) => fixed(u16::from(a)),
        (KvDtype::U16, &[a, b]) => fixed(u16::from_le_bytes([a, b])),
        (KvDtype::F16, &[a, b]) => f16_to_f32(u16::from_le_bytes([a, b])),
        (KvDtype::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        _ => unreachable!("an element has the width of its type"),
    }
}

/// Writes one element.
pub(crate) fn encode(tensor: &KvTensor, x: f32, bytes: &mut [u8]) {
    // `as` clamps to the type's range; a NaN becomes 0.
    let quantised =
        || if tensor.scale > 0.0 { (x / tensor.scale).round_ties_even() - tensor.offset as f32 } else { 0.0 };
    match tensor.dtype {
        KvDtype::U8 => bytes.copy_from_slice(&[quantised() as u8]),
        KvDtype::U16 => bytes.copy_from_slice(&(quantised() as u16).to_le_bytes()),
        KvDtype::F16 => bytes.copy_from_slice(&f32_to_f16(x).to_le_bytes()),
        KvDtype::F32 => bytes.copy_from_slice(&x.to_le_bytes()),
    }
}

/// Widens a half. Exact.
pub(crate) fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h >> 15) << 31;
    let (exp, frac) = (u32::from(h >> 10) & 31, u32::from(h) & 0x3FF);
    match (exp, frac) {
        (0, _) => f32::from_bits(sign | (frac as f32 * (1.0 / 16_777_216.0)).to_bits()),
        (31, _) => f32::from_bits(sign | 0x7F80_0000 | frac << 13),
        _ => f32::from_bits(sign | (exp + 112) << 23 | frac << 13),
    }
}

/// Narrows to a half, to nearest, ties to even; beyond its range to infinity.
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = f32::from_bits(bits & 0x7FFF_FFFF);
    if magnitude.is_nan() {
        return sign | 0x7E00;
    }
    if magnitude >= 65_520.0 {
        return sign | 0x7C00;
    }
    if magnitude < 6.103_515_6e-5 {
        // Subnormal: a count of 2^-24 steps, rounded by the float unit itself.
        return sign | (magnitude * 16_777_216.0).round_ties_even() as u16;
    }
    let bits = magnitude.to_bits() - (112 << 23);
    let rounded = bits + 0xFFF + (bits >> 13 & 1);
    sign | (rounded >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::KvKind;

    #[test]
    fn halves_come_back() {
        for h in (0..=u16::MAX).filter(|h| h & 0x7C00 != 0x7C00 || h & 0x3FF == 0) {
            assert_eq!(f32_to_f16(f16_to_f32(h)), h, "{h:#x}");
        }
        assert!(f16_to_f32(f32_to_f16(f32::NAN)).is_nan());
        // Ties go to the even neighbour: 2049 lies between 2048 and 2050.
        let known =
            [(1.0, 0x3C00), (-2.0, 0xC000), (65_504.0, 0x7BFF), (65_520.0, 0x7C00), (2049.0, 0x6800), (2051.0, 0x6802)];
        for (x, h) in known {
            assert_eq!(f32_to_f16(x), h, "{x}");
        }
        // 2^-24 by a division, which is exact; `powi` may be off by a digit, and under Miri it is.
        let smallest = 1.0 / 16_777_216.0;
        assert_eq!(f32_to_f16(0.5 * smallest), 0);
        assert_eq!(f32_to_f16(1.5 * smallest), 2);
    }

    #[test]
    fn codes_round_and_clamp() {
        let tensor = KvTensor::new(KvKind::Key, 0, 1, 4, KvDtype::U8).with_quant(0.5, -128);
        let encoded = |x| {
            let mut byte = [0];
            encode(&tensor, x, &mut byte);
            (byte[0], decode(&tensor, &byte))
        };
        assert_eq!(encoded(0.0), (128, 0.0));
        assert_eq!(encoded(1.3), (131, 1.5));
        assert_eq!(encoded(1e9), (255, 63.5));
        assert_eq!(encoded(-1e9), (0, -64.0));
    }
}

//! What the kernels' tests share: numbers, every instruction set, comparisons with f64 references.

use half::{bf16, f16};

use super::{Float, Isa};

/// Every path that this CPU can run.
pub(crate) fn isas() -> impl Iterator<Item = Isa> {
    Isa::available()
}

/// `n` reproducible numbers, most of them within +-2, a few larger.
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = move || {
        // xorshift64*: enough for test data, and the same everywhere.
        state = if state == 0 { 1 } else { state };
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| (next() * 4.0 - 2.0) * if next() > 0.97 { 4.0 } else { 1.0 }).collect()
}

/// Numbers as bytes of a type, behind `shift` bytes of padding (so that they may be unaligned), and as what is stored.
pub(crate) fn encoded(data: &[f32], ty: Float, shift: usize) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0xAA; shift];
    let mut stored = Vec::with_capacity(data.len());
    for &x in data {
        match ty {
            Float::F32 => {
                bytes.extend(x.to_ne_bytes());
                stored.push(x);
            }
            Float::F16 => {
                bytes.extend(f16::from_f32(x).to_ne_bytes());
                stored.push(f16::from_f32(x).to_f32());
            }
            Float::Bf16 => {
                bytes.extend(bf16::from_f32(x).to_ne_bytes());
                stored.push(bf16::from_f32(x).to_f32());
            }
        }
    }
    (bytes, stored)
}

/// Asserts `|y - expected| <= relative * |expected| + absolute` everywhere.
#[track_caller]
pub(crate) fn assert_close(y: &[f32], expected: &[f64], relative: f64, absolute: f64, what: &str) {
    assert_eq!(y.len(), expected.len(), "{what}: length");
    for (i, (&y, &e)) in y.iter().zip(expected).enumerate() {
        let error = (f64::from(y) - e).abs();
        assert!(error <= relative * e.abs() + absolute, "{what}: [{i}] is {y}, not {e} (off by {error:e})");
    }
}

/// Distance in units in the last place of `exact` as an f32 (of the smallest normal one below that).
pub(crate) fn ulps(y: f32, exact: f64) -> f64 {
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (f64::from(y) - exact).abs() / (exponent - 23.0).exp2()
}

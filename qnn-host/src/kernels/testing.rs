//! What the kernels' tests share: numbers, every instruction set, comparisons with f64 references.

use std::cell::Cell;

use half::{bf16, f16};

use super::block_values::FLOATS;
use super::k_blocks::LEVELS;
use super::packed::{BLOCK, Bits, Packer, Packing, Scales};
use super::{Float, Isa};

/// Every path that this CPU can run. Says once in a test which units it has not.
pub(crate) fn isas() -> impl Iterator<Item = Isa> {
    thread_local! {
        /// Each test has a thread of its own.
        static SAID: Cell<bool> = const { Cell::new(false) };
    }
    let units: Vec<_> = Isa::available().filter_map(|isa| isa.2).collect();
    if !units.iter().any(|unit| unit.takes_blocks()) && !SAID.replace(true) {
        let missing = match units.len() {
            0 => "no matrix unit (AMX, AVX-512 with bf16, or SME of 512 bits with GENIE_SME=1)",
            _ => "no AMX",
        };
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{test}: {missing} may be used: what it computes is not tested");
    }
    Isa::available()
}

/// `isa`, whose matrix unit takes weights in blocks: so tests reach what AMX shares with it on CPUs without AMX.
pub(crate) fn with_blocks(isa: Isa) -> Isa {
    #[cfg(target_arch = "x86_64")]
    if let Some(super::isa::Matrix::Avx512Bf16(unit)) = isa.2 {
        return Isa(isa.0, isa.1, Some(super::isa::Matrix::Avx512Bf16(unit.with_blocks())));
    }
    isa
}

/// Whether it has a matrix unit.
pub(crate) fn has_matrix_unit(isa: Isa) -> bool {
    isa.2.is_some()
}

/// Those whose steps of many rows have the arithmetic of narrow ones.
pub(crate) fn isas_without_matrix_unit() -> impl Iterator<Item = Isa> {
    isas().filter(|&isa| !has_matrix_unit(isa))
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

/// A packed matrix of random quantised values and scales, and its numbers.
pub(crate) fn packed_numbers(packing: Packing, rows: usize, cols: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0xAA; packing.size_bytes(rows, cols).expect("a small matrix")];
    let mut packer = Packer::new(&mut bytes, packing, rows, cols);
    let (raw, scales) = (numbers(rows * cols, seed), numbers(rows * packing.scales_of_row(cols), seed ^ 99));
    let mut stored = Vec::with_capacity(rows * cols);
    for (row, raw) in raw.chunks_exact(cols).enumerate() {
        let (low, high) = match packing.bits {
            Bits::UTwo => (0.0, 3.0),
            Bits::HalfMinima => (0.0, 15.0),
            Bits::Three => (-4.0, 3.0),
            Bits::Four => (-8.0, 7.0),
            Bits::Five => (-16.0, 15.0),
            Bits::Six => (-32.0, 31.0),
            Bits::Eight => (-128.0, 127.0),
            Bits::UFour | Bits::Levels | Bits::Nonlinear | Bits::FloatFour => (0.0, 15.0),
            Bits::UFive => (0.0, 31.0),
            Bits::Minima => (0.0, 127.0),
        };
        // Many values at the ends of the range, where sums of products would overflow first.
        let quantised = raw.iter().map(|x| (x * 70.0).clamp(low, high) as i8);
        let level = |number: i8| match packing.bits {
            Bits::Levels | Bits::Nonlinear => LEVELS[number as usize],
            Bits::FloatFour => FLOATS[number as usize],
            _ => number,
        };
        let quantised: Vec<i8> = quantised.map(level).collect();
        let scales: Vec<f32> = scales[row * packing.scales_of_row(cols)..][..packing.scales_of_row(cols)]
            .iter()
            .map(|x| match (packing.bits, packing.scales) {
                (Bits::UTwo, _) => (x.abs() * 1.9).trunc() * 0.007_812_5,
                (Bits::Six | Bits::Three | Bits::UFour | Bits::UFive | Bits::Levels, _) => {
                    (x * 12.0).trunc() * 0.000_976_562_5
                }
                (Bits::FloatFour, _) if x.abs() < 0.1 => 0.0,
                (Bits::FloatFour, _) => 2f32.powi(*x as i32 - 8),
                (_, Scales::Block) => f16::from_f32(x * 0.01).to_f32(),
                (_, Scales::Row) => x * 0.01,
            })
            .collect();
        packer.row(row, &quantised, &scales).expect("values and scales fit");
        let shared = match (packing.bits, packing.scales) {
            (_, Scales::Row) => cols,
            (Bits::Six | Bits::Three | Bits::UTwo | Bits::HalfMinima, _) => 16,
            (Bits::Minima, _) => 8,
            _ => BLOCK,
        };
        let scale = |col: usize| scales[col / shared];
        stored.extend(quantised.iter().enumerate().map(|(col, &c)| f32::from(c) * scale(col)));
    }
    (bytes, stored)
}

/// Minima for a matrix of `rows` x `cols` in a format, packed, and for each of its weights what is taken off it; nothing where the
/// format takes none.
pub(crate) fn packed_minima(packing: Packing, rows: usize, cols: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let Some(format) = packing.minima() else { return (Vec::new(), Vec::new()) };
    let shared = packing.minimum_cols();
    let blocks = cols.div_ceil(shared);
    let (bytes, minima) = packed_numbers(format, rows, blocks, seed);
    let each = (0..rows * cols).map(|at| minima[at / cols * blocks + at % cols / shared]).collect();
    (bytes, each)
}

/// Numbers less others, each rounded once.
pub(crate) fn less(numbers: &[f32], others: &[f32]) -> Vec<f32> {
    numbers.iter().zip(others).map(|(a, b)| a - b).collect()
}

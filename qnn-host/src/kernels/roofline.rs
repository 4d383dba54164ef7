//! Loops that do one thing only, for measuring how fast this CPU does it: reading memory, products of 8-bit values, f32
//! multiply-adds.
//!
//! The 8-bit products run the register tile that the kernels have for weights of 4 bits, the fastest, on operands that stay in the
//! first-level cache; a rate found here is what no kernel over [`Simd`] and [`Dot`] can pass.

use std::hint::black_box;

use super::isa::{dot_fn, simd_fn};
use super::simd::Simd;
use super::simd::dot::{Dot, DotPiece, GROUP, few_quads};
use super::stream::{Ahead, FAR_OF_WIDE, ask};

/// Vectors under way at a time in [`read`].
const STREAMS: usize = 8;
/// Bytes ahead of the read ones that [`read_ahead`] prefetches.
const AHEAD: usize = 8192;
/// Quads of the tile of [`products`]; its operands fit in the first-level cache.
const QUADS: usize = 32;
/// Tiles of a round.
const REPEATS: usize = 32;
/// Largest register tile: rows of activations and groups of weights.
const MOST: (usize, usize) = (4, 3);
/// Multiply-adds under way at a time: more than two units finish in the time of one.
const CHAINS: usize = 12;
/// Multiply-adds of each chain in a round.
const MULTIPLY_ADDS: usize = 256;

simd_fn! {
    /// Reads every number (a tail of less than 512 bytes aside) in order and returns a sum of them.
    pub(crate) fn read(x: &[f32]) -> f32 = read_plainly
}

simd_fn! {
    /// The same, asking the first-level cache for lines ahead of the reading.
    pub(crate) fn read_ahead(x: &[f32]) -> f32 = read_asking
}

simd_fn! {
    /// The same, asking as kernels do whose weights stream from memory.
    pub(crate) fn read_ahead_twice(x: &[f32]) -> f32 = read_asking_twice
}

#[inline(always)]
fn read_plainly<S: Simd>(s: S, x: &[f32]) -> f32 {
    read_by(s, x, |_, _| ())
}

#[inline(always)]
fn read_asking<S: Simd>(s: S, x: &[f32]) -> f32 {
    read_by(s, x, |s, line| s.prefetch(line.wrapping_byte_add(AHEAD)))
}

#[inline(always)]
fn read_asking_twice<S: Simd>(s: S, x: &[f32]) -> f32 {
    read_by(s, x, |s, line| ask(s, line, Ahead::twice(FAR_OF_WIDE)))
}

#[inline(always)]
fn read_by<S: Simd>(s: S, x: &[f32], ask: impl Fn(S, *const f32)) -> f32 {
    let mut sums = [s.zero(); STREAMS];
    for chunk in x.chunks_exact(STREAMS * S::LANES) {
        for line in (0..size_of_val(chunk)).step_by(64) {
            ask(s, chunk.as_ptr().wrapping_byte_add(line));
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the chunk has `STREAMS` vectors.
            *sum = s.add(*sum, unsafe { s.load(chunk.as_ptr().add(i * S::LANES)) });
        }
    }
    sums.into_iter().fold(0.0, |total, sum| total + s.sum(sum))
}

/// Operands of [`products`].
#[repr(C, align(64))]
pub(crate) struct Operands {
    weights: [[[u8; 4 * GROUP]; QUADS]; MOST.1],
    acts: [[i8; 4]; MOST.0 * QUADS],
    starts: [i32; MOST.0],
    sums: [[f32; GROUP]; MOST.0 * MOST.1],
}

impl Operands {
    /// Small values of both signs.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            weights: [std::array::from_fn(|q| std::array::from_fn(|i| ((q + i) % 16) as u8)); MOST.1],
            acts: std::array::from_fn(|i| [1, -2, (i % 5) as i8 - 2, (i % 4) as i8 - 3]),
            starts: [0; MOST.0],
            sums: [[0.0; GROUP]; MOST.0 * MOST.1],
        })
    }
}

/// Multiplies `rounds` times and returns how many operations that were: two for each product.
pub(crate) fn products(isa: super::Isa, operands: &mut Operands, rounds: usize) -> u64 {
    let mut dots = 0;
    // SAFETY: the body has no demands of its own.
    unsafe { run_products(isa, operands, rounds, &mut dots) };
    // A dot is four products in each of its rows.
    dots * 4 * GROUP as u64 * 2
}

dot_fn! {
    unsafe fn run_products(operands: &mut Operands, rounds: usize, dots: &mut u64) = products_by
}

/// # Safety
/// None.
#[inline(always)]
unsafe fn products_by<D: Dot>(d: D, operands: &mut Operands, rounds: usize, dots: &mut u64) {
    let shape = match D::TILE {
        (4, 3) => (4, 3),
        (4, _) => (4, 1),
        _ => (2, 1),
    };
    // SAFETY: the pieces have no demands.
    unsafe {
        match shape {
            (4, 3) => d.outline(Rounds::<4, 3>(operands, rounds)),
            (4, _) => d.outline(Rounds::<4, 1>(operands, rounds)),
            _ => d.outline(Rounds::<2, 1>(operands, rounds)),
        }
    }
    *dots = (rounds * REPEATS * QUADS * shape.0 * shape.1) as u64;
}

/// Rounds of a tile of `R` rows and `G` groups, as a function of its own. Safe to run; `R` and `G` are at most [`MOST`].
struct Rounds<'a, const R: usize, const G: usize>(&'a mut Operands, usize);

impl<const R: usize, const G: usize> DotPiece for Rounds<'_, R, G> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self, d: D) {
        const { assert!(R <= MOST.0 && G <= MOST.1) };
        let Self(operands, rounds) = self;
        for _ in 0..rounds * REPEATS {
            // What may have changed must be read again: no product can be carried over from the tile before.
            let Operands { weights, acts, starts, .. } = black_box(&*operands);
            let (weights, acts, starts) = (weights.as_ptr().cast(), acts.as_ptr().cast(), starts.as_ptr());
            // SAFETY: the operands have `QUADS` quads of at least `R` rows and `G` groups, and as many starts.
            let sums = unsafe { d.products::<R, G, { few_quads(4) }>(weights, 4 * GROUP * QUADS, acts, QUADS, starts) };
            for (to, sum) in operands.sums.iter_mut().zip(sums.into_iter().flatten()) {
                // SAFETY: 16 numbers.
                unsafe { d.store_group(to.as_mut_ptr(), d.to_float(sum)) };
            }
        }
    }
}

simd_fn! {
    /// Multiplies and adds `rounds` times, in registers alone, and returns how many operations that were (two for each
    /// multiply-add) and a sum of the results.
    pub(crate) fn multiply_adds(rounds: usize) -> (u64, f32) = multiply_adds_by
}

#[inline(always)]
fn multiply_adds_by<S: Simd>(s: S, rounds: usize) -> (u64, f32) {
    let (x, y) = (s.splat(black_box(0.999)), s.splat(black_box(1e-4)));
    let mut sums: [S::V; CHAINS] = std::array::from_fn(|i| s.splat(i as f32));
    for _ in 0..rounds * MULTIPLY_ADDS {
        for sum in &mut sums {
            *sum = s.fma(*sum, x, y);
        }
    }
    let total = sums.into_iter().fold(0.0, |total, sum| total + s.sum(sum));
    ((rounds * MULTIPLY_ADDS * CHAINS * S::LANES * 2) as u64, total)
}

/// Multiplies tiles of a matrix unit `rounds` times and returns how many operations that were; `None` where there is none.
#[cfg(target_arch = "x86_64")]
pub(crate) fn tiles(isa: super::Isa, int8: bool, rounds: usize) -> Option<u64> {
    use super::isa::Matrix;
    use super::simd::amx::Operands;
    match isa.2? {
        Matrix::Amx(amx) => {
            let operands = if int8 { Operands::Int8 } else { Operands::Bf16 };
            Some(amx.tiles().rounds(operands, rounds))
        }
        Matrix::Avx512Bf16(unit) => (!int8).then(|| {
            let (operations, sum) = unit.rounds(8 * rounds);
            black_box(sum);
            operations
        }),
    }
}

/// The same of SME, which has no products of bytes here.
#[cfg(target_arch = "aarch64")]
pub(crate) fn tiles(isa: super::Isa, int8: bool, rounds: usize) -> Option<u64> {
    isa.2.filter(|_| !int8).map(|sme| sme.tiles().rounds(rounds))
}

/// None is known on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn tiles(_: super::Isa, _: bool, _: usize) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Isa;

    #[test]
    fn every_unit_reads_all_and_counts_what_it_did() {
        let x: Vec<f32> = (0..1024).map(|i| (i % 7) as f32).collect();
        let sum: f32 = x.iter().sum();
        for isa in Isa::available() {
            let sums = [read(isa, &x), read_ahead(isa, &x), read_ahead_twice(isa, &x)];
            assert_eq!(sums, [sum; 3], "{}", isa.name());
            let mut operands = Operands::new();
            let (one, three) = (products(isa, &mut operands, 1), products(isa, &mut operands, 3));
            assert!(one > 0 && three == 3 * one, "{}: {one} {three}", isa.name());
            assert!(operands.sums[0].iter().any(|&s| s != 0.0), "{}", isa.name());
            let (one, three) = (multiply_adds(isa, 1), multiply_adds(isa, 3));
            assert!(one.0 > 0 && three.0 == 3 * one.0, "{}: {one:?} {three:?}", isa.name());
            assert!(one.1.is_finite() && one.1 > three.1, "{}: they fade: {one:?} {three:?}", isa.name());
        }
    }
}

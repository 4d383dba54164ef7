//! Vectors of f32 behind one trait, so that a kernel is written once and compiled for each instruction set.
//!
//! A value of a [`Simd`] type is proof that the CPU has its instructions: only [`super::Isa`] makes them, after
//! detection. That is why arithmetic is safe to call; loads and stores are unsafe only for their pointers, which need no
//! alignment.
//!
//! Everything here and every kernel body is `inline(always)`: it ends up inside the `target_feature` function that
//! [`simd_fn!`](super::isa) makes, where the intrinsics become single instructions. Bodies that are compiled in many forms
//! are [`Piece`]s, functions of their own, so that the compiler does not handle all of them as one. *Trap*: a closure handed to a
//! function that is not `inline(always)` stays outside, where every intrinsic is a call.

pub(crate) mod act_scale;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2_dot;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512_bf16;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512_dot;
pub(crate) mod dot;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod matrix;
#[cfg(target_arch = "x86_64")]
pub(crate) mod matrix_x86;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon_dot;
pub(crate) mod plain;
mod plain_dot;
#[cfg(target_arch = "aarch64")]
pub(crate) mod sme;

use half::{bf16, f16};

/// The widest vector of any instruction set, in f32 lanes.
pub(crate) const MAX_LANES: usize = 16;

/// From row to row of a tile's operand `a`: a constant, so that the rows are constant distances from one address. Also the
/// longest sum of one tile: with it, the rows of `a` fit in the first-level cache.
pub(crate) const A_STRIDE: usize = 256;

/// The largest number below a half: added away from zero, and the fraction cut off, it rounds ties away from zero. A half itself would
/// lift the number below a half to 1.
#[cfg(target_arch = "x86_64")]
const BELOW_HALF: f32 = 0.5 - f32::EPSILON / 4.0;

/// A vector unit: a type of vector and what can be done with it.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// [`Self::LANES`] f32 numbers.
    type V: Copy;
    /// Numbers in a vector.
    const LANES: usize;
    /// Rows of the register tile of a matrix product; two vectors wide (see [`Simd::tile`]).
    const TILE_ROWS: usize;
    /// Whether there are 32 registers rather than 16.
    const MANY_REGISTERS: bool;

    /// Runs a piece of a kernel as a function of its own, compiled for this unit.
    ///
    /// # Safety
    /// As the piece demands.
    unsafe fn outline<P: Piece>(self, piece: P);

    fn splat(self, x: f32) -> Self::V;

    /// # Safety
    /// `LANES` f32 are readable at `p`.
    unsafe fn load(self, p: *const f32) -> Self::V;

    /// # Safety
    /// `LANES` f32 are writable at `p`.
    unsafe fn store(self, p: *mut f32, v: Self::V);

    /// # Safety
    /// `LANES` f16 are readable at `p`.
    unsafe fn load_f16(self, p: *const f16) -> Self::V;

    /// One f16 in all lanes.
    ///
    /// # Safety
    /// It is readable.
    #[inline(always)]
    unsafe fn splat_f16(self, p: *const f16) -> Self::V {
        // SAFETY: the array has a number for each lane of any vector; the caller promised the one that is read.
        unsafe { self.load_f16([p.read_unaligned(); MAX_LANES].as_ptr()) }
    }

    /// Rounds to nearest even.
    ///
    /// # Safety
    /// `LANES` f16 are writable at `p`.
    unsafe fn store_f16(self, p: *mut f16, v: Self::V);

    /// # Safety
    /// `LANES` bf16 are readable at `p`.
    unsafe fn load_bf16(self, p: *const bf16) -> Self::V;

    /// # Safety
    /// `LANES` bytes are readable at `p`.
    unsafe fn load_i8(self, p: *const i8) -> Self::V;

    /// # Safety
    /// `LANES` bytes are readable at `p`.
    unsafe fn load_u8(self, p: *const u8) -> Self::V;

    /// Whole numbers of 0 to 255 as bytes.
    ///
    /// # Safety
    /// `LANES` bytes are writable at `p`.
    #[inline(always)]
    unsafe fn store_u8(self, p: *mut u8, v: Self::V) {
        let mut lanes = [0.0; MAX_LANES];
        // SAFETY: a vector fits in the array; the caller promised `LANES` bytes.
        unsafe {
            self.store(lanes.as_mut_ptr(), v);
            lanes[..Self::LANES].iter().enumerate().for_each(|(i, &lane)| p.add(i).write(lane as u8));
        }
    }

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` where either is not a number.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger; `b` where either is not a number.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// To the nearest whole number, ties to even.
    fn round(self, a: Self::V) -> Self::V;

    /// To the nearest whole number, ties away from zero, for `|a|` below 2^22; a zero may have either sign.
    #[inline(always)]
    fn round_away(self, a: Self::V) -> Self::V {
        let size = self.max(a, self.sub(self.zero(), a));
        let even = self.round(size);
        // 1 where a tie went down.
        let more = self.zero_below(self.splat(1.0), self.sub(size, even), self.splat(0.5));
        let rounded = self.add(even, more);
        // Twice that where the number is negative, and not rounded to 0.
        let twice = self.zero_below(self.add(rounded, rounded), self.sub(self.zero(), a), self.splat(0.25));
        self.sub(rounded, twice)
    }

    /// `v * 2^n` for whole `n` in -126..=127.
    fn scale(self, v: Self::V, n: Self::V) -> Self::V;
    /// `v`, but 0 in lanes where `x < limit`.
    fn zero_below(self, v: Self::V, x: Self::V, limit: Self::V) -> Self::V;
    fn sum(self, v: Self::V) -> f32;
    fn max_lane(self, v: Self::V) -> f32;
    /// The larger of the sizes `|a|` and `|b|`; not a number where either is none.
    fn max_size(self, a: Self::V, b: Self::V) -> Self::V;
    /// The largest of sizes; not a number where one of them is none.
    fn max_size_lane(self, sizes: Self::V) -> f32;

    /// `c[i * ldc + j] (+)= sum_k a[i * A_STRIDE + k] * b[k * ldb + j]` for `i` in `0..TILE_ROWS`, `j` in `0..vectors * LANES`,
    /// `vectors` 1 or 2; the sum is kept in registers. `add`: whether the sum begins with `c` or with 0. Products are added one
    /// after the other: a sum in several calls has the bits of a sum in one.
    ///
    /// # Safety
    /// All of `a` and `b` so indexed is readable, `c[i * ldc + j]` writable (and readable with `add`).
    unsafe fn tile(self, t: Tile, vectors: usize, add: bool);

    /// Transposes a block of `LANES` x `LANES`: `dst[j * dst_stride + i] = src[i * src_stride + j]`.
    ///
    /// # Safety
    /// Both blocks so indexed are readable, writable, and do not overlap.
    #[inline(always)]
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        for i in 0..Self::LANES {
            for j in 0..Self::LANES {
                // SAFETY: the caller promised both blocks.
                unsafe { *dst.add(j * dst_stride + i) = *src.add(i * src_stride + j) };
            }
        }
    }

    /// Prefetches the cache line at `p`, which need not be a valid address.
    #[inline(always)]
    fn prefetch<T>(self, p: *const T) {
        prefetch_line::<T, 1>(p);
    }

    /// The same, into the second-level cache: for streams from memory. A core has far more requests of that cache under way than of
    /// the first one.
    #[inline(always)]
    fn prefetch_l2<T>(self, p: *const T) {
        prefetch_line::<T, 2>(p);
    }

    /// Asks for the cache line at `p`, which need not be a valid address, to write to it.
    #[inline(always)]
    fn prefetch_to_write<T>(self, p: *const T) {
        prefetch_line_to_write(p);
    }

    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }

    /// The first `n < LANES` numbers, zeros behind.
    ///
    /// # Safety
    /// `n` f32 are readable at `p`.
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> Self::V {
        let mut lanes = [0.0; MAX_LANES];
        // SAFETY: the caller promised `n` numbers, fewer than the array holds; a vector fits in the array.
        unsafe {
            p.cast::<u8>().copy_to_nonoverlapping(lanes.as_mut_ptr().cast(), 4 * n);
            self.load(lanes.as_ptr())
        }
    }

    /// Writes the first `n < LANES` lanes.
    ///
    /// # Safety
    /// `n` f32 are writable at `p`.
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, v: Self::V, n: usize) {
        let mut lanes = [0.0; MAX_LANES];
        // SAFETY: a vector fits in the array; the caller promised `n` numbers.
        unsafe {
            self.store(lanes.as_mut_ptr(), v);
            p.cast::<u8>().copy_from_nonoverlapping(lanes.as_ptr().cast(), 4 * n);
        }
    }
}

/// A part of a kernel that is compiled as a function of its own.
pub(crate) trait Piece {
    /// Must be `inline(always)`.
    ///
    /// # Safety
    /// As documented on the type.
    unsafe fn run<S: Simd>(self, s: S);
}

/// The operands of [`Simd::tile`]. Strides are in elements.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Rows of numbers that are broadcast, [`A_STRIDE`] apart.
    pub(crate) a: *const f32,
    /// Rows of vectors.
    pub(crate) b: *const f32,
    pub(crate) ldb: usize,
    /// Length of the sums, at most [`A_STRIDE`].
    pub(crate) k: usize,
    pub(crate) c: *mut f32,
    pub(crate) ldc: usize,
}

/// The one tile body: `ROWS` x `VECTORS` accumulators, small enough to stay in registers.
///
/// Safe to run under the promise of [`Simd::tile`], with `ROWS` and `VECTORS` for its extents.
pub(crate) struct TilePiece<const ROWS: usize, const VECTORS: usize>(pub(crate) Tile, pub(crate) bool);

impl<const ROWS: usize, const VECTORS: usize> Piece for TilePiece<ROWS, VECTORS> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self(t, add) = self;
        let mut acc = [[s.zero(); VECTORS]; ROWS];
        if add {
            for (i, sums) in acc.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: with `add`, `c` is readable wherever it is written.
                    *sum = unsafe { s.load(t.c.add(i * t.ldc + j * S::LANES)) };
                }
            }
        }
        let mut b = t.b;
        for k in 0..t.k {
            let mut row = [s.zero(); VECTORS];
            for (j, v) in row.iter_mut().enumerate() {
                // SAFETY: row `k < t.k` of `b` has `VECTORS * LANES` readable numbers.
                *v = unsafe { s.load(b.add(j * S::LANES)) };
            }
            for (i, sums) in acc.iter_mut().enumerate() {
                // SAFETY: row `i < ROWS` of `a` has `t.k` readable numbers.
                let x = s.splat(unsafe { *t.a.add(i * A_STRIDE + k) });
                for (sum, v) in sums.iter_mut().zip(row) {
                    *sum = s.fma(x, v, *sum);
                }
            }
            b = b.wrapping_add(t.ldb);
        }
        for (i, sums) in acc.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                // SAFETY: `c` has `ROWS` rows of `VECTORS * LANES` writable numbers.
                unsafe { s.store(t.c.add(i * t.ldc + j * S::LANES), sum) };
            }
        }
    }
}

/// Prefetches the line at `p` into the cache of level `LEVEL`, 1 or 2.
#[inline(always)]
fn prefetch_line<T, const LEVEL: u8>(p: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the architecture, and a prefetch of any address has no effect but on caches.
    unsafe {
        use std::arch::x86_64::*;
        match LEVEL {
            1 => _mm_prefetch::<_MM_HINT_T0>(p.cast()),
            _ => _mm_prefetch::<_MM_HINT_T1>(p.cast()),
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch of any address has no effect but on caches.
    unsafe {
        match LEVEL {
            1 => std::arch::asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly)),
            _ => std::arch::asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly)),
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}

/// Asks for the line at `p` to write to it.
#[inline(always)]
fn prefetch_line_to_write<T>(p: *const T) {
    // SAFETY: a prefetch of any address has no effect but on caches; processors without the instruction do nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetchw [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}

//! What keys and values are read from: floats, or quantised values of 8 bits, with one scale or one for each block.
//!
//! *Units*: a quantised value `q` is `(q + offset) * scale`. Widening it in a register yields `q + offset`, a whole number
//! that f32 holds exactly (for offsets below 2^24); the scale is left to [`super::block`], which multiplies scores and
//! weights by it: one product for each column rather than for each number.

use half::f16;

use super::super::Floats;
use super::super::float::{Elem, Load};
use super::super::simd::Simd;

/// Keys or values as unsigned 8-bit quantised values `q`: `real = (q + offset) * scale`.
#[derive(Clone, Copy)]
pub struct QuantisedRows<'a> {
    /// The quantised values.
    pub bytes: &'a [u8],
    /// Step between two quantised values.
    pub scale: f32,
    /// Added to a quantised value: minus the one that stands for zero.
    pub offset: i32,
}

/// Keys or values as f32 that were rounded to the grid of quantised ones: whole multiples of `scale`, at most 2^16 of them. They
/// are multiplied as the same numbers are once a cache holds them quantised, so that results have the same bits.
#[derive(Clone, Copy)]
pub struct GridRows<'a> {
    /// The numbers.
    pub numbers: &'a [f32],
    /// Step of the grid.
    pub scale: f32,
}

/// Numbers that share a scale where rows are kept in blocks; whole vectors of any instruction set.
pub const BLOCK: usize = 32;

/// Keys or values row by row, as unsigned 8-bit numbers `q` in blocks of [`BLOCK`]: `real = (q + offset) * scale of its block`.
///
/// With at most 8 bits in `q + offset` and 11 in a scale the product is exact in f32: widened, these are the very numbers that
/// dequantising them elsewhere gives.
#[derive(Clone, Copy)]
pub struct BlockRows<'a> {
    /// The quantised numbers; a row is a whole number of blocks.
    pub bytes: &'a [u8],
    /// A scale for each block, float16, anywhere in memory.
    pub scales: &'a [u8],
    /// Added to a quantised number.
    pub offset: i32,
}

/// Keys or values of a span.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// Floats.
    Floats(Floats<'a>),
    /// Quantised values.
    Quantised(QuantisedRows<'a>),
    /// Numbers of a grid.
    Grid(GridRows<'a>),
    /// Numbers in blocks with scales.
    Blocks(BlockRows<'a>),
}

impl Rows<'_> {
    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Quantised(rows) => rows.bytes.len(),
            Self::Blocks(rows) => rows.bytes.len(),
            Self::Grid(rows) => rows.numbers.len(),
        }
    }

    /// Bytes of an element.
    #[inline(always)]
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.ty().size_bytes(),
            Self::Quantised(_) | Self::Blocks(_) => 1,
            Self::Grid(_) => size_of::<f32>(),
        }
    }

    /// Where element `i` is, or would be.
    #[inline(always)]
    pub(super) fn place(&self, i: usize) -> *const u8 {
        let start = match self {
            Self::Floats(floats) => floats.bytes().as_ptr(),
            Self::Quantised(rows) => rows.bytes.as_ptr(),
            Self::Blocks(rows) => rows.bytes.as_ptr(),
            Self::Grid(rows) => rows.numbers.as_ptr().cast(),
        };
        start.wrapping_add(i * self.size_bytes())
    }

    /// Factor that products with these elements still lack.
    #[inline(always)]
    pub(super) fn scale(&self) -> f32 {
        match self {
            Self::Floats(_) | Self::Blocks(_) => 1.0,
            Self::Quantised(rows) => rows.scale,
            Self::Grid(rows) => rows.scale,
        }
    }
}

impl<'a> From<Floats<'a>> for Rows<'a> {
    fn from(floats: Floats<'a>) -> Self {
        Self::Floats(floats)
    }
}

/// [`Rows`] of one kind, as a Rust type: products are compiled for each.
pub(super) trait Source: Copy {
    /// Bytes of an element.
    const BYTES: usize;

    /// The elements from `i` on.
    fn from(self, i: usize) -> Self;

    /// Where they begin.
    fn start(self) -> *const u8;

    /// Elements `i .. i + LANES`, unscaled.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn load<S: Simd>(self, s: S, i: usize) -> S::V;

    /// Elements `i .. i + n`, `n < LANES`, and something finite behind.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn load_first<S: Simd>(self, s: S, i: usize, n: usize) -> S::V;

    /// Writes `n` elements as f32, unscaled.
    ///
    /// # Safety
    /// They are readable, and `n` numbers writable at `to`.
    #[inline(always)]
    unsafe fn widen<S: Simd>(self, s: S, to: *mut f32, n: usize) {
        let (whole, rest) = (n - n % S::LANES, n % S::LANES);
        // SAFETY: `i + LANES <= n`; `rest` elements are left behind `whole`.
        unsafe {
            for i in (0..whole).step_by(S::LANES) {
                s.store(to.add(i), self.load(s, i));
            }
            if rest > 0 {
                s.store_first(to.add(whole), self.load_first(s, whole, rest), rest);
            }
        }
    }
}

/// Numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbers<E>(pub(super) *const E);

impl<E: Elem> Source for Numbers<E> {
    const BYTES: usize = size_of::<E>();

    #[inline(always)]
    fn from(self, i: usize) -> Self {
        Self(self.0.wrapping_add(i))
    }

    #[inline(always)]
    fn start(self) -> *const u8 {
        self.0.cast()
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, i: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { E::load(s, self.0.add(i)) }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(self, s: S, i: usize, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { E::load_first(s, self.0.add(i), n) }
    }
}

/// Quantised values with their offset.
#[derive(Clone, Copy)]
pub(super) struct Centred {
    bytes: *const u8,
    offset: f32,
}

impl Centred {
    #[inline(always)]
    pub(super) fn new(rows: &QuantisedRows<'_>) -> Self {
        Self { bytes: rows.bytes.as_ptr(), offset: rows.offset as f32 }
    }
}

impl Source for Centred {
    const BYTES: usize = 1;

    #[inline(always)]
    fn from(self, i: usize) -> Self {
        Self { bytes: self.bytes.wrapping_add(i), ..self }
    }

    #[inline(always)]
    fn start(self) -> *const u8 {
        self.bytes
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, i: usize) -> S::V {
        // SAFETY: the caller's promise.
        s.add(unsafe { s.load_u8(self.bytes.add(i)) }, s.splat(self.offset))
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(self, s: S, i: usize, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        s.add(unsafe { u8::load_first(s, self.bytes.add(i), n) }, s.splat(self.offset))
    }
}

/// Quantised numbers with their offset and the scales of their blocks.
#[derive(Clone, Copy)]
pub(super) struct Scaled {
    bytes: *const u8,
    scales: *const f16,
    /// The element that is first.
    at: usize,
    offset: f32,
}

impl Scaled {
    #[inline(always)]
    pub(super) fn new(rows: &BlockRows<'_>) -> Self {
        let (bytes, scales) = (rows.bytes.as_ptr(), rows.scales.as_ptr().cast());
        Self { bytes, scales, at: 0, offset: rows.offset as f32 }
    }
}

impl Source for Scaled {
    const BYTES: usize = 1;

    #[inline(always)]
    fn from(self, i: usize) -> Self {
        Self { at: self.at + i, ..self }
    }

    #[inline(always)]
    fn start(self) -> *const u8 {
        self.bytes.wrapping_add(self.at)
    }

    // Kernels read whole vectors from multiples of vectors within a row on, so that none reaches over two blocks.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, i: usize) -> S::V {
        let at = self.at + i;
        debug_assert!(at % BLOCK + S::LANES <= BLOCK, "a vector within one block");
        // SAFETY: the caller's promise, and each block has its scale.
        unsafe {
            let whole = s.add(s.load_u8(self.bytes.add(at)), s.splat(self.offset));
            s.mul(whole, s.splat_f16(self.scales.add(at / BLOCK)))
        }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(self, s: S, i: usize, n: usize) -> S::V {
        let at = self.at + i;
        debug_assert!(at % BLOCK + n <= BLOCK, "numbers within one block");
        // SAFETY: as above.
        unsafe {
            let whole = s.add(u8::load_first(s, self.bytes.add(at), n), s.splat(self.offset));
            s.mul(whole, s.splat_f16(self.scales.add(at / BLOCK)))
        }
    }
}

/// Numbers of a grid, as whole numbers.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    numbers: *const f32,
    inverse: f32,
}

impl Whole {
    #[inline(always)]
    pub(super) fn new(rows: &GridRows<'_>) -> Self {
        Self { numbers: rows.numbers.as_ptr(), inverse: 1.0 / rows.scale }
    }
}

impl Source for Whole {
    const BYTES: usize = 4;

    #[inline(always)]
    fn from(self, i: usize) -> Self {
        Self { numbers: self.numbers.wrapping_add(i), ..self }
    }

    #[inline(always)]
    fn start(self) -> *const u8 {
        self.numbers.cast()
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, i: usize) -> S::V {
        // SAFETY: the caller's promise.
        s.round(s.mul(unsafe { s.load(self.numbers.add(i)) }, s.splat(self.inverse)))
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(self, s: S, i: usize, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        s.round(s.mul(unsafe { s.load_first(self.numbers.add(i), n) }, s.splat(self.inverse)))
    }
}

impl Load for u8 {
    #[inline(always)]
    unsafe fn get(p: *const Self) -> f32 {
        // SAFETY: the caller's promise.
        f32::from(unsafe { *p })
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_u8(p) }
    }
}

/// Runs `$body` with `$source` standing for the rows as a [`Source`].
macro_rules! with_source {
    ($rows:expr, $source:ident => $body:expr) => {
        match &$rows {
            $crate::kernels::attention::Rows::Floats(floats) => {
                $crate::kernels::float::with_elem!(floats.ty(), E => {
                    let $source = $crate::kernels::attention::source::Numbers(floats.ptr::<E>());
                    $body
                })
            }
            $crate::kernels::attention::Rows::Quantised(rows) => {
                let $source = $crate::kernels::attention::source::Centred::new(rows);
                $body
            }
            $crate::kernels::attention::Rows::Blocks(rows) => {
                let $source = $crate::kernels::attention::source::Scaled::new(rows);
                $body
            }
            $crate::kernels::attention::Rows::Grid(rows) => {
                let $source = $crate::kernels::attention::source::Whole::new(rows);
                $body
            }
        }
    };
}
pub(super) use with_source;

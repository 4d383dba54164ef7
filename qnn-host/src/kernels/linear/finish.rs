//! The end of a linear layer: scales of rows, bias, gate, residual, store.
//!
//! *Units*: `out = (sum * scale + bias) * silu(gate_sum * gate_scale + gate_bias) + residual`, all f32.

use std::ops::Range;

use super::super::convert::move_all;
use super::super::float::with_elem;
use super::super::math::silu;
use super::super::simd::Simd;
use super::super::{Floats, Mat};
use super::{Linear, Residual};

/// Most outputs of one task.
pub(super) const MAX_CHUNK: usize = 96;

/// What sums of a task's outputs become: `sum * scale + bias`.
pub(super) struct Affine {
    main: Terms,
    gate: Terms,
}

/// Scales (ones where rows have none) and biases (zeros where there is none), widened.
struct Terms {
    scale: [f32; MAX_CHUNK],
    bias: [f32; MAX_CHUNK],
}

impl Affine {
    /// For the outputs `n0 .. n0 + count` of `layer`, `count <= MAX_CHUNK`.
    #[inline(always)]
    pub(super) fn of<S: Simd>(s: S, layer: &Linear<'_>, n0: usize, count: usize) -> Self {
        let gate = layer.gate;
        Self {
            main: Terms::of(s, Some(layer.weights), layer.bias, n0, count),
            gate: Terms::of(s, gate.map(|g| g.weights), gate.and_then(|g| g.bias), n0, count),
        }
    }
}

impl Terms {
    #[inline(always)]
    fn of<S: Simd>(s: S, weights: Option<Mat<'_>>, bias: Option<Floats<'_>>, n0: usize, count: usize) -> Self {
        let mut terms = Self { scale: [1.0; MAX_CHUNK], bias: [0.0; MAX_CHUNK] };
        widen(s, bias, n0, &mut terms.bias[..count]);
        if let Some(rows) = weights.and_then(|w| w.as_rows())
            && !rows.scales.is_empty()
        {
            terms.scale[..count].copy_from_slice(&rows.scales[n0..n0 + count]);
        }
        terms
    }

    /// A vector of sums from `at` on.
    ///
    /// # Safety
    /// `S::LANES` sums are readable at `sums + at`, `at + S::LANES <= MAX_CHUNK`.
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, s: S, sums: *const f32, at: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.fma(s.load(sums.add(at)), s.load(self.scale.as_ptr().add(at)), s.load(self.bias.as_ptr().add(at))) }
    }

    /// [`Self::apply`] for the last `n < S::LANES` sums.
    ///
    /// # Safety
    /// `n` sums are readable at `sums + at`, `at + n <= MAX_CHUNK`.
    #[inline(always)]
    unsafe fn apply_first<S: Simd>(&self, s: S, sums: *const f32, at: usize, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe {
            let first = |p: *const f32| s.load_first(p.add(at), n);
            s.fma(first(sums), first(self.scale.as_ptr()), first(self.bias.as_ptr()))
        }
    }
}

#[inline(always)]
fn widen<S: Simd>(s: S, bias: Option<Floats<'_>>, n0: usize, to: &mut [f32]) {
    if let Some(bias) = bias {
        let part = bias.slice(n0..n0 + to.len());
        with_elem!(part.ty(), E => {
            // SAFETY: both have that many elements.
            unsafe { move_all::<S, E, f32>(s, part.ptr(), to.as_mut_ptr(), to.len()) }
        });
    }
}

/// Asks for outputs `n0 .. n0 + count` of a row that is a few after `row`, to write them: each row lies in another page.
#[inline(always)]
pub(super) fn ask_for_outputs<S: Simd>(s: S, layer: &Linear<'_>, row: usize, n0: usize, count: usize) {
    const ROWS_AHEAD: usize = 16;
    /// Floats of a cache line.
    const LINE: usize = 16;
    let next = layer.out_at(row + ROWS_AHEAD, n0);
    for at in (0..count).step_by(LINE) {
        s.prefetch_to_write(next.wrapping_add(at));
    }
}

/// Writes outputs `n0 .. n0 + count` of some rows from their products, rows [`MAX_CHUNK`] apart.
///
/// # Safety
/// As [`finish`], for each row.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn finish_rows<S: Simd>(
    s: S,
    layer: &Linear<'_>,
    affine: &Affine,
    rows: Range<usize>,
    n0: usize,
    count: usize,
    main: *const f32,
    gate: *const f32,
) {
    for (i, row) in rows.enumerate() {
        let at = i * MAX_CHUNK;
        // SAFETY: the caller's promise.
        unsafe {
            let (main, gate) = (main.wrapping_add(at), gate.wrapping_add(at));
            finish(s, layer, affine, row, n0, count, main, gate, layer.out_at(row, n0));
        }
    }
}

/// Writes outputs `n0 .. n0 + count` of row `row` to `out`, from the products `main` and (if the layer has a gate) `gate`.
///
/// # Safety
/// `count <= MAX_CHUNK` numbers are readable at `main`, and at `gate` if the layer has one, and writable at `out`, which this thread alone uses;
/// the outputs exist.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn finish<S: Simd>(
    s: S,
    layer: &Linear<'_>,
    affine: &Affine,
    row: usize,
    n0: usize,
    count: usize,
    main: *const f32,
    gate: *const f32,
    out: *mut f32,
) {
    let residual = match layer.residual {
        Residual::None => None,
        Residual::Out => Some(out.cast_const()),
        // SAFETY: a residual has the size of the result.
        Residual::Rows(rows) => Some(unsafe { rows.as_ptr().add(row * layer.weights.rows() + n0) }),
    };
    let gated = layer.gate.is_some();
    let whole = count - count % S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= count`, for which all operands are readable and `out` writable.
        unsafe {
            let mut v = affine.main.apply(s, main, i);
            if gated {
                v = s.mul(v, silu(s, affine.gate.apply(s, gate, i)));
            }
            if let Some(residual) = residual {
                v = s.add(v, s.load(residual.add(i)));
            }
            s.store(out.add(i), v);
        }
    }
    let rest = count - whole;
    if rest > 0 {
        // SAFETY: `rest` numbers are left behind `whole` in all of them.
        unsafe {
            let mut v = affine.main.apply_first(s, main, whole, rest);
            if gated {
                v = s.mul(v, silu(s, affine.gate.apply_first(s, gate, whole, rest)));
            }
            if let Some(residual) = residual {
                v = s.add(v, s.load_first(residual.add(whole), rest));
            }
            s.store_first(out.add(whole), v, rest);
        }
    }
}

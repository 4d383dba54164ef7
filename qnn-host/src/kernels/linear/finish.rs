//! The end of a linear layer: scales of rows, bias, gate, residual, store.
//!
//! *Units*: `out = (sum * scale + bias) * silu(gate_sum * gate_scale + gate_bias) + residual`, all f32.

use std::ops::Range;

use super::super::float::{Load, with_elem};
use super::super::math::silu;
use super::super::simd::Simd;
use super::super::{Floats, Mat};
use super::{Linear, Residual};

/// Most outputs of one task.
pub(super) const MAX_CHUNK: usize = 96;

/// What sums of a task's outputs become: `sum * scale + bias`, where the layer has them.
///
/// Nothing is copied: to write a few lines of the stack between two tasks cost a core of Zen 4 a fifth of the rate at which weights stream
/// (docs/bench-results.md, "Between tasks").
pub(super) struct Affine<'a> {
    main: Terms<'a>,
    gate: Terms<'a>,
}

/// Scales and biases of a task's outputs.
struct Terms<'a> {
    scales: Option<&'a [f32]>,
    bias: Option<Floats<'a>>,
}

impl<'a> Affine<'a> {
    /// For the outputs `n0 .. n0 + count` of `layer`.
    #[inline(always)]
    pub(super) fn of(layer: &Linear<'a>, n0: usize, count: usize) -> Self {
        let gate = layer.gate;
        Self {
            main: Terms::of(Some(layer.weights), layer.bias, n0, count),
            gate: Terms::of(gate.map(|g| g.weights), gate.and_then(|g| g.bias), n0, count),
        }
    }
}

impl<'a> Terms<'a> {
    #[inline(always)]
    fn of(weights: Option<Mat<'a>>, bias: Option<Floats<'a>>, n0: usize, count: usize) -> Self {
        let scales = weights.and_then(|w| w.as_rows()).map(|rows| rows.scales).filter(|scales| !scales.is_empty());
        Self { scales: scales.map(|scales| &scales[n0..n0 + count]), bias: bias.map(|bias| bias.slice(n0..n0 + count)) }
    }

    /// A vector of sums from `at` on.
    ///
    /// # Safety
    /// `S::LANES` sums are readable at `sums + at`, and as many outputs of the task lie there.
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, s: S, sums: *const f32, at: usize) -> S::V {
        // SAFETY: the caller's promise; scales and biases are those of the task's outputs.
        unsafe {
            let load = |p: *const f32| s.load(p.add(at));
            let bias = self.bias.map(|bias| with_elem!(bias.ty(), E => E::load(s, bias.ptr::<E>().add(at))));
            scaled(s, load(sums), self.scales.map(|scales| load(scales.as_ptr())), bias)
        }
    }

    /// [`Self::apply`] for the last `n < S::LANES` sums.
    ///
    /// # Safety
    /// `n` sums are readable at `sums + at`, and as many outputs of the task lie there.
    #[inline(always)]
    unsafe fn apply_first<S: Simd>(&self, s: S, sums: *const f32, at: usize, n: usize) -> S::V {
        // SAFETY: the caller's promise; scales and biases are those of the task's outputs.
        unsafe {
            let load = |p: *const f32| s.load_first(p.add(at), n);
            let bias = self.bias.map(|bias| with_elem!(bias.ty(), E => E::load_first(s, bias.ptr::<E>().add(at), n)));
            scaled(s, load(sums), self.scales.map(|scales| load(scales.as_ptr())), bias)
        }
    }
}

#[inline(always)]
fn scaled<S: Simd>(s: S, sums: S::V, scales: Option<S::V>, bias: Option<S::V>) -> S::V {
    match (scales, bias) {
        (None, None) => sums,
        (Some(scales), None) => s.mul(sums, scales),
        (None, Some(bias)) => s.add(sums, bias),
        (Some(scales), Some(bias)) => s.fma(sums, scales, bias),
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
    affine: &Affine<'_>,
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
    affine: &Affine<'_>,
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

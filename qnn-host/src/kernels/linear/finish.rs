//! The end of a linear layer: bias, gate, residual, store.

use super::super::convert::move_all;
use super::super::float::with_elem;
use super::super::math::silu;
use super::super::simd::Simd;
use super::super::{Floats, SharedMut};
use super::{Linear, Residual};

/// Most outputs of one task.
pub(super) const MAX_CHUNK: usize = 96;

/// The biases of a task's outputs, widened; zeros where there is none.
pub(super) struct Biases {
    main: [f32; MAX_CHUNK],
    gate: [f32; MAX_CHUNK],
}

impl Biases {
    /// For the outputs `n0 .. n0 + count` of `layer`, `count <= MAX_CHUNK`.
    #[inline(always)]
    pub(super) fn of<S: Simd>(s: S, layer: &Linear<'_>, n0: usize, count: usize) -> Self {
        let mut biases = Self { main: [0.0; MAX_CHUNK], gate: [0.0; MAX_CHUNK] };
        widen(s, layer.bias, n0, &mut biases.main[..count]);
        widen(s, layer.gate.and_then(|g| g.bias), n0, &mut biases.gate[..count]);
        biases
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

/// Writes row `row`, outputs `n0 .. n0 + count`, from the products `main` and (if the layer has a gate) `gate`.
///
/// # Safety
/// `count <= MAX_CHUNK` numbers are readable at `main` and `gate`; the outputs exist and this thread alone uses them.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn finish<S: Simd>(
    s: S,
    layer: &Linear<'_>,
    biases: &Biases,
    row: usize,
    n0: usize,
    count: usize,
    main: *const f32,
    gate: *const f32,
) {
    let at = row * layer.weights.rows() + n0;
    let out: SharedMut<'_, f32> = layer.out;
    // SAFETY: `at .. at + count` lies inside `out` and a residual of its size.
    let (out, residual) = unsafe {
        let out = out.ptr().add(at);
        let residual = match layer.residual {
            Residual::None => None,
            Residual::Out => Some(out.cast_const()),
            Residual::Rows(rows) => Some(rows.as_ptr().add(at)),
        };
        (out, residual)
    };
    let gated = layer.gate.is_some();
    let whole = count - count % S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= count`, for which all operands are readable and `out` writable.
        unsafe {
            let mut v = s.add(s.load(main.add(i)), s.load(biases.main.as_ptr().add(i)));
            if gated {
                v = s.mul(v, silu(s, s.add(s.load(gate.add(i)), s.load(biases.gate.as_ptr().add(i)))));
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
            let first = |p: *const f32| s.load_first(p.add(whole), rest);
            let mut v = s.add(first(main), first(biases.main.as_ptr()));
            if gated {
                v = s.mul(v, silu(s, s.add(first(gate), first(biases.gate.as_ptr()))));
            }
            if let Some(residual) = residual {
                v = s.add(v, first(residual));
            }
            s.store_first(out.add(whole), v, rest);
        }
    }
}

//! Linear layers: `Y[m, n] = X[m, k] W[n, k]^T`, and what is fused with them (bias, SwiGLU gate, residual).
//!
//! Float weights are read as the graph stores them, a row for each output, in any [`super::Float`] type; so are signed bytes
//! with a scale for each row. Packed ones of 2 to 8 bits are laid out as in [`super::packed`], and only they have `X`
//! quantised. Sums are f32. A call takes several layers that read the same `X`, so that small ones
//! (query, key, value) share one pass over the threads.
//!
//! *The bits of a row do not depend on the rows beside it*: each output is summed up in one order, whatever the number of rows,
//! so that a token has the same logits alone, in a draft, and as one of many (`same_bits` tests it for each type of weights).
//! Only a matrix unit has another arithmetic, for steps of 64 rows or more: long prompts.
//!
//! Ways of the packed ones, by the number of rows of `X` (`quantised`): straight from memory for few, opened in the first-level
//! cache for many, with products of bytes on tiles where there is AMX (the same bits). Others are read as they
//! lie (`dot`), in larger blocks for many rows, which units with sixteen registers multiply part by part (`many_rows`). Both give way to `wide` where there is a matrix
//! unit and rows enough for it: AMX, or SME where `GENIE_SME=1` asks for it. Where there is neither but AVX-512 with bf16, `wide`
//! computes weights of 16 bits and rows of bytes.

mod dot;
mod finish;
mod job;
mod many_rows;
mod quantised;
#[cfg(test)]
mod same_bits;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod wide;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "no_matrix_unit.rs"]
mod wide;

pub(super) use self::job::MATRIX_ROWS;
pub use self::job::{Form, Gate, Linear, MAX_NORM_WIDTH, Residual, RmsNorm};
use self::job::{Job, OnTiles};
use super::{Floats, Isa, Mat, SharedMut};
use crate::pool::{Pool, Worker};

/// f32 numbers of scratch that [`linear`] needs for `m` rows of `k` numbers with `threads` threads.
pub fn scratch_len(isa: Isa, m: usize, k: usize, threads: usize) -> usize {
    let narrow = quantised::scratch_len(m, k, threads).max(dot::scratch_len(m, threads));
    if wide::takes(isa, m) != OnTiles::Nothing { narrow.max(wide::scratch_len(m, k, threads)) } else { narrow }
}

/// Whether a matrix unit computes layers in a step of `m` rows: of weights in blocks, or of rows of 16-bit floats or bytes.
pub fn on_matrix_unit(isa: Isa, m: usize, blocks: bool) -> bool {
    match wide::takes(isa, m) {
        OnTiles::Nothing => false,
        OnTiles::Rows => !blocks,
        OnTiles::All => true,
    }
}

/// Whether `m` rows of `n` numbers may lie [in tiles](Form::Tiles) for a layer that a matrix unit computes: whole ones along `n`.
pub fn fits_tiles(isa: Isa, m: usize, n: usize) -> bool {
    wide::takes(isa, m) != OnTiles::Nothing && wide::are_whole_tiles(n)
}

/// Writes the normalised rows to `out` [in tiles](Form::Tiles), the numbers that [`super::rms_norm`] gives, rounded.
///
/// # Safety
/// A team kernel: every thread of `worker`'s run calls it with the same arguments; between this call and any other use of `out` lies a barrier.
///
/// # Panics
/// When an operand does not fit, or [`fits_tiles`] does not take the rows.
pub unsafe fn rms_norm_to_tiles(worker: Worker<'_>, isa: Isa, norm: &RmsNorm<'_>, out: SharedMut<'_, f32>) {
    let RmsNorm { x, width, gamma, beta, .. } = *norm;
    assert!(width <= MAX_NORM_WIDTH && x.len().is_multiple_of(width.max(1)), "{} numbers, rows of {width}", x.len());
    assert!(fits_tiles(isa, x.len() / width.max(1), width), "rows that no matrix unit takes in tiles");
    assert!(gamma.len() == width && beta.is_none_or(|beta| beta.len() == width), "gamma and beta are as long as a row");
    // SAFETY: checked; the caller's promise.
    unsafe { wide::rms_norm(isa, worker, norm, out) };
}

/// Computes all `layers` of `x` (`[m, k]`), which lies in memory as `x_form` says.
///
/// # Safety
/// A team kernel: every thread of `worker`'s run calls it with the same arguments; between this call and any other use
/// of the `out`s and of `scratch`, and any other use of [`Worker::take`], lies a barrier. `out`s do not overlap each
/// other, `x`, `scratch` or a `Residual::Rows`.
///
/// # Panics
/// When an operand does not fit the shapes, or `scratch` is shorter than [`scratch_len`].
pub unsafe fn linear(
    worker: Worker<'_>,
    isa: Isa,
    x: &[f32],
    x_form: Form,
    m: usize,
    layers: &[Linear<'_>],
    scratch: SharedMut<'_, f32>,
) {
    let Some(first) = layers.first() else { return };
    let k = first.weights.cols();
    assert_eq!(x.len(), m * k, "the operand is {m} rows of {k}");
    for layer in layers {
        check(layer, m, k);
    }
    assert!(scratch.len() >= scratch_len(isa, m, k, worker.count()), "{} numbers of scratch", scratch.len());
    let job = Job { x, x_form, m, k, layers, scratch, wide: wide::takes(isa, m) };
    let on_tiles = |layer: &Linear<'_>| layer.on_tiles(job.wide);
    for layer in layers {
        let tiles = |form: Form, columns: usize| form == Form::Rows || on_tiles(layer) && fits_tiles(isa, m, columns);
        assert!(
            tiles(x_form, k) && tiles(layer.out_form, layer.weights.rows()),
            "rows that no matrix unit takes in tiles"
        );
        assert!(
            layer.out_form == Form::Rows || !matches!(layer.residual, Residual::Out),
            "tiles hold nothing to be added to"
        );
    }
    let any = |which: &dyn Fn(&Linear<'_>) -> bool| layers.iter().any(which);
    // Packed with scales for each 16, or with others.
    let packed = |layer: &Linear<'_>, by_halves: bool| {
        !on_tiles(layer) && layer.weights.packed().is_some_and(|w| w.packing().by_halves() == by_halves)
    };
    // Between two ways lies a barrier.
    let mut ran = false;
    let mut next = || {
        if std::mem::replace(&mut ran, true) {
            worker.barrier();
        }
    };
    // SAFETY: operands fit the shapes as checked; the caller's promise is the one that the paths ask for.
    unsafe {
        if any(&on_tiles) {
            next();
            wide::run(isa, worker, &job);
        }
        for by_halves in [false, true] {
            if any(&|layer| packed(layer, by_halves)) {
                next();
                quantised::run(isa, worker, &job, by_halves);
            }
        }
        if any(&|layer| !on_tiles(layer) && layer.weights.packed().is_none()) {
            next();
            dot::run(isa, worker, &job);
        }
    }
}

fn check(layer: &Linear<'_>, m: usize, k: usize) {
    let n = layer.weights.rows();
    let fits = |w: &Mat<'_>, b: &Option<Floats<'_>>| {
        assert!(k > 0 || w.packed().is_none(), "packed weights have columns");
        assert_eq!((w.rows(), w.cols()), (n, k), "weights of a call share their columns, a gate also its rows");
        assert!(b.is_none_or(|b| b.len() == n), "a bias has a number for each output");
    };
    fits(&layer.weights, &layer.bias);
    if let Some(gate) = &layer.gate {
        fits(&gate.weights, &gate.bias);
        let by_halves = |w: &Mat<'_>| w.packed().map(|w| w.packing().by_halves());
        assert_eq!(
            by_halves(&gate.weights),
            by_halves(&layer.weights),
            "a gate is packed as its layer is, with scales for each 16 or others"
        );
    }
    assert_eq!(layer.out.len(), m * n, "the result is {m} rows of {n}");
    if let Residual::Rows(rows) = layer.residual {
        assert_eq!(rows.len(), m * n, "the residual is {m} rows of {n}");
    }
}

/// One layer on a pool of its own run: for tests and benches. `scratch` grows as needed.
pub fn linear_on<'a>(
    pool: &Pool,
    isa: Isa,
    x: &[f32],
    m: usize,
    layer: impl FnOnce(SharedMut<'a, f32>) -> Linear<'a>,
    out: &'a mut [f32],
    scratch: &mut Vec<f32>,
) {
    let layer = layer(SharedMut::new(out));
    let need = scratch_len(isa, m, layer.weights.cols(), pool.threads());
    if scratch.len() < need {
        scratch.resize(need, 0.0);
    }
    let scratch = SharedMut::new(scratch);
    let layers = [layer];
    pool.run(&|worker| {
        // SAFETY: all threads of this run make this one call; `out` and `scratch` are borrowed mutably by this function, so
        // nothing else reaches them, and the run ends before they are used again.
        unsafe { linear(worker, isa, x, Form::Rows, m, &layers, scratch) }
    });
}

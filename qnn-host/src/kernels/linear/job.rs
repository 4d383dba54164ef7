//! The operands of a call: its layers, and the call as the paths see it.

use super::super::rows::RowElem;
use super::super::{Float, Floats, Mat, SharedMut};

/// Fewest rows of a step that a matrix unit computes in bf16: decoding, drafts and batches stay below unless a piece of a prompt is beside them.
/// Products of bytes on tiles, which are exact, begin earlier.
pub(in super::super) const MATRIX_ROWS: usize = 64;

/// How the rows of an operand lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// f32, a row after the other.
    #[default]
    Rows,
    /// Rounded to bf16, in the order in which a matrix unit loads them: what it would make of rows itself. Of as many rows and columns
    /// as [`super::fits_tiles`] says.
    Tiles,
}

/// One linear layer of a call. `out` is `[m, n]`.
///
/// `out = x w^T + bias`, times `silu(x gate^T + gate_bias)` if there is a gate, plus the residual.
#[derive(Clone, Copy)]
pub struct Linear<'a> {
    /// `[n, k]`.
    pub weights: Mat<'a>,
    /// `[n]`.
    pub bias: Option<Floats<'a>>,
    /// Gate of a SwiGLU layer.
    pub gate: Option<Gate<'a>>,
    /// Added at the end.
    pub residual: Residual<'a>,
    /// `[m, n]`.
    pub out: SharedMut<'a, f32>,
    /// How `out` lies in memory; tiles take less than `m * n` numbers of it.
    pub out_form: Form,
}

/// The gate of a SwiGLU layer.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    /// `[n, k]`, floats or packed as the layer's.
    pub weights: Mat<'a>,
    /// `[n]`.
    pub bias: Option<Floats<'a>>,
}

/// What is added to a layer's result.
#[derive(Clone, Copy)]
pub enum Residual<'a> {
    /// Nothing.
    None,
    /// What `out` held before.
    Out,
    /// Another `[m, n]`.
    Rows(&'a [f32]),
}

impl<'a> Linear<'a> {
    /// A layer without bias, gate or residual.
    pub fn new(weights: impl Into<Mat<'a>>, out: SharedMut<'a, f32>) -> Self {
        Self { weights: weights.into(), bias: None, gate: None, residual: Residual::None, out, out_form: Form::Rows }
    }
}

impl Linear<'_> {
    /// Where output `n0` of row `row` is, of a result in rows.
    #[inline(always)]
    pub(super) fn out_at(&self, row: usize, n0: usize) -> *mut f32 {
        self.out.ptr().wrapping_add(row * self.weights.rows() + n0)
    }

    /// Whether a matrix unit that takes `units_part` computes it: not with weights of f32, which would lose digits.
    pub(super) fn on_tiles(&self, units_part: OnTiles) -> bool {
        let fits = |weights: Mat<'_>| match weights.as_rows() {
            Some(rows) => units_part != OnTiles::Nothing && rows.elem != RowElem::Float(Float::F32),
            None => units_part == OnTiles::All,
        };
        fits(self.weights) && self.gate.is_none_or(|gate| fits(gate.weights))
    }
}

/// What a matrix unit computes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnTiles {
    /// There is none, or the step has too few rows.
    Nothing,
    /// Weights that are rows of 16-bit floats, or of bytes.
    Rows,
    /// Weights in blocks, too.
    All,
}

/// The operands of [`super::rms_norm_to_tiles`].
#[derive(Clone, Copy)]
pub struct RmsNorm<'a> {
    /// `[rows, width]`.
    pub x: &'a [f32],
    /// Length of a row.
    pub width: usize,
    /// `[width]`.
    pub gamma: Floats<'a>,
    /// `[width]`, added at the end.
    pub beta: Option<Floats<'a>>,
    /// Added to the mean of squares.
    pub epsilon: f32,
}

/// Longest row that [`super::rms_norm_to_tiles`] takes.
pub const MAX_NORM_WIDTH: usize = 8192;

/// A checked call, passed to the paths.
pub(super) struct Job<'a> {
    pub(super) x: &'a [f32],
    pub(super) x_form: Form,
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) layers: &'a [Linear<'a>],
    pub(super) scratch: SharedMut<'a, f32>,
    /// What the matrix unit computes.
    pub(super) wide: OnTiles,
}

//! One execution of one graph, and the list of them that serves a turn.

use crate::group::CacheGroup;
use crate::mode::CacheMode;
use core::fmt;
use genie_types::Variant;
use ufmt::{uDebug, uDisplay, uWrite, uwrite};

/// A column of the attention mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaskCol(pub usize);

/// One execution of the graphs of one shape. *Units*: tokens, but for the mask columns.
///
/// Printed as Genie logs it, without allocation through `ufmt` or through `Display`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferenceStep {
    /// The shape to run.
    pub spec: Variant,
    /// Position of the step's first token.
    pub n_past: usize,
    /// Rows in the cache as the step starts.
    pub n_valid_kv: usize,
    /// Real tokens in the step; the rest of `variant` is padding.
    pub n_process: usize,
    /// First mask column of the valid past: `[past_idx, past_idx + n_valid_kv)` attend.
    pub past_idx: MaskCol,
    /// First mask column of the new tokens: row `i` attends `[new_idx, new_idx + i]`.
    pub new_idx: MaskCol,
}

impl InferenceStep {
    /// AR of the graph: tokens with padding.
    pub const fn ar(&self) -> usize {
        self.spec.ar().get()
    }

    /// CL of the graph.
    pub const fn cl(&self) -> usize {
        self.spec.cl().get()
    }

    /// The same step with `Step i: ` before it, as in Genie's log.
    pub const fn numbered(&self, index: usize) -> Numbered<'_> {
        Numbered { index, step: self }
    }
}

impl uDisplay for InferenceStep {
    fn fmt<W: uWrite + ?Sized>(&self, f: &mut ufmt::Formatter<'_, W>) -> Result<(), W::Error> {
        uwrite!(
            f,
            "AR-{} CL-{} n_past={} n_kv={} n_process={} @ past_idx={} new_idx={}",
            self.ar(),
            self.cl(),
            self.n_past,
            self.n_valid_kv,
            self.n_process,
            self.past_idx.0,
            self.new_idx.0
        )
    }
}

impl uDebug for InferenceStep {
    fn fmt<W: uWrite + ?Sized>(&self, f: &mut ufmt::Formatter<'_, W>) -> Result<(), W::Error> {
        uDisplay::fmt(self, f)
    }
}

impl fmt::Display for InferenceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uwrite!(Bridge(f), "{}", self)
    }
}

/// A step with its number.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'a> {
    index: usize,
    step: &'a InferenceStep,
}

impl uDisplay for Numbered<'_> {
    fn fmt<W: uWrite + ?Sized>(&self, f: &mut ufmt::Formatter<'_, W>) -> Result<(), W::Error> {
        uwrite!(f, "Step {}: {}", self.index, self.step)
    }
}

impl fmt::Display for Numbered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uwrite!(Bridge(f), "{}", self)
    }
}

/// Lets `core::fmt` print what is written for `ufmt`.
struct Bridge<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl uWrite for Bridge<'_, '_> {
    type Error = fmt::Error;

    fn write_str(&mut self, s: &str) -> Result<(), fmt::Error> {
        self.0.write_str(s)
    }
}

/// The steps that serve one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    steps: Vec<InferenceStep>,
    first: usize,
}

impl Plan {
    pub(super) fn new(steps: Vec<InferenceStep>, first: usize) -> Self {
        Self { steps, first }
    }

    /// The list, emptied, so that the next plan need not allocate one.
    pub(super) fn take_steps(&mut self) -> Vec<InferenceStep> {
        self.steps.clear();
        std::mem::take(&mut self.steps)
    }

    /// The naive reference: all `end` tokens of the dialog in one step without past.
    pub(super) fn reprocess(mut steps: Vec<InferenceStep>, spec: Variant, end: usize) -> Self {
        steps.push(InferenceStep {
            spec,
            n_past: 0,
            n_valid_kv: 0,
            n_process: end,
            past_idx: MaskCol(0),
            new_idx: MaskCol(spec.past_capacity()),
        });
        Self { steps, first: 0 }
    }

    /// Gives the steps the mask columns of a mode that keeps its past elsewhere than at the left.
    pub(crate) fn set_mode(&mut self, mode: &dyn CacheMode, group: &CacheGroup) {
        for step in &mut self.steps {
            step.past_idx = MaskCol(mode.past_idx(group.past_len(step.spec), step.n_valid_kv));
        }
    }

    /// The steps in order.
    pub fn steps(&self) -> &[InferenceStep] {
        &self.steps
    }

    /// Position of the first token the steps take: `n_past`, or 0 when the history has to be fed again
    /// (AR == CL), in which case the caller passes all tokens of the dialog and not only the new ones.
    pub const fn first(&self) -> usize {
        self.first
    }

    /// Tokens the steps take together.
    pub fn n_tokens(&self) -> usize {
        self.steps.iter().map(|s| s.n_process).sum()
    }
}

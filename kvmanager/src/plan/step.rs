//! One execution of the graphs of one variant, and the list of them that takes a set of tokens.

use super::columns::Columns;
use crate::group::CacheGroup;
use crate::mode::CacheMode;
use core::fmt;
use genie_types::Variant;
use ufmt::{uDebug, uDisplay, uWrite, uwrite};

/// A column of the attention mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaskCol(pub usize);

/// One planned execution of all splits. *Units*: tokens; the mask columns are columns of the default group's mask.
///
/// A planner makes these, or [`KvCache::step`](crate::KvCache::step) for columns of the caller's choice. Prints as Genie
/// logs it, without allocation through `ufmt` or through `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferenceStep {
    /// The variant to run.
    pub variant: Variant,
    /// The real tokens, at most AR of them; the rest of AR is padding.
    pub columns: Columns,
    /// Rows in the cache as the step starts.
    pub n_valid_kv: usize,
    /// First mask column of the valid past: `[past_idx, past_idx + n_valid_kv)` attend.
    pub past_idx: MaskCol,
    /// First mask column of the new tokens. Of contiguous columns, row `i` attends `[new_idx, new_idx + i]`.
    pub new_idx: MaskCol,
}

impl InferenceStep {
    /// AR of the graph: tokens with padding.
    pub const fn ar(&self) -> usize {
        self.variant.ar().get()
    }

    /// CL of the graph.
    pub const fn cl(&self) -> usize {
        self.variant.cl().get()
    }

    /// Position of the first column; 0 without columns.
    pub fn n_past(&self) -> usize {
        self.columns.first().map_or(0, |column| column.pos)
    }

    /// Real tokens in the step.
    pub const fn n_process(&self) -> usize {
        self.columns.len()
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
            self.n_past(),
            self.n_valid_kv,
            self.n_process(),
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

/// Lets `core::fmt` print what is written for `ufmt`: one formatting path for both.
pub struct FmtWriter<'a, 'b>(pub &'a mut fmt::Formatter<'b>);

impl uWrite for FmtWriter<'_, '_> {
    type Error = fmt::Error;

    fn write_str(&mut self, s: &str) -> Result<(), fmt::Error> {
        self.0.write_str(s)
    }
}

macro_rules! display_through_ufmt {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                uwrite!(FmtWriter(f), "{}", self)
            }
        }
    )*};
}

display_through_ufmt!(InferenceStep, Numbered<'_>, Plan);

/// The steps that take a set of tokens. Prints a numbered line for each, without allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    steps: Vec<InferenceStep>,
    reprocess: bool,
}

impl Plan {
    pub(super) fn new(steps: Vec<InferenceStep>) -> Self {
        Self { steps, reprocess: false }
    }

    /// The list, emptied, so that the next plan need not allocate one.
    pub(super) fn take_steps(&mut self) -> Vec<InferenceStep> {
        self.steps.clear();
        std::mem::take(&mut self.steps)
    }

    /// The steps themselves, to go on with.
    pub(super) fn into_steps(self) -> Vec<InferenceStep> {
        self.steps
    }

    /// All tokens of some sequences in one step without past.
    pub(super) fn without_past(mut steps: Vec<InferenceStep>, variant: Variant, columns: Columns, again: bool) -> Self {
        let new_idx = MaskCol(variant.past_capacity());
        steps.push(InferenceStep { variant, columns, n_valid_kv: 0, past_idx: MaskCol(0), new_idx });
        Self { steps, reprocess: again }
    }

    /// Gives the steps the mask columns of a mode that keeps its past elsewhere than at the left.
    pub(crate) fn set_mode(&mut self, mode: &dyn CacheMode, group: &CacheGroup) {
        for step in &mut self.steps {
            step.past_idx = MaskCol(mode.past_idx(group.past_len(step.variant), step.n_valid_kv));
        }
    }

    /// The steps in order.
    pub fn steps(&self) -> &[InferenceStep] {
        &self.steps
    }

    /// Whether the steps take a sequence from its beginning although some of it was processed before, since only a graph
    /// without past (AR == CL) can take it. The caller then passes all tokens of the sequence and not only the new ones.
    pub const fn is_reprocess(&self) -> bool {
        self.reprocess
    }

    /// Tokens the steps take together.
    pub fn n_tokens(&self) -> usize {
        self.steps.iter().map(InferenceStep::n_process).sum()
    }
}

impl uDisplay for Plan {
    fn fmt<W: uWrite + ?Sized>(&self, f: &mut ufmt::Formatter<'_, W>) -> Result<(), W::Error> {
        self.steps.iter().enumerate().try_for_each(|(i, step)| uwrite!(f, "{}\n", step.numbered(i)))
    }
}

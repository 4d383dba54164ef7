//! Hidden states that go from one model to another: a model that is drafted for gives a row for each of its tokens, and the
//! one that drafts takes, beside each token, the row of the token before it.
//!
//! *Shapes*: `last_hidden_states` out and `target_hidden_states` in, `[1, AR, width]`. *Units*: float32 here, converted to and
//! from the graphs' types. *Invariant*: the rows that are kept are those of consecutive positions of their sequence.

use std::collections::BTreeMap;

use kvmanager::{InferenceStep, LogitsRequest, SeqId};
use nsp_graph::{ModelLayout, OutputRole, names};

use crate::graphs::Graphs;
use crate::io::IoBuffers;
use crate::model::SequenceModel;
use crate::quant::{QuantParams, Rounding};
use crate::run::SeqTokens;
use crate::{Engine, EngineError, Executor};

/// Widths of the rows of hidden states that a model gives and takes; `None` for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureWidths {
    /// Numbers of a row of `last_hidden_states`.
    pub given: Option<usize>,
    /// Numbers of a row of `target_hidden_states`.
    pub taken: Option<usize>,
}

/// Sees the logits and the hidden states of an input's last token, by the input's place.
pub type OnFeatures<'a> = &'a mut dyn FnMut(usize, &[f32], &[f32]);

/// A model that gives hidden states, takes those of another one, or both.
pub trait FeatureModel: SequenceModel {
    /// Keeps the hidden states of all tokens from now on, or no longer.
    ///
    /// # Errors
    ///
    /// [`EngineError::Unsupported`]: the graphs give none.
    fn keep_features(&mut self, keep: bool) -> Result<(), EngineError>;

    /// The hidden states at a position of a sequence, if they were kept. Going back forgets what lies behind.
    fn feature_of(&self, seq: SeqId, position: usize) -> Option<&[f32]>;

    /// [`feature_of`](Self::feature_of) sequence 0, the dialog's.
    fn feature(&self, position: usize) -> Option<&[f32]> {
        self.feature_of(SeqId(0), position)
    }

    /// Forgets the rows kept so far.
    fn forget_features(&mut self);

    /// Forgets the rows of a sequence that lie before a position.
    fn forget_features_before(&mut self, seq: SeqId, position: usize);

    /// As [`process_batch`](SequenceModel::process_batch), with a row of another model's hidden states for each token, all inputs
    /// one after the other.
    ///
    /// # Errors
    ///
    /// [`EngineError::FeatureRows`] for another number of values; as `process_batch`.
    fn process_features(
        &mut self,
        inputs: &[SeqTokens<'_>],
        features: &[f32],
        each: OnFeatures<'_>,
    ) -> Result<(), EngineError>;
}

/// Rows of consecutive positions.
#[derive(Debug, Default)]
struct Kept {
    first: usize,
    rows: Vec<f32>,
}

impl Kept {
    /// Room for the row of a position, at the end: what lies behind it is forgotten, and all where it does not go on.
    fn make_room(&mut self, position: usize, width: usize) {
        let n_known = self.rows.len().checked_div(width).unwrap_or(0);
        if position < self.first || position > self.first + n_known {
            *self = Self { first: position, rows: Vec::new() };
        }
        self.rows.truncate((position - self.first) * width);
    }
}

/// Where a variant's rows are.
#[derive(Clone, Copy, Debug)]
struct Source {
    buffer: usize,
    encoding: QuantParams,
}

/// The hidden states of a model's tokens, in and out.
#[derive(Debug)]
pub(crate) struct Features {
    widths: FeatureWidths,
    /// By variant.
    sources: Vec<Source>,
    /// Rows are kept.
    keeps: bool,
    /// By sequence.
    kept: BTreeMap<u8, Kept>,
    /// Rows for the new tokens of the call that runs.
    pub(crate) given: Vec<f32>,
    /// Rows of the tokens of that call whose logits were wanted, in their order.
    last: Vec<f32>,
    /// `last` is written.
    wanted: bool,
}

impl Features {
    /// Finds the tensors.
    pub(crate) fn new(layout: &ModelLayout, io: &IoBuffers) -> Result<Self, EngineError> {
        let mut sources = Vec::new();
        if layout.features_out.is_some() {
            for variant in 0..layout.variants.len() {
                sources.push(source(layout, io, variant)?);
            }
        }
        let widths = FeatureWidths { given: layout.features_out, taken: layout.features_in };
        let (given, last) = (Vec::new(), Vec::new());
        Ok(Self { widths, sources, keeps: false, kept: BTreeMap::new(), given, last, wanted: false })
    }

    pub(crate) const fn widths(&self) -> FeatureWidths {
        self.widths
    }

    /// Numbers of a row that goes in; 0 for graphs that take none.
    pub(crate) fn width_in(&self) -> usize {
        self.widths.taken.unwrap_or(0)
    }

    /// Takes the row of a column of the step that ran.
    fn read(&self, io: &IoBuffers, variant: usize, column: usize, to: &mut Vec<f32>) {
        let (Some(width), Some(source)) = (self.widths.given, self.sources.get(variant)) else { return };
        let row_bytes = width * source.encoding.size_bytes();
        let bytes = &io.buffers[source.buffer].bytes()[column * row_bytes..(column + 1) * row_bytes];
        let begin = to.len();
        to.resize(begin + width, 0.0);
        source.encoding.decode(bytes, &mut to[begin..]);
    }

    /// Rows from that position on are no longer those of the sequence.
    pub(crate) fn truncate(&mut self, seq: SeqId, position: usize) {
        let width = self.widths.given.unwrap_or(0);
        if let Some(kept) = self.kept.get_mut(&seq.0) {
            kept.rows.truncate(position.saturating_sub(kept.first) * width);
        }
    }

    /// Forgets the rows of all sequences but one, which is the dialog's from now on.
    pub(crate) fn keep(&mut self, seq: SeqId) {
        let kept = self.kept.remove(&seq.0).filter(|_| seq == SeqId(0));
        self.kept = kept.map(|kept| (0, kept)).into_iter().collect();
    }

    /// Forgets the rows of all sequences.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

/// Where a variant's hidden states come out.
fn source(layout: &ModelLayout, io: &IoBuffers, variant: usize) -> Result<Source, EngineError> {
    for (s, split) in layout.splits.iter().enumerate().rev() {
        let g = split.by_variant[variant];
        let graph = &split.graphs[g];
        let outputs = graph.outputs.iter().zip(&graph.info.outputs).enumerate();
        let named = outputs.filter(|(_, (role, info))| {
            matches!(role, OutputRole::Features | OutputRole::Wire(_)) && info.name == names::LAST_HIDDEN_STATES
        });
        for (tensor, (_, info)) in named {
            let encoding = QuantParams::of(info.dtype, &info.quant).ok_or_else(|| EngineError::NoConversion {
                graph: graph.info.name.clone(),
                tensor: info.name.clone(),
                from: "numbers".into(),
                to: info.dtype,
            })?;
            if let Some(buffer) = io.output(s, g, tensor) {
                return Ok(Source { buffer, encoding });
            }
        }
    }
    unreachable!("the layout says that every variant gives hidden states")
}

/// How rows are written into an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeatureWriter {
    width: usize,
    to: QuantParams,
}

impl FeatureWriter {
    pub(crate) const fn new(width: usize, to: QuantParams) -> Self {
        Self { width, to }
    }

    pub(crate) const fn row_bytes(self) -> usize {
        self.width * self.to.dtype.size_bytes()
    }

    /// Fills `ar` rows: those of the tokens, then zeros.
    pub(crate) fn fill(
        self,
        bytes: &mut [u8],
        features: &[f32],
        n_tokens: usize,
        ar: usize,
    ) -> Result<(), EngineError> {
        let (expected, found) = (n_tokens * self.width, features.len());
        if found != expected {
            return Err(EngineError::FeatureRows { expected, found });
        }
        let zeros = std::iter::repeat_n(0.0, (ar - n_tokens) * self.width);
        let numbers = features.iter().map(|&x| f64::from(x)).chain(zeros);
        let n_bytes = ar * self.row_bytes();
        self.to.encode(numbers, Rounding::Nearest, &mut bytes[..n_bytes]);
        Ok(())
    }
}

impl<X: Executor> Graphs<X> {
    /// Takes the rows that a step gives for its tokens.
    pub(crate) fn keep_features(&mut self, planned: &InferenceStep, keep: impl Fn(usize) -> bool) {
        if !self.features.keeps {
            return;
        }
        let Some(variant) = self.layout.variant_index(planned.variant) else { return };
        let mut kept = std::mem::take(&mut self.features.kept);
        let width = self.features.widths.given.unwrap_or(0);
        for (column, at) in planned.columns.iter().enumerate().filter(|(column, _)| keep(*column)) {
            let kept = kept.entry(at.seq.0).or_default();
            kept.make_room(at.pos, width);
            self.features.read(&self.io, variant, column, &mut kept.rows);
        }
        self.features.kept = kept;
    }

    /// Takes the row of a column whose logits are wanted.
    pub(crate) fn note_feature(&mut self, planned: &InferenceStep, column: usize) {
        if !self.features.wanted {
            return;
        }
        let Some(variant) = self.layout.variant_index(planned.variant) else { return };
        let mut last = std::mem::take(&mut self.features.last);
        self.features.read(&self.io, variant, column, &mut last);
        self.features.last = last;
    }
}

impl<X: Executor> FeatureModel for Engine<X> {
    fn keep_features(&mut self, keep: bool) -> Result<(), EngineError> {
        let features = &mut self.graphs.features;
        if keep && features.widths.given.is_none() {
            let what =
                format!("drafting from hidden states on graphs without an output `{}`", names::LAST_HIDDEN_STATES);
            return Err(EngineError::Unsupported {
                what,
                hint: "; an `eaglet` dialog needs a target that was made with it",
            });
        }
        if !keep {
            features.clear();
        }
        features.keeps = keep;
        Ok(())
    }

    fn feature_of(&self, seq: SeqId, position: usize) -> Option<&[f32]> {
        let Features { widths, kept, .. } = &self.graphs.features;
        let kept = kept.get(&seq.0)?;
        kept.rows.chunks_exact(widths.given?).nth(position.checked_sub(kept.first)?)
    }

    fn forget_features(&mut self) {
        self.graphs.features.clear();
    }

    fn forget_features_before(&mut self, seq: SeqId, position: usize) {
        let Features { widths, kept, .. } = &mut self.graphs.features;
        let (Some(width), Some(kept)) = (widths.given, kept.get_mut(&seq.0)) else { return };
        let n = position.saturating_sub(kept.first).min(kept.rows.len() / width.max(1));
        kept.rows.drain(..n * width);
        kept.first += n;
    }

    fn process_features(
        &mut self,
        inputs: &[SeqTokens<'_>],
        features: &[f32],
        each: OnFeatures<'_>,
    ) -> Result<(), EngineError> {
        let n_tokens: usize = inputs.iter().map(|input| input.tokens.len()).sum();
        let expected = n_tokens * self.graphs.features.width_in();
        if features.len() != expected || expected == 0 {
            return Err(EngineError::FeatureRows { expected, found: features.len() });
        }
        let state = &mut self.graphs.features;
        state.given.clear();
        state.given.extend_from_slice(features);
        state.last.clear();
        state.wanted = state.widths.given.is_some();
        let mut rows: Vec<(usize, Vec<f32>)> = Vec::with_capacity(inputs.len());
        let done =
            self.run(inputs, LogitsRequest::Last.into(), &mut |input, _, logits| rows.push((input, logits.to_vec())));
        let state = &mut self.graphs.features;
        (state.wanted, state.given) = (false, Vec::new());
        done?;
        let width = state.widths.given.unwrap_or(0);
        for (i, (input, logits)) in rows.iter().enumerate() {
            each(*input, logits, &state.last[i * width..(i + 1) * width]);
        }
        Ok(())
    }
}

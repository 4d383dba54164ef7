//! The seam between tokens and everything below: what a dialog needs of a model, and what batching and speculation need.

use std::ops::Range;

use genie_types::TokenId;
use kvmanager::{Admission, SeqId};
use session_store::{CacheSchema, Snapshot};

use crate::cell_runs::GroupCells;
use crate::{
    ChoosePath, ChoosePaths, EngineError, FeatureModel, FeatureWidths, Grid, LoraModel, SeqRows, SeqTokens, SeqTree,
    StepLog, StopFlag, Transcript, TreeRow,
};

/// A model with a cache: tokens in, logits out. [`Engine`](crate::Engine) is one; tests of the layers above have theirs.
///
/// *Units*: tokens; logits are f32, one for each vocabulary entry. A call that fails leaves `n_past` as it was, unless its
/// error says otherwise.
pub trait TokenModel: Send {
    /// Entries of the vocabulary, by the logits of the graphs.
    fn vocab_size(&self) -> usize;

    /// Most tokens of one step with a row of logits for each; `None` if the model does not know.
    fn widest_step(&self) -> Option<usize> {
        None
    }

    /// Most tokens a dialog may hold.
    fn context_size(&self) -> usize;

    /// Tokens processed so far.
    fn n_past(&self) -> usize;

    /// The tokens processed so far and which of them were generated: the only list of them there is.
    fn transcript(&self) -> &Transcript;

    /// Marks a token of the transcript as generated rather than given.
    fn mark_generated(&mut self, index: usize);

    /// Numbers of a row of embeddings; `None` for a model that takes ids.
    fn embedding_width(&self) -> Option<usize> {
        None
    }

    /// Takes rows of embeddings, one after the other, and gives each a token id of its own beyond the vocabulary: put these ids
    /// where an image's (or any other) rows belong, and process them as tokens. Rows are kept until
    /// [`forget_embeddings`](Self::forget_embeddings); a saved dialog keeps what its cache has of them, not the rows.
    ///
    /// # Errors
    ///
    /// [`EngineError::EmbeddingRows`] for rows that are not whole or not finite; [`EngineError::Unsupported`] for a model that
    /// takes ids.
    fn add_embeddings(&mut self, _rows: &[f32]) -> Result<Range<u32>, EngineError> {
        Err(no_embeddings())
    }

    /// The numbers of rows that are in the type of the graphs' own input.
    ///
    /// # Errors
    ///
    /// As [`add_embeddings`](Self::add_embeddings).
    fn decode_embeddings(&self, _bytes: &[u8]) -> Result<Vec<f32>, EngineError> {
        Err(no_embeddings())
    }

    /// Forgets the rows of [`add_embeddings`](Self::add_embeddings). What is in the cache stays; it can no longer be processed
    /// again from its tokens.
    fn forget_embeddings(&mut self) {}

    /// Says that the tokens from place `first` on (from 0, not yet processed) are an image's or a video's: each has a position by
    /// frame, row and column, and the text behind goes on at the longest extent. Going back before the image forgets it.
    ///
    /// # Errors
    ///
    /// [`EngineError::Grid`] for an empty one or a place that is taken; [`EngineError::Unsupported`] for a model whose tokens
    /// have one position. With placed images, saving, moving tokens and sharing them with other sequences are refused.
    fn place_grid(&mut self, _first: usize, _grid: Grid) -> Result<(), EngineError> {
        Err(EngineError::Unsupported { what: "placing an image by frame, row and column".into(), hint: "" })
    }

    /// Forgets images that were placed behind the tokens in the cache: those of a prompt that was refused, or did not come to them.
    fn forget_unreached_grids(&mut self) {}

    /// The same model for several sequences at once; `None` if it knows only one.
    fn sequences(&mut self) -> Option<&mut dyn SequenceModel> {
        None
    }

    /// Widths of the hidden states that this model gives and takes.
    fn feature_widths(&self) -> FeatureWidths {
        FeatureWidths::default()
    }

    /// The same model for drafts from hidden states; `None` if it knows none.
    fn features(&mut self) -> Option<&mut dyn FeatureModel> {
        None
    }

    /// The adapters of this model; `None` if it can have none.
    fn lora(&mut self) -> Option<&mut dyn LoraModel> {
        None
    }

    /// The LoRA adapters that rows are computed with now, with their strengths; empty for none.
    fn lora_label(&self) -> String {
        String::new()
    }

    /// What decides which rows the cache keeps of its tokens, where that is not all of them; a cache with other settings has other rows
    /// of the same tokens.
    fn cache_settings(&self) -> String {
        String::new()
    }

    /// What stops this model between two steps, from any thread; `None` if nothing can.
    fn stop_flag(&self) -> Option<StopFlag> {
        None
    }

    /// Whether a full context goes on without its oldest tokens: then any number of tokens fits after
    /// [`make_room`](Self::make_room).
    fn shifts_context(&self) -> bool {
        false
    }

    /// Makes room for tokens where [the context is shifted](Self::shifts_context): `n_past` may go down. Returns how many of
    /// them were processed meanwhile, for more than the context holds; at least one is left.
    ///
    /// # Errors
    ///
    /// As [`prefill`](Self::prefill), and [`EngineError::Kv`] where positions cannot be shifted. [`EngineError::Stopped`] counts
    /// of all the tokens; `n_past` does not tell how many were processed, as it may have gone down.
    fn make_room(&mut self, _tokens: &[TokenId]) -> Result<usize, EngineError> {
        Ok(0)
    }

    /// Processes new tokens and returns the logits of the last.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoTokens`], [`EngineError::TokenOutOfRange`], [`EngineError::Overflow`] before anything
    /// runs; [`EngineError::Execute`], [`EngineError::NotFinite`] and cache errors; [`EngineError::Stopped`], after which
    /// the tokens of the steps that ran are kept.
    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError>;

    /// Processes new tokens and wants no logits; no tokens are fine.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError>;

    /// Processes new tokens and hands out the logits of each, by its place in `tokens`.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn process_rows(&mut self, tokens: &[TokenId], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), EngineError> {
        for (place, token) in tokens.iter().enumerate() {
            each(place, self.process(std::slice::from_ref(token))?);
        }
        Ok(())
    }

    /// Forgets all tokens from `n_past` on.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if `n_past` lies ahead, or if the rows before it are gone.
    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError>;

    /// Forgets all tokens and clears the cache. The step log stays.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if a worker thread is gone.
    fn reset(&mut self) -> Result<(), EngineError>;

    /// How many tokens can still be taken, and what stops the next; `None` if the model does not know.
    fn admission(&self) -> Option<Admission> {
        None
    }

    /// What a saved cache must match to be restored here.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`]; [`EngineError::Unsupported`] for a model that cannot be saved.
    fn cache_schema(&mut self) -> Result<CacheSchema, EngineError> {
        Err(EngineError::Unsupported { what: "saving this model".into(), hint: "" })
    }

    /// The cache with its tokens as plain values.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`]; [`EngineError::Unsupported`] for a model that cannot be saved.
    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        Err(EngineError::Unsupported { what: "saving this model".into(), hint: "" })
    }

    /// Replaces cache and tokens by a snapshot's.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`] and others: nothing has changed.
    fn restore_snapshot(&mut self, _snapshot: &Snapshot) -> Result<(), EngineError> {
        Err(EngineError::Unsupported { what: "restoring this model".into(), hint: "" })
    }

    /// The graphs executed so far, in order.
    fn steps(&self) -> &StepLog;
}

/// Rows were given to a model that takes ids.
pub(crate) fn no_embeddings() -> EngineError {
    let what = "feeding rows of embeddings to graphs that take `input_ids`".into();
    EngineError::Unsupported { what, hint: "; it needs a bundle whose graphs take `inputs_embeds`" }
}

/// Rows of a cache, over all sequences of a model; a row that several own counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowBudget {
    /// Rows that there can be, those of a step's new tokens included.
    pub total: usize,
    /// Rows that are in use.
    pub used: usize,
}

impl RowBudget {
    /// Rows that are left.
    pub const fn free(self) -> usize {
        self.total.saturating_sub(self.used)
    }
}

/// A model that runs several sequences in one step: what a scheduler and a drafter need. Sequence 0 is the one that
/// [`TokenModel`] speaks of.
pub trait SequenceModel: TokenModel {
    /// The tokens of a sequence; `None` for a number that the model has no sequence for.
    fn transcript_of(&self, seq: SeqId) -> Option<&Transcript>;

    /// How many sequences it can hold at once.
    fn most_sequences(&self) -> usize {
        SeqId::COUNT
    }

    /// Whether sequences are rows of a batch dimension of the graphs, so that they run in lockstep.
    fn is_batched(&self) -> bool {
        false
    }

    /// Processes new tokens of several sequences, prefill and decode mixed, and hands out the logits of each one's last, by
    /// its place in `inputs`.
    ///
    /// # Errors
    ///
    /// As [`TokenModel::process`]; every sequence is then as it was. After [`EngineError::Stopped`] the steps that ran are kept.
    fn process_batch(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError>;

    /// As [`process_batch`](Self::process_batch), each input with its own wish for logits. `each` gets the number of the input,
    /// the place of the token in it, and the row of logits.
    ///
    /// # Errors
    ///
    /// As [`TokenModel::process`]; every sequence is then as it was. After [`EngineError::Stopped`] the steps that ran are kept.
    fn process_mixed(
        &mut self,
        inputs: &[SeqRows<'_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError>;

    /// Whether tokens of several sequences can be columns of one step beside each other. Where rows are evicted by window or by
    /// score, or no rows are kept at all, one sequence is in the cache at a time; others are
    /// [snapshots](Self::snapshot_of).
    fn runs_together(&self) -> bool;

    /// Whether steps hold trees of drafts ([`process_trees`](Self::process_trees)): not those of a batch dimension, nor of graphs
    /// without a past.
    fn takes_trees(&self) -> bool {
        !self.is_batched()
    }

    /// Whether the last tokens of a sequence can be taken back whatever was processed since. Not where rows are evicted: those that
    /// made room are gone.
    fn takes_back(&self) -> bool {
        true
    }

    /// Whether a step takes tokens of at most two sequences: a piece of one's prompt and a token of another's reply.
    fn runs_in_pairs(&self) -> bool {
        false
    }

    /// How many tokens of each input the first execution of a graph takes: 0 for one that has to wait. All of them unless
    /// [`runs_in_pairs`](Self::runs_in_pairs).
    fn tokens_of_first_step(&self, inputs: &[SeqRows<'_>]) -> Vec<usize> {
        inputs.iter().map(|input| input.tokens.len()).collect()
    }

    /// Rows in use and in all: what is admitted by.
    fn rows(&self) -> RowBudget;

    /// Rows that these sequences alone have: those that removing all of them frees.
    fn own_rows(&self, seqs: &[SeqId]) -> usize {
        seqs.iter().filter_map(|seq| self.transcript_of(*seq)).map(Transcript::len).sum()
    }

    /// Whose the cells of the cache are, group by group, the default one first; none for a model that cannot tell.
    fn cells_of_groups(&self) -> Vec<GroupCells> {
        Vec::new()
    }

    /// How many tokens the steps of this model take, ascending: the widths that a scheduler chooses from.
    fn widths(&self) -> Vec<usize>;

    /// One sequence with its tokens as plain values, where it is sequence 0; to be given back by [`restore_sequence`](Self::restore_sequence).
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`]; [`EngineError::Unsupported`] for a model that cannot be saved.
    fn snapshot_of(&mut self, seq: SeqId) -> Result<Snapshot, EngineError>;

    /// Free rows that [`restore_sequence`](Self::restore_sequence) needs for a snapshot; fewer than it has tokens where it shares some.
    fn rows_to_restore(&self, snapshot: &Snapshot) -> usize {
        snapshot.tokens().len()
    }

    /// Puts the only sequence of a snapshot beside those that are there, as `seq`, which must be empty.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`], [`EngineError::Kv`], [`EngineError::Unsupported`]: nothing has changed.
    fn restore_sequence(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<(), EngineError>;

    /// Processes a draft in one step, shows its logits row by row to `judge`, and keeps the tokens that it returns `true`
    /// for; returns how many.
    ///
    /// # Errors
    ///
    /// [`EngineError::DraftTooLong`], and as [`TokenModel::process`]; the sequence is then as it was.
    fn verify_draft(
        &mut self,
        draft: SeqTokens<'_>,
        judge: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError>;

    /// Runs the trees of several sequences in one step, shows each one's logits (empty for rows that want none) to `choose`, and
    /// keeps the paths that it returns as the next tokens of the sequences.
    ///
    /// # Errors
    ///
    /// [`EngineError::DraftTooLong`] for more rows than one step takes; [`EngineError::Tree`], [`EngineError::NotAPath`]; as
    /// [`TokenModel::process`]. Every sequence is then as it was.
    fn process_trees(&mut self, trees: &[SeqTree<'_>], choose: ChoosePaths<'_>) -> Result<(), EngineError>;

    /// [`process_trees`](Self::process_trees) of one sequence; returns how many rows were kept.
    ///
    /// # Errors
    ///
    /// As there.
    fn process_tree(&mut self, seq: SeqId, rows: &[TreeRow], choose: ChoosePath<'_>) -> Result<usize, EngineError> {
        let mut n_kept = 0;
        self.process_trees(&[SeqTree { seq, rows }], &mut |_, logits| {
            let kept = choose(logits);
            n_kept = kept.len();
            kept
        })?;
        Ok(n_kept)
    }

    /// Lets `dst` own what `src` has in a range of positions, without moving a byte: a branch.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] where the cache cannot; as for the operations below.
    fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), EngineError>;

    /// Lets `dst` own all rows of other sequences, whatever their positions, and go on behind as many positions as it then
    /// has rows. The others are empty afterwards.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`]; [`EngineError::Unsupported`] for a model that cannot.
    fn merge(&mut self, _from: &[SeqId], _dst: SeqId) -> Result<(), EngineError> {
        Err(EngineError::Unsupported { what: "merging sequences of this model".into(), hint: "" })
    }

    /// Takes a range of positions away from a sequence; returns the rows that became free.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`].
    fn remove(&mut self, seq: SeqId, range: Range<usize>) -> Result<usize, EngineError>;

    /// Keeps one sequence and drops all others.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`].
    fn keep(&mut self, seq: SeqId) -> Result<(), EngineError>;
}

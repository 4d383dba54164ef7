//! The cache's operations on a live engine: going back, cutting out, sharing, copying and moving what sequences hold.
//!
//! A dialog is sequence 0; [`process`](crate::TokenModel::process) goes on with it, [`Engine::process_batch`] with any
//! others beside it. All operations take effect for the next token; no graph runs here.
//!
//! *Units*: positions. Ranges are half-open. What a row holds was computed when its token was processed: after a removal
//! or a shift the rows that are left are not what processing the remaining tokens alone would have given.

use std::ops::Range;

use genie_types::{TokenId, Variant};
use kvmanager::{CellTable, JobWatch, MovedBytes, SeqId, ShiftLoss};

use crate::{Engine, EngineError, Executor, TokenModel};

impl<X: Executor> Engine<X> {
    /// Position of a sequence's next token; 0 for one that has not begun.
    pub fn next_pos(&self, seq: SeqId) -> usize {
        self.kv.next_pos(seq)
    }

    /// The tokens that a sequence has in the cache, each with its position, in the order they came.
    pub fn tokens_of(&self, seq: SeqId) -> impl Iterator<Item = (TokenId, usize)> + '_ {
        self.sequences.all().get(usize::from(seq.0)).into_iter().flat_map(|transcript| transcript.entries())
    }

    /// Which slot of a cache group holds what; `None` for a group the model lacks.
    pub fn cells(&self, group: usize) -> Option<&CellTable> {
        self.kv.cells(group)
    }

    /// What shifting positions has cost the keys since the last reset.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if a worker has failed.
    pub fn shift_loss(&mut self) -> Result<ShiftLoss, EngineError> {
        Ok(self.kv.shift_loss()?)
    }

    /// Bytes of cache rows that were moved or copied since the last reset: what updates of the cache cost.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if a worker has failed.
    pub fn moved_bytes(&mut self) -> Result<MovedBytes, EngineError> {
        Ok(self.kv.moved_bytes()?)
    }

    /// Takes a variant now, both AR and CL, up or down; the next step does it by itself otherwise.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`]: no such graph, or more rows than its past holds.
    pub fn set_variant(&mut self, spec: Variant) -> Result<(), EngineError> {
        Ok(self.kv.set_variant(spec)?)
    }

    /// Goes back to what the dialog and a list of tokens have in common at their beginning; returns how much that is. The
    /// last common token is given up too if it is the whole list, so that there is something to process.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if rows before that point are gone.
    pub fn rewind_to_prefix(&mut self, tokens: &[TokenId]) -> Result<usize, EngineError> {
        let common = self.sequences.of(SeqId(0)).common_prefix(tokens).min(tokens.len().saturating_sub(1));
        self.rewind(common)?;
        Ok(common)
    }

    /// Takes a range of positions away from a sequence. One that reaches its end lets it go on at `range.start`. Returns the
    /// rows that became free in the default group.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] where the cache cannot; as for all operations below.
    pub fn remove(&mut self, seq: SeqId, range: Range<usize>) -> Result<usize, EngineError> {
        if self.lockstep.is_some() {
            self.check_row(seq)?;
            let first = range.start.min(self.sequences.of(seq).len());
            if range.end < self.sequences.of(seq).len() {
                self.check_no_batch("taking tokens out of the middle")?;
            }
            return Ok(self.cut_row(seq, first));
        }
        if self.kv.variants().is_full_context_only() && seq == SeqId(0) && range.end >= self.sequences.of(seq).len() {
            // There are no rows: it is processed again up to there.
            self.rewind(range.start.min(self.sequences.of(seq).len()))?;
            return Ok(0);
        }
        let freed = self.kv.remove(seq, range.clone())?;
        self.sequences.of_mut(seq).remove(&range);
        self.graphs.features.truncate(seq, range.start);
        Ok(freed)
    }

    /// Keeps one sequence and drops all others.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`].
    pub fn keep(&mut self, seq: SeqId) -> Result<(), EngineError> {
        self.check_no_batch("keeping one of several sequences")?;
        self.kv.keep(seq)?;
        if seq != SeqId(0) {
            self.graphs.writers.grids.truncate(0);
        }
        self.sequences.keep(seq);
        self.graphs.features.keep(seq);
        Ok(())
    }

    /// Lets `dst` own what `src` has in a range, without moving a byte: a shared prefix is stored once.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`].
    pub fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), EngineError> {
        self.check_no_grids("sharing tokens")?;
        self.check_no_batch("sharing tokens")?;
        self.kv.share(src, dst, range.clone())?;
        self.sequences.share(src, dst, &range);
        Ok(())
    }

    /// Lets `dst` own all that other sequences have, whatever their positions, and go on behind as many positions as it then
    /// has rows. The others are empty afterwards.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`].
    pub fn merge(&mut self, from: &[SeqId], dst: SeqId) -> Result<(), EngineError> {
        self.check_no_batch("merging sequences")?;
        for &src in from.iter().filter(|src| **src != dst) {
            self.kv.share(src, dst, 0..usize::MAX)?;
            self.sequences.share(src, dst, &(0..usize::MAX));
            self.remove(src, 0..usize::MAX)?;
        }
        let n_rows = self.kv.cells(0).map_or(0, |cells| cells.count(dst, 0..usize::MAX));
        self.kv.skip_to(dst, n_rows)?;
        Ok(())
    }

    /// Gives `dst` rows of its own with what `src` has in a range.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`], also when there are too few free rows.
    pub fn copy(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), EngineError> {
        self.check_no_grids("copying tokens")?;
        self.check_no_batch("copying tokens")?;
        self.kv.copy(src, dst, range.clone())?;
        self.sequences.share(src, dst, &range);
        Ok(())
    }

    /// Moves a range of positions by `delta`; tokens that would fall below position 0 are dropped. Keys are turned before the
    /// next step; [`shift_loss`](Self::shift_loss) reports what that costs quantised ones.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`], also for a model without rotary inputs.
    pub fn shift(&mut self, seq: SeqId, range: Range<usize>, delta: isize) -> Result<(), EngineError> {
        self.check_no_grids("moving tokens")?;
        self.check_no_batch("moving tokens")?;
        self.kv.shift(seq, range.clone(), delta)?;
        self.sequences.of_mut(seq).map(&range, |pos| pos.checked_add_signed(delta));
        Ok(())
    }

    /// Divides a range of positions; otherwise as [`shift`](Self::shift).
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`], also for a division by 0.
    pub fn divide(&mut self, seq: SeqId, range: Range<usize>, by: usize) -> Result<(), EngineError> {
        self.check_no_grids("dividing positions")?;
        self.check_no_batch("dividing positions")?;
        self.kv.divide(seq, range.clone(), by)?;
        self.sequences.of_mut(seq).map(&range, |pos| pos.checked_div(by));
        Ok(())
    }

    /// Drops `n` tokens of a sequence after the first `sinks` and closes the gap in the positions, so that a full context
    /// can go on. Returns the new `n_past`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`], also when there are not that many.
    pub fn shift_out(&mut self, seq: SeqId, sinks: usize, n: usize) -> Result<usize, EngineError> {
        self.check_no_grids("dropping tokens")?;
        self.check_no_batch("dropping tokens")?;
        let n_past = self.kv.shift_out(seq, sinks, n)?;
        self.graphs.features.truncate(seq, 0);
        let transcript = self.sequences.of_mut(seq);
        transcript.remove(&(sinks..sinks + n));
        transcript.map(&(sinks + n..usize::MAX), |pos| pos.checked_sub(n));
        Ok(n_past)
    }

    /// From now on rows that go leave holes, and each sequence fills pages of the cache by itself: attention of one need not
    /// read the rows of another. For many sequences; see [`HolePolicy::Keep`](kvmanager::HolePolicy::Keep).
    pub fn keep_holes(&mut self) {
        self.kv.keep_holes();
    }

    /// Closes holes by at most `max_moves` row moves in each cache group; returns the rows moved.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`].
    pub fn compact(&mut self, max_moves: usize) -> Result<usize, EngineError> {
        Ok(self.kv.compact(max_moves)?)
    }

    /// Reports every job on the cache's rows as it begins and ends, on the thread that does it.
    pub fn watch_jobs(&mut self, watch: JobWatch) {
        self.kv.watch_jobs(watch);
    }

    /// Waits for all jobs on the cache's rows.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if a worker has failed.
    pub fn wait_all(&mut self) -> Result<(), EngineError> {
        Ok(self.kv.wait_all()?)
    }
}

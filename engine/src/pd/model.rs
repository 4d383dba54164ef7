//! A fused pair as a dialog and a scheduler see it.

use std::ops::Range;

use genie_types::TokenId;
use kvmanager::{Admission, ContextLimit, LogitsRequest, SeqId};
use session_store::{CacheSchema, Snapshot};

use super::batch::Pending;
use super::runner::{PairRunner, no_sequence};
use crate::{
    ChoosePaths, EngineError, Executor, RowBudget, SeqRows, SeqTokens, SeqTree, SequenceModel, StepLog, StopFlag,
    TokenModel, Transcript,
};

/// Sequences that a scheduler may have at once: each has rows of its own, for the whole context.
const MOST_SEQUENCES: usize = 16;

impl<X: Executor> TokenModel for PairRunner<X> {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn context_size(&self) -> usize {
        self.context_size
    }

    fn n_past(&self) -> usize {
        self.n_past_of(SeqId(0))
    }

    fn transcript(&self) -> &Transcript {
        &self.sequences[0].transcript
    }

    fn mark_generated(&mut self, index: usize) {
        self.sequences[0].transcript.mark_generated(index);
    }

    fn sequences(&mut self) -> Option<&mut dyn SequenceModel> {
        Some(self)
    }

    fn stop_flag(&self) -> Option<StopFlag> {
        Some(self.stop.clone())
    }

    fn admission(&self) -> Option<Admission> {
        let limit = self.context_size;
        Some(Admission { n_fit: limit - self.n_past(), bound: ContextLimit::Context { limit } })
    }

    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        self.prefill(tokens)?;
        if tokens.is_empty() {
            return Err(EngineError::NoTokens);
        }
        Ok(self.logits(self.last_was_decode))
    }

    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.run_batch(&[SeqTokens { seq: SeqId(0), tokens }], &mut |_, _| ())
    }

    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
        self.remove(SeqId(0), n_past..usize::MAX).map(drop)
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        (0..SeqId::COUNT as u8).for_each(|seq| self.cut(SeqId(seq), 0));
        Ok(())
    }

    fn cache_schema(&mut self) -> Result<CacheSchema, EngineError> {
        self.schema()
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        if self.sequences.iter().skip(1).any(|s| !s.transcript.is_empty()) {
            return Err(unsupported("saving several sequences at once"));
        }
        self.saved(SeqId(0))
    }

    fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        // Sequence 0 is set aside until the other is in its place.
        let before = std::mem::take(&mut self.sequences[0]);
        match self.restore_as(SeqId(0), snapshot) {
            Ok(()) => {
                self.free.extend(before.store);
                self.keep(SeqId(0))
            }
            Err(error) => {
                self.cut(SeqId(0), 0);
                self.sequences[0] = before;
                Err(error)
            }
        }
    }

    fn steps(&self) -> &StepLog {
        &self.log
    }
}

impl<X: Executor> SequenceModel for PairRunner<X> {
    fn transcript_of(&self, seq: SeqId) -> Option<&Transcript> {
        self.sequences.get(usize::from(seq.0)).map(|s| &s.transcript)
    }

    fn process_batch(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.run_batch(inputs, each)
    }

    /// Rows of which all logits are wanted run one after the other.
    fn process_mixed(
        &mut self,
        inputs: &[SeqRows<'_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError> {
        let all: Vec<_> = inputs.iter().map(Pending::from).collect();
        self.check_inputs(&all)?;
        let before: Vec<_> = inputs.iter().map(|input| (input.seq, self.n_past_of(input.seq))).collect();
        let done = self.run_mixed(inputs, each);
        if matches!(&done, Err(error) if !matches!(error, EngineError::Stopped { .. })) {
            before.into_iter().for_each(|(seq, n)| self.cut(seq, n));
        }
        done
    }

    fn most_sequences(&self) -> usize {
        MOST_SEQUENCES
    }

    fn runs_together(&self) -> bool {
        true
    }

    fn runs_in_pairs(&self) -> bool {
        true
    }

    fn tokens_of_first_step(&self, inputs: &[SeqRows<'_>]) -> Vec<usize> {
        self.n_of_first_step(inputs)
    }

    fn rows(&self) -> RowBudget {
        let used = self.sequences.iter().map(|s| s.transcript.len()).sum();
        RowBudget { total: self.context_size * MOST_SEQUENCES, used }
    }

    fn widths(&self) -> Vec<usize> {
        std::iter::once(1).chain(self.limits.totals.iter().copied()).collect()
    }

    fn snapshot_of(&mut self, seq: SeqId) -> Result<Snapshot, EngineError> {
        self.saved(seq)
    }

    fn restore_sequence(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<(), EngineError> {
        self.restore_as(seq, snapshot)
    }

    /// Its rows run one after the other: the graphs give the logits of a chunk's last token only.
    fn verify_draft(
        &mut self,
        draft: SeqTokens<'_>,
        judge: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError> {
        if usize::from(draft.seq.0) >= SeqId::COUNT {
            return Err(no_sequence(draft.seq));
        }
        let before = self.n_past_of(draft.seq);
        let mut rows: Vec<Vec<f32>> = Vec::with_capacity(draft.tokens.len());
        for token in draft.tokens {
            let input = [SeqTokens { seq: draft.seq, tokens: std::slice::from_ref(token) }];
            if let Err(error) = self.run_batch(&input, &mut |_, logits| rows.push(logits.to_vec())) {
                self.cut(draft.seq, before);
                return Err(error);
            }
        }
        let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        let kept = judge(&rows);
        let n_kept = kept.iter().take(rows.len()).take_while(|keep| **keep).count();
        self.cut(draft.seq, before + n_kept);
        if kept.iter().take(rows.len()).skip(n_kept).any(|keep| *keep) {
            self.cut(draft.seq, before);
            return Err(unsupported("keeping a token of a draft behind one that was dropped"));
        }
        Ok(n_kept)
    }

    fn process_trees(&mut self, _trees: &[SeqTree<'_>], _choose: ChoosePaths<'_>) -> Result<(), EngineError> {
        Err(unsupported("drafts that are trees"))
    }

    /// Rows are copied: each sequence has its own.
    fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), EngineError> {
        let n = range.end.min(self.n_past_of(src));
        if range.start > 0 || self.n_past_of(dst) > 0 {
            return Err(unsupported("sharing tokens that are not the beginning of a new sequence"));
        }
        if n == 0 || src == dst {
            return Ok(());
        }
        self.give_store(dst)?;
        let mut store = self.sequences[usize::from(dst.0)].store.take().expect("just given");
        let from = self.sequences[usize::from(src.0)].store.as_ref().expect("it has rows");
        let copied = store.copy_from(from, n);
        let mut transcript = self.sequences[usize::from(src.0)].transcript.clone();
        transcript.truncate(n);
        let to = &mut self.sequences[usize::from(dst.0)];
        to.store = Some(store);
        copied?;
        to.transcript = transcript;
        Ok(())
    }

    fn remove(&mut self, seq: SeqId, range: Range<usize>) -> Result<usize, EngineError> {
        if usize::from(seq.0) >= SeqId::COUNT {
            return Err(no_sequence(seq));
        }
        let n_past = self.n_past_of(seq);
        if range.end < n_past {
            return Err(unsupported("removing tokens from the middle of a sequence"));
        }
        if range.start > n_past && range.end == usize::MAX {
            let (to, why) = (range.start, "");
            return Err(kvmanager::KvError::Rewind { to, n_past, n_valid_kv: n_past, why }.into());
        }
        let freed = n_past.saturating_sub(range.start);
        self.cut(seq, n_past - freed);
        Ok(freed)
    }

    fn keep(&mut self, seq: SeqId) -> Result<(), EngineError> {
        let others = (0..SeqId::COUNT as u8).map(SeqId).filter(|other| *other != seq);
        others.for_each(|other| self.cut(other, 0));
        Ok(())
    }
}

impl<X: Executor> PairRunner<X> {
    fn run_mixed(
        &mut self,
        inputs: &[SeqRows<'_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError> {
        let (rows, ends): (Vec<usize>, Vec<usize>) =
            (0..inputs.len()).partition(|&i| inputs[i].wanted == LogitsRequest::Each && inputs[i].tokens.len() > 1);
        let of_ends: Vec<_> = ends.iter().map(|&i| inputs[i]).collect();
        self.run_batch(&of_ends, &mut |i, logits| {
            let i = ends[i];
            if inputs[i].wanted != LogitsRequest::Nothing {
                each(i, inputs[i].tokens.len() - 1, logits);
            }
        })?;
        for i in rows {
            for (place, token) in inputs[i].tokens.iter().enumerate() {
                let one = [SeqTokens { seq: inputs[i].seq, tokens: std::slice::from_ref(token) }];
                self.run_batch(&one, &mut |_, logits| each(i, place, logits))?;
            }
        }
        Ok(())
    }
}

fn unsupported(what: &str) -> EngineError {
    EngineError::Unsupported { what: format!("{what} with fused graphs, whose rows are positions"), hint: "" }
}

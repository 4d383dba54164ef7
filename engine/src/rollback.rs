//! The way back after a failure: sequences return to where a call found them.
//!
//! A step that fails rolls itself back. What steps before it have kept is taken back here. Where a long-context rule has
//! dropped rows meanwhile, the only sequence is processed again; where that is impossible, everything is cleared and the
//! error says so.

use kvmanager::{KvError, LogitsRequest, Plan, SeqId};

use crate::run::Stepping;
use crate::{Engine, EngineError, Executor, TokenModel};

/// Where a sequence stood before a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) seq: SeqId,
    /// Tokens of its transcript.
    pub(crate) len: usize,
    /// Position of the next one.
    pub(crate) pos: usize,
    /// Rows that long-context rules had dropped from the cache.
    n_dropped: u64,
}

impl<X: Executor> Engine<X> {
    /// Where a sequence that the cache knows stands.
    pub(crate) fn mark(&self, seq: SeqId) -> Mark {
        let (len, pos) = (self.sequences.of(seq).len(), self.kv.next_pos(seq));
        Mark { seq, len, pos, n_dropped: self.kv.n_dropped() }
    }

    /// Brings sequences back to their marks after a failure, and returns the failure.
    pub(crate) fn rollback(&mut self, before: &[Mark], error: EngineError) -> EngineError {
        let nonsense = matches!(error, EngineError::NotFinite { .. });
        // All of them, also where one of them cannot return: what is replayed then is what they had.
        before.iter().for_each(|mark| self.sequences.of_mut(mark.seq).truncate(mark.len));
        let back = before.iter().try_for_each(|mark| self.return_to(*mark));
        let back = back.and_then(|()| Ok(self.kv.wait_all()?));
        let back = back.and_then(|()| if nonsense { Ok(self.clear_stale_rows()?) } else { Ok(()) });
        let Err(lost) = back.or_else(|_| self.replay()) else { return error };
        tracing::warn!(%lost, "the cache could not be restored");
        match self.reset() {
            Ok(()) => EngineError::StateLost { source: Box::new(error) },
            Err(worse) => worse,
        }
    }

    fn return_to(&mut self, mark: Mark) -> Result<(), EngineError> {
        let Mark { seq, len, pos, n_dropped } = mark;
        let lost = EngineError::NotReproducible { n_past: pos, n_known: len };
        if self.kv.n_dropped() != n_dropped {
            return Err(lost);
        }
        if self.kv.next_pos(seq) == pos {
            return Ok(());
        }
        // Rows that a shift has moved ahead cannot be distinguished from those that came after.
        if self.sequences.of(seq).entries().any(|(_, at)| at >= pos) {
            return Err(lost);
        }
        Ok(self.kv.rewind(seq, pos)?)
    }

    /// Fills everything but the valid rows with the pad value. Hidden rows count too: a softmax weight of 0 times NaN is NaN.
    fn clear_stale_rows(&mut self) -> Result<(), KvError> {
        let rows = self.kv.export()?;
        self.kv.clear()?;
        self.kv.import(&rows)
    }

    /// Fills a cleared cache from the transcript of the only sequence.
    fn replay(&mut self) -> Result<(), EngineError> {
        let only = self.sequences.only().filter(|seq| self.sequences.of(*seq).is_plain());
        let Some(seq) = only else {
            let (n_past, n_known) = (self.kv.next_pos(SeqId(0)), self.sequences.of(SeqId(0)).len());
            return Err(EngineError::NotReproducible { n_past, n_known });
        };
        self.kv.clear()?;
        let mut plan = Plan::default();
        let tokens = [(seq, self.sequences.of(seq).len())];
        self.kv.plan_into(&tokens, &self.policy, LogitsRequest::Nothing, &mut plan)?;
        let begin = Mark { seq, len: 0, pos: 0, n_dropped: 0 };
        // What was there before the failure is restored whole: the stop flag is not asked.
        self.run_steps(plan.steps(), &[begin], Stepping::Restore, LogitsRequest::Nothing.into(), &mut |_, _, _| ())
    }
}

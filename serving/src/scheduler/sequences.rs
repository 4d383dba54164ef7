//! Which sequence of the cache a request has: it gets one, begins with rows that are there, gives them up, and leaves them.
//!
//! *Invariant*: a sequence belongs to one request that runs, or is idle, or is empty.

use std::time::Instant;

use engine::{EngineError, SeqId, Snapshot};
use genie_types::TokenId;
use kvmanager::plan::serve::Phase;

use super::{Scheduler, sequences};
use crate::active::Active;
use crate::draft::Draft;
use crate::{Event, Parking, prefix};

impl Scheduler {
    /// Gives a request a sequence, with the rows that are there already.
    pub(super) fn start(&mut self, id: u64, now_us: u64) {
        let Some(at) = self.active.iter().position(|request| request.id.0 == id) else { return };
        let Some(seq) = self.free_sequence() else { return };
        let mut n_done = 0;
        if let Some(snapshot) = self.active[at].snapshot.take() {
            n_done = self.restore(seq, &snapshot).unwrap_or_else(|error| {
                tracing::warn!(%error, "parked rows cannot be put back: they are computed again");
                0
            });
        }
        if n_done == 0 {
            n_done = self.share(seq, at);
        }
        if self.active[at].started == 0 {
            self.n_started += 1;
            self.active[at].started = self.n_started;
            self.active[at].started_at = Some(Instant::now());
            self.active[at].n_shared = n_done;
            self.active[at].reply.restored(n_done);
        }
        let request = &mut self.active[at];
        (request.seq, request.n_done, request.last_us) = (Some(seq), n_done, now_us);
        request.settle();
        self.turn = 0;
        self.events.push(Event::Started { id: request.id, n_shared: n_done });
    }

    /// Puts rows into an empty sequence; idle ones make room. Returns how many there are. After a failure the sequence is empty.
    pub(super) fn restore(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<usize, EngineError> {
        let n = snapshot.tokens().len();
        while self.together && self.rows().free() < self.rows_to_restore(snapshot) && self.forget_idle() {}
        let done = if self.together {
            sequences(&mut *self.model).and_then(|model| model.restore_sequence(seq, snapshot))
        } else {
            self.idle.clear();
            self.model.restore_snapshot(snapshot)
        };
        if let Err(error) = done {
            self.forget(seq);
            return Err(error);
        }
        Ok(n)
    }

    /// Fewer than it has tokens where others begin alike.
    fn rows_to_restore(&mut self, snapshot: &Snapshot) -> usize {
        self.model.sequences().map_or(0, |model| model.rows_to_restore(snapshot))
    }

    /// Lets a request begin with the rows of another sequence, or of the store; returns how many tokens it then has.
    fn share(&mut self, seq: SeqId, at: usize) -> usize {
        let prompt = self.active[at].reply.history().to_vec();
        let found = if self.together { self.longest_of_others(seq, &prompt) } else { None };
        let better_than = match (&found, self.together) {
            (Some((_, n)), _) => *n,
            (None, true) => 0,
            (None, false) => self.common_alone(&prompt),
        };
        let n = self.restore_stored(seq, &prompt, better_than);
        if n > 0 {
            self.active[at].n_stored = n;
            return n;
        }
        match found {
            Some((src, n)) => self.share_rows_of(src, seq, n),
            None if !self.together => self.go_on_alone(better_than),
            None => 0,
        }
    }

    /// The sequence, idle or of a request that runs, that begins most like a prompt.
    fn longest_of_others(&mut self, seq: SeqId, prompt: &[TokenId]) -> Option<(SeqId, usize)> {
        if !self.options.share_prefixes {
            return None;
        }
        let running = self.active.iter().filter_map(|request| request.seq);
        let candidates: Vec<SeqId> = self.idle.iter().copied().chain(running).filter(|other| *other != seq).collect();
        prefix::longest(self.model.sequences()?, candidates.into_iter(), prompt)
    }

    fn share_rows_of(&mut self, src: SeqId, seq: SeqId, n: usize) -> usize {
        // It may have been given up meanwhile, to make room for a stored prefix that could not be put there.
        if self.model.sequences().and_then(|model| model.transcript_of(src)).is_none_or(|own| own.len() < n) {
            return 0;
        }
        match sequences(&mut *self.model).and_then(|model| model.share(src, seq, 0..n)) {
            Ok(()) => {
                // It was of use: others go first.
                if let Some(place) = self.idle.iter().position(|idle| *idle == src) {
                    self.idle.remove(place);
                    self.idle.push_back(src);
                }
                n
            }
            Err(error) => {
                tracing::debug!(%error, "a prefix cannot be shared");
                0
            }
        }
    }

    /// Begins with the longest stored prefix of use where `better_than` tokens are there without it, if there is room for it: returns how many
    /// tokens the sequence then has. The last token of the prompt is processed in any case.
    fn restore_stored(&mut self, seq: SeqId, prompt: &[TokenId], better_than: usize) -> usize {
        let most = prompt.len() - 1;
        if better_than >= most {
            return 0;
        }
        let n = self.restore_found(seq, prompt, better_than);
        if n <= most || self.cut(seq, most).is_ok() {
            return n.min(most);
        }
        // What the token before the last needs may have been dropped by long context.
        self.forget(seq);
        self.restore_found(seq, &prompt[..most], better_than)
    }

    /// Begins with the longest stored prefix of a prompt that has more than `better_than` tokens, the whole prompt if that is stored.
    fn restore_found(&mut self, seq: SeqId, prompt: &[TokenId], better_than: usize) -> usize {
        let Some(stored) = &mut self.stored else { return 0 };
        let Some(model) = self.model.sequences() else { return 0 };
        let Some(snapshot) = stored.find(model, prompt, better_than) else { return 0 };
        if self.together && self.rows().free() + self.idle_rows() < snapshot.tokens().len() {
            return 0;
        }
        self.restore(seq, &snapshot).unwrap_or_else(|error| {
            if let Some(stored) = &mut self.stored {
                stored.leave_aside(&error);
            }
            0
        })
    }

    /// Tokens at the beginning of a prompt that the only sequence has, and that can stay.
    fn common_alone(&self, prompt: &[TokenId]) -> usize {
        let transcript = self.model.transcript();
        let plain = transcript.is_plain() && self.options.share_prefixes;
        if plain { transcript.common_prefix(&prompt[..prompt.len().saturating_sub(1)]) } else { 0 }
    }

    /// The only sequence there is goes back to its first `common` tokens.
    fn go_on_alone(&mut self, common: usize) -> usize {
        self.idle.clear();
        if common > 0 && self.model.rewind(common).is_ok() {
            return common;
        }
        if let Err(error) = self.model.reset() {
            tracing::error!(%error, "the cache cannot be cleared");
        }
        0
    }

    /// A sequence that no request has; one of a request that is over is forgotten if there is none.
    pub(super) fn free_sequence(&mut self) -> Option<SeqId> {
        if !self.together {
            return (!self.active.iter().any(Active::runs)).then_some(SeqId(0));
        }
        let find = |this: &Self| {
            let taken =
                |seq: &SeqId| this.idle.contains(seq) || this.active.iter().any(|request| request.seq == Some(*seq));
            (0..this.most_sequences).map(|n| SeqId(n as u8)).find(|seq| !taken(seq))
        };
        find(self).or_else(|| {
            self.forget_idle();
            find(self)
        })
    }

    pub(super) fn park(&mut self, id: u64) {
        let Some(at) = self.active.iter().position(|request| request.id.0 == id) else { return };
        let Some(seq) = self.active[at].seq.take() else { return };
        if self.options.parking == Parking::Snapshot && self.active[at].n_done > 0 {
            let saved = match self.together {
                true => sequences(&mut *self.model).and_then(|model| model.snapshot_of(seq)),
                false => self.model.snapshot(),
            };
            match saved {
                Ok(snapshot) => self.active[at].snapshot = Some(Box::new(snapshot)),
                Err(error) => tracing::warn!(%error, "rows cannot be given out: they are computed again"),
            }
        }
        self.forget(seq);
        let request = &mut self.active[at];
        request.phase = Phase::Parked;
        request.n_parked += 1;
        request.n_done = 0;
        request.draft = Draft::None;
        self.n_parked += 1;
        self.events.push(Event::Parked { id: request.id });
    }

    pub(super) fn leave(&mut self, seq: Option<SeqId>, n_done: usize) {
        let Some(seq) = seq else { return };
        if !self.options.share_prefixes || n_done == 0 {
            return self.forget(seq);
        }
        // The reply's last token may be behind what is known.
        if self.together
            && let Ok(model) = sequences(&mut *self.model)
            && model.transcript_of(seq).is_some_and(|transcript| transcript.len() > n_done)
            && model.remove(seq, n_done..usize::MAX).is_err()
        {
            return self.forget(seq);
        }
        self.idle.push_back(seq);
    }

    /// Drops the rows of a sequence behind the first `n`.
    pub(super) fn cut(&mut self, seq: SeqId, n: usize) -> Result<(), EngineError> {
        match self.together {
            true => sequences(&mut *self.model)?.remove(seq, n..usize::MAX).map(drop),
            false => self.model.rewind(n),
        }
    }

    pub(super) fn forget(&mut self, seq: SeqId) {
        let done = match self.together {
            true => sequences(&mut *self.model).and_then(|model| model.remove(seq, 0..usize::MAX).map(drop)),
            false => self.model.reset(),
        };
        if let Err(error) = done {
            tracing::error!(%error, "the rows of a sequence cannot be freed");
        }
    }

    /// Gives up the rows of the sequence that was of use longest ago; `false` if there is none.
    pub(super) fn forget_idle(&mut self) -> bool {
        let Some(seq) = self.idle.pop_front() else { return false };
        self.forget(seq);
        true
    }
}

//! Which sequence of the cache a request has: it gets one, begins with rows that are there, gives them up, and leaves them.
//!
//! *Invariant*: a sequence belongs to one request that runs, or is idle, or is empty.

use std::time::Instant;

use engine::SeqId;
use kvmanager::plan::serve::Phase;

use super::{Scheduler, sequences};
use crate::active::Active;
use crate::{Event, Parking, prefix};

impl Scheduler {
    /// Gives a request a sequence, with the rows that are there already.
    pub(super) fn start(&mut self, id: u64, now_us: u64) {
        let Some(at) = self.active.iter().position(|request| request.id.0 == id) else { return };
        let Some(seq) = self.free_sequence() else { return };
        let mut n_done = 0;
        if let Some(snapshot) = self.active[at].snapshot.take() {
            n_done = self.restore(seq, &snapshot);
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

    /// Puts parked rows back; 0 if they cannot be, and everything is processed again.
    fn restore(&mut self, seq: SeqId, snapshot: &engine::Snapshot) -> usize {
        let n = snapshot.tokens().len();
        while self.rows().free() < n && self.forget_idle() {}
        let done = if self.together {
            sequences(&mut *self.model).and_then(|model| model.restore_sequence(seq, snapshot))
        } else {
            self.idle.clear();
            self.model.restore_snapshot(snapshot)
        };
        match done {
            Ok(()) => n,
            Err(error) => {
                tracing::warn!(%error, "parked rows cannot be put back: they are computed again");
                0
            }
        }
    }

    /// Lets a request begin with the rows of another sequence, or of the store; returns how many tokens it then has.
    fn share(&mut self, seq: SeqId, at: usize) -> usize {
        let prompt = self.active[at].reply.history().to_vec();
        if !self.together {
            return self.go_on_alone(&prompt);
        }
        let running = self.active.iter().filter_map(|request| request.seq);
        let candidates: Vec<SeqId> = self.idle.iter().copied().chain(running).filter(|other| *other != seq).collect();
        let Ok(model) = sequences(&mut *self.model) else { return 0 };
        let found =
            if self.options.share_prefixes { prefix::longest(model, candidates.into_iter(), &prompt) } else { None };
        let better_than = found.map_or(0, |(_, n)| n);
        if let Some(stored) = &mut self.stored {
            let n = stored.restore(model, seq, &prompt, better_than);
            if n > 0 {
                return n;
            }
        }
        let Some((src, n)) = found else { return 0 };
        match model.share(src, seq, 0..n) {
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

    /// The only sequence there is: what it has in common with the prompt stays.
    fn go_on_alone(&mut self, prompt: &[genie_types::TokenId]) -> usize {
        self.idle.clear();
        let common = self.model.transcript().tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let common = common.min(prompt.len().saturating_sub(1));
        let plain = self.model.transcript().is_plain() && self.options.share_prefixes;
        if plain && self.model.rewind(common).is_ok() {
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
        request.draft.clear();
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

//! The sequences of the cache one by one: looked at, saved, restored, erased.
//!
//! A slot is a sequence with tokens, of a request that runs or of one that is over and whose rows are kept for prompts that begin
//! alike. *Invariant*: a slot of a request that runs is only looked at and saved.

use engine::{EngineError, ModelHash, SeqId, Snapshot};
use kvmanager::plan::serve::Phase;

use super::{Scheduler, sequences};
use crate::{ServeError, Slot, SlotState};

impl Scheduler {
    /// The slots that hold tokens or have a request, by number.
    pub fn slots(&mut self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self
            .active
            .iter()
            .filter_map(|request| {
                let state = if request.phase == Phase::Decode { SlotState::Decode } else { SlotState::Prefill };
                let (n_prompt, n_generated) = (request.reply.n_prompt(), request.n_generated());
                let (seq, n_past) = (request.seq?, request.n_done);
                Some(Slot { seq, state, request: Some(request.id), n_past, n_prompt, n_generated })
            })
            .collect();
        for &seq in &self.idle {
            let transcript = self.model.sequences().and_then(|model| model.transcript_of(seq).map(|t| t.len()));
            let n_past = transcript.unwrap_or(0);
            slots.push(Slot { seq, state: SlotState::Idle, request: None, n_past, n_prompt: 0, n_generated: 0 });
        }
        slots.sort_by_key(|slot| slot.seq.0);
        slots
    }

    /// What names the model whose rows the slots hold.
    ///
    /// # Errors
    /// The binaries cannot be read; the model cannot be saved.
    pub fn model_hash(&mut self) -> Result<ModelHash, ServeError> {
        Ok(self.model.cache_schema()?.model)
    }

    /// The rows of a slot with their tokens.
    ///
    /// # Errors
    /// [`ServeError::Slot`] for one without tokens; the model cannot be saved.
    pub fn save_slot(&mut self, seq: SeqId) -> Result<Snapshot, ServeError> {
        let found = self.slots().into_iter().find(|slot| slot.seq == seq);
        if found.is_none_or(|slot| slot.n_past == 0) {
            let (expected, found) = ("one with tokens in the cache".into(), "none".into());
            return Err(ServeError::Slot { slot: seq.0, expected, found });
        }
        Ok(match self.together {
            true => sequences(&mut *self.model)?.snapshot_of(seq)?,
            false => self.model.snapshot()?,
        })
    }

    /// Puts saved rows into a slot, where a prompt that begins with their tokens finds them. What an idle slot held is forgotten;
    /// other idle slots are where rows are lacking.
    ///
    /// # Errors
    /// [`ServeError::Slot`] for a slot of a request that runs, a number that there is none of, rows of several sequences and
    /// more rows than are free; the snapshot is another model's.
    pub fn restore_slot(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<Slot, ServeError> {
        self.must_be_idle(seq)?;
        let n = snapshot.tokens().len();
        if snapshot.sequences.len() != 1 || n == 0 {
            let found = format!("{} with {n} in the first", snapshot.sequences.len());
            return Err(ServeError::Slot {
                slot: seq.0,
                expected: "a snapshot of one sequence with tokens".into(),
                found,
            });
        }
        // What can be refused is, before the slot loses what it holds.
        if let Ok(schema) = self.model.cache_schema() {
            snapshot.check_model(schema.model).map_err(EngineError::from)?;
        }
        snapshot.image.check().map_err(EngineError::from)?;
        let free = if self.together { self.rows().free() + self.idle_rows() } else { self.rows().total };
        if free < n {
            let (expected, found) = (format!("{n} free rows"), free.to_string());
            return Err(ServeError::Slot { slot: seq.0, expected, found });
        }
        // Other adapters and foreign layouts are found by the model: it has its rows back then.
        let held = if self.idle.contains(&seq) { self.save_slot(seq).ok() } else { None };
        self.erase_slot(seq)?;
        if let Err(error) = self.restore(seq, snapshot) {
            if let Some(held) = held
                && self.restore(seq, &held).is_ok()
            {
                self.idle.push_back(seq);
            }
            return Err(error.into());
        }
        self.idle.push_back(seq);
        Ok(Slot { seq, state: SlotState::Idle, request: None, n_past: n, n_prompt: 0, n_generated: 0 })
    }

    /// Forgets the rows of an idle slot; returns how many tokens it had.
    ///
    /// # Errors
    /// [`ServeError::Slot`] for a slot of a request that runs, and a number that there is none of.
    pub fn erase_slot(&mut self, seq: SeqId) -> Result<usize, ServeError> {
        self.must_be_idle(seq)?;
        let Some(place) = self.idle.iter().position(|idle| *idle == seq) else { return Ok(0) };
        let n = self.slots().into_iter().find(|slot| slot.seq == seq).map_or(0, |slot| slot.n_past);
        self.idle.remove(place);
        self.forget(seq);
        Ok(n)
    }

    fn must_be_idle(&self, seq: SeqId) -> Result<(), ServeError> {
        let most = self.n_sequences();
        // Where one sequence is in the cache at a time, any request that runs has it.
        let taken = self.active.iter().any(|request| request.seq == Some(seq));
        let (expected, found) = match () {
            () if usize::from(seq.0) >= most => (format!("a number below {most}"), seq.0.to_string()),
            () if taken => ("an idle one".to_owned(), "one of a request that runs".to_owned()),
            () => return Ok(()),
        };
        Err(ServeError::Slot { slot: seq.0, expected, found })
    }
}

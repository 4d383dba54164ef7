//! Sequences beside each other, as a scheduler sees them: how many rows there are, which widths steps have, one sequence taken out
//! and put back.
//!
//! *Units*: rows of the default group, tokens.

use kvmanager::SeqId;
use session_store::Snapshot;

use crate::{CellRun, Engine, EngineError, Executor, GroupCells, RowBudget, TokenModel};

impl<X: Executor> Engine<X> {
    /// Whether tokens of several sequences can be columns of one step: every group keeps all rows, and the graphs have no batch
    /// dimension, whose rows run in lockstep.
    pub fn runs_together(&self) -> bool {
        let variants = self.kv.variants();
        self.layout().batch == 1
            && !variants.is_full_context_only()
            && variants.groups().iter().all(|group| !group.evicts())
    }

    /// Rows in use and in all: as many as can be filled token by token. A step of a graph begins with room for all its rows, so that
    /// without one for a single token the last few cannot.
    pub fn rows(&self) -> RowBudget {
        let used = self.kv.cells(0).map_or(0, kvmanager::CellTable::n_used);
        let variants = self.kv.variants().with_logits();
        let total = match self.runs_together() {
            true => {
                let cached = variants.all().iter().filter(|spec| !spec.is_full_context());
                cached.map(|spec| spec.cl().get() - spec.ar().get() + 1).max()
            }
            false => Some(self.context_size()),
        };
        RowBudget { total: total.unwrap_or(0), used }
    }

    /// Rows that these sequences alone have.
    pub fn own_rows(&self, seqs: &[SeqId]) -> usize {
        let others = !seqs.iter().fold(0, |bits, seq| bits | seq.bit());
        self.kv.cells(0).map_or(0, |cells| cells.used().filter(|(_, cell)| cell.seqs & others == 0).count())
    }

    /// Whose the cells of the cache are, group by group.
    pub fn cells_of_groups(&self) -> Vec<GroupCells> {
        let groups = self.kv.variants().groups().iter().enumerate();
        groups
            .filter_map(|(number, group)| {
                let cells = self.kv.cells(number)?;
                let (name, window) = (group.prefix.clone(), group.long.window());
                Some(GroupCells { name, capacity: cells.capacity(), window, runs: CellRun::of(cells) })
            })
            .collect()
    }

    /// How many tokens steps take, ascending: the AR of variants with logits and a cache; of those without where there are no others.
    pub fn widths(&self) -> Vec<usize> {
        let variants = self.kv.variants().with_logits();
        let all = variants.is_full_context_only();
        let cached = variants.all().iter().filter(|spec| all || !spec.is_full_context());
        let mut widths: Vec<_> = cached.map(|spec| spec.ar().get()).collect();
        widths.sort_unstable();
        widths.dedup();
        widths
    }

    /// One sequence with its tokens, as sequence 0 of the snapshot.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot).
    pub fn snapshot_of(&mut self, seq: SeqId) -> Result<Snapshot, EngineError> {
        let mut snapshot = self.snapshot()?;
        // A cache that one sequence has for itself keeps what its rule of eviction knows.
        if snapshot.sequences.iter().any(|saved| saved.seq != seq) {
            snapshot.image = snapshot.image.of_sequence(seq);
            snapshot.sequences.retain(|saved| saved.seq == seq);
        }
        snapshot.image.rename_sequence(seq, SeqId(0));
        snapshot.sequences.iter_mut().for_each(|saved| saved.seq = SeqId(0));
        Ok(snapshot)
    }

    /// The sequence that begins most like a snapshot's, and how many tokens they have in common; 0 where rows do not stand for tokens and
    /// positions alone.
    fn shareable(&self, snapshot: &Snapshot) -> (SeqId, usize) {
        let saved = snapshot.sequences.first().map_or(&[][..], |saved| &saved.tokens);
        let in_place = saved.iter().enumerate().take_while(|(i, token)| token.position == *i);
        // An id beyond the vocabulary stands for a row of embeddings, and for another one in another run.
        let known = in_place.take_while(|(_, token)| (token.token.0 as usize) < self.vocab_size);
        let tokens: Vec<_> = known.map(|(_, token)| token.token).collect();
        let transcripts = (0..).map(SeqId).zip(self.sequences.all()).filter(|_| self.runs_together());
        let common = transcripts.map(|(seq, transcript)| (seq, transcript.common_prefix(&tokens)));
        let (src, n) = common.max_by_key(|(_, n)| *n).unwrap_or_default();
        let saved_seq = snapshot.sequences.first().map_or(SeqId(0), |saved| saved.seq);
        let mut groups = snapshot.image.groups.iter().enumerate();
        let have_each = groups.all(|(number, group)| {
            group.has_each(saved_seq, n) && self.kv.cells(number).is_some_and(|cells| cells.has_each(src, n))
        });
        (src, if have_each { n } else { 0 })
    }

    /// Rows that [`restore_sequence`](Self::restore_sequence) of a snapshot takes: those that another sequence has are shared.
    pub fn rows_to_restore(&self, snapshot: &Snapshot) -> usize {
        snapshot.tokens().len() - self.shareable(snapshot).1
    }

    /// Puts the only sequence of a snapshot beside those that are there; rows of tokens at its beginning that another one has are shared.
    ///
    /// # Errors
    ///
    /// As [`restore_snapshot`](Self::restore_snapshot), also for a sequence that has tokens.
    pub fn restore_sequence(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<(), EngineError> {
        let mut all = self.snapshot()?;
        snapshot.check_model(self.model_hash()?)?;
        snapshot.check_adapters(&self.lora_label())?;
        if all.sequences.is_empty() && snapshot.sequences.iter().all(|saved| saved.seq == seq) {
            return self.restore_snapshot(snapshot);
        }
        let (src, n) = self.shareable(snapshot);
        all.image = all.image.with_sequence_like(&snapshot.image, seq, src, n)?;
        all.sequences.extend(snapshot.sequences.first().map(|saved| {
            let mut saved = saved.clone();
            saved.seq = seq;
            saved
        }));
        all.sequences.sort_by_key(|saved| saved.seq);
        self.restore_snapshot(&all)
    }
}

//! One sequence as plain values, and back. *Invariant*: whatever is refused, nothing has changed.

use kvmanager::{Cell, GroupImage, KvError, KvImage, Overflow, SeqId};
use session_store::{CacheSchema, ModelHash, SavedSequence, SavedToken, Snapshot};

use super::runner::{PairRunner, no_sequence};
use crate::{EngineError, Executor, Transcript};

impl<X: Executor> PairRunner<X> {
    pub(super) fn schema(&mut self) -> Result<CacheSchema, EngineError> {
        Ok(CacheSchema { model: self.model_hash()?, tensors: self.tensors.clone() })
    }

    fn model_hash(&mut self) -> Result<ModelHash, EngineError> {
        Ok(self.identity.hash()?)
    }

    /// The rows and tokens of a sequence, as sequence 0.
    pub(super) fn saved(&mut self, seq: SeqId) -> Result<Snapshot, EngineError> {
        let model = self.model_hash()?;
        let sequence = self.sequences.get(usize::from(seq.0)).ok_or_else(|| no_sequence(seq))?;
        let Some(store) = &sequence.store else {
            let (next, tensors) = (Vec::new(), self.tensors.clone());
            let (groups, data) = (vec![GroupImage::default()], vec![Vec::new(); tensors.len()]);
            let image = KvImage { groups, next, tensors, data, ..KvImage::default() };
            return Ok(Snapshot { model, image, adapters: Some(String::new()), ..Snapshot::default() });
        };
        let n = store.n_rows();
        let cells = (0..n).map(|pos| Cell { pos, rotated_pos: pos, seqs: 1 }).collect();
        let image = KvImage {
            groups: vec![GroupImage::of_cells(cells)],
            next: vec![(SeqId(0), n)],
            data: (0..self.tensors.len()).map(|t| store.rows(t)).collect(),
            tensors: self.tensors.clone(),
            ..KvImage::default()
        };
        let transcript = &sequence.transcript;
        let token = |(i, (token, position))| SavedToken { token, position, generated: transcript.is_generated(i) };
        let tokens = transcript.entries().enumerate().map(token).collect();
        let (sequences, bundle) = (vec![SavedSequence { seq: SeqId(0), tokens }], self.identity.bundle().to_owned());
        Ok(Snapshot { model, image, sequences, bundle, adapters: Some(String::new()), ..Snapshot::default() })
    }

    /// Puts the only sequence of a snapshot where there is none.
    pub(super) fn restore_as(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<(), EngineError> {
        if usize::from(seq.0) >= SeqId::COUNT {
            return Err(no_sequence(seq));
        }
        let foreign = |why: String| EngineError::Kv(KvError::Foreign { why });
        if self.n_past_of(seq) > 0 {
            return Err(foreign(format!("sequence {} has tokens already", seq.0)));
        }
        snapshot.check_model(self.model_hash()?)?;
        snapshot.check_adapters("")?;
        snapshot.image.check()?;
        let [of_saved] = snapshot.sequences.as_slice() else {
            if snapshot.sequences.is_empty() {
                return Ok(());
            }
            return Err(foreign(format!("expected one sequence, found {}", snapshot.sequences.len())));
        };
        let n = of_saved.tokens.len();
        let cells = snapshot.image.groups.first().map_or(&[][..], |group| group.cells.as_slice());
        // Plain graphs may have written later rows before earlier ones, into what other sequences left.
        let mut order: Vec<usize> = (0..cells.len()).collect();
        order.sort_by_key(|&cell| cells[cell].pos);
        let mut tokens: Vec<_> = of_saved.tokens.iter().collect();
        tokens.sort_by_key(|token| token.position);
        let in_order = order.iter().enumerate().all(|(i, &cell)| (cells[cell].pos, cells[cell].rotated_pos) == (i, i))
            && tokens.iter().enumerate().all(|(i, token)| token.position == i);
        if snapshot.image.groups.len() != 1 || cells.len() != n || !in_order {
            return Err(foreign(format!("expected a row for each position from 0 to {n} in one group")));
        }
        if n > self.context_size {
            return Err(Overflow::ContextExceeded { n_past: 0, n_new: n, limit: self.context_size }.into());
        }
        let mut transcript = Transcript::default();
        for (i, token) in tokens.into_iter().enumerate() {
            self.check_tokens(&[token.token])?;
            transcript.push(token.token, i);
            if token.generated {
                transcript.mark_generated(i);
            }
        }
        let image = &snapshot.image;
        let mut of_tensor = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let found = image.tensors.iter().position(|t| t == tensor);
            of_tensor
                .push(found.ok_or_else(|| foreign(format!("`{}` is not there, or in another form", tensor.name())))?);
        }
        self.give_store(seq)?;
        let sequence = &mut self.sequences[usize::from(seq.0)];
        let store = sequence.store.as_mut().expect("just given");
        for run in order.chunk_by(|a, b| a + 1 == *b) {
            for (t, &from) in of_tensor.iter().enumerate() {
                store.write(t, &image.data[from], n, run[0], run.len())?;
            }
            store.advance(run.len())?;
        }
        sequence.transcript = transcript;
        Ok(())
    }
}

//! A tree of drafts in one step: every row with its own past, one path of rows kept.
//!
//! Where a draft can go on in several ways, all of them run in the same step: a row sees what its sequence has in the
//! cache, the rows on its path, and itself. Once the logits are there the caller chooses a path; its rows become the next
//! ones of the sequence, whatever the cache's layout, and the others are as if they had never been.
//!
//! *Example*: a token `t` with two guesses of what follows, `a b` and `c`, is the rows `t`, `a` after row 0, `b` after row
//! 1, `c` after row 0. If the model wants `c`, rows 0 and 3 are kept.

use genie_types::TokenId;
use kvmanager::{InferenceStep, LogitsRequest, Plan, PlanError, SeqId, Tree, TreeColumn};

use crate::graphs::{Graphs, StepRun};
use crate::{Engine, EngineError, Executor};

/// A row of a step whose rows form a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// Its token. One beyond the vocabulary, as forecast tokens are, is fed like any other, but cannot be kept.
    pub token: TokenId,
    /// The row that it follows, one of those before it; it stands one position behind that. `None`: it follows the tokens in
    /// the cache.
    pub parent: Option<usize>,
    /// Another sequence whose rows it sees too, at whatever positions.
    pub also: Option<SeqId>,
    /// Whether its logits are wanted.
    pub logits: bool,
}

impl TreeRow {
    /// A row that sees its own path and gives logits.
    pub const fn new(token: TokenId, parent: Option<usize>) -> Self {
        Self { token, parent, also: None, logits: true }
    }

    /// The same; it also sees the rows of another sequence.
    #[must_use]
    pub const fn seeing(self, also: SeqId) -> Self {
        Self { also: Some(also), ..self }
    }

    /// The same without logits.
    #[must_use]
    pub const fn without_logits(self) -> Self {
        Self { logits: false, ..self }
    }
}

/// Sees the logits of a step's rows and names the rows to keep: a path from a row without parent on, or none.
pub type ChoosePath<'a> = &'a mut dyn FnMut(&[&[f32]]) -> Vec<usize>;

impl<X: Executor> Engine<X> {
    /// Runs the rows of a tree in one step, shows their logits (empty for rows that want none) to `choose`, and keeps the
    /// path that it returns as the next tokens of the sequence. Returns how many were kept.
    ///
    /// # Errors
    ///
    /// [`EngineError::DraftTooLong`] for more rows than one step takes here; [`EngineError::Tree`] for rows that are no tree,
    /// [`EngineError::NotAPath`] for kept rows that are no path; [`EngineError::TokenOutOfRange`] for a kept row beyond the
    /// vocabulary; and as [`process`](crate::TokenModel::process). Nothing has changed then.
    pub fn process_tree(&mut self, seq: SeqId, rows: &[TreeRow], choose: ChoosePath<'_>) -> Result<usize, EngineError> {
        let tree = Tree::new(rows.iter().map(|row| TreeColumn { parent: row.parent, also: row.also }))?;
        let variant = self.plan_of_draft(seq, rows.len())?.steps()[0].variant;
        let first = self.kv.next_pos(seq);
        let planned = self.kv.step(variant, tree.columns(seq, first));
        let tokens: Vec<TokenId> = rows.iter().map(|row| row.token).collect();
        let positions: Vec<usize> = planned.columns.iter().map(|column| column.pos).collect();
        let wanted: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].logits).collect();
        let before = [self.mark(seq)];
        let vocab_size = self.vocab_size;
        let mut kept = Vec::new();
        let mut select = |graphs: &mut Graphs<X>| {
            let width = graphs.logits.len();
            let mut all = Vec::with_capacity(wanted.len() * width);
            for &row in &wanted {
                graphs.read_logits(row, positions[row])?;
                all.extend_from_slice(&graphs.logits);
            }
            let mut logits = vec![&[][..]; rows.len()];
            wanted.iter().zip(all.chunks_exact(width)).for_each(|(&row, values)| logits[row] = values);
            kept = choose(&logits);
            if !tree.is_path(&kept) {
                return Err(EngineError::NotAPath { rows: kept.clone() });
            }
            if let Some(place) = kept.iter().position(|&row| tokens[row].0 as usize >= vocab_size) {
                return Err(EngineError::TokenOutOfRange { token: tokens[kept[place]], place, vocab_size });
            }
            graphs.keep_features(&planned, |row| kept.contains(&row));
            Ok((0..rows.len()).map(|row| kept.contains(&row)).collect())
        };
        let run = StepRun {
            planned: &planned,
            tokens: &tokens,
            features: &[],
            next: None,
            narrow_head: self.narrow_head(),
            as_genie: self.as_genie(),
            tree: Some(&tree),
            batch: None,
        };
        let done = self.graphs.run_step(&mut self.kv, run, wanted.iter().copied(), Some(&mut select));
        done.map_err(|e| self.rollback(&before, e))?;
        let transcript = self.sequences.of_mut(seq);
        kept.iter().for_each(|&row| transcript.push(tokens[row], positions[row]));
        Ok(kept.len())
    }

    /// The plan of a draft, which is one step.
    pub(crate) fn plan_of_draft(&self, seq: SeqId, found: usize) -> Result<Plan, EngineError> {
        let widest = self.kv.variants().with_logits().ar_max();
        if found == 0 || found > widest {
            return Err(EngineError::DraftTooLong { expected: widest, found });
        }
        if self.stop.is_set() {
            return Err(EngineError::Stopped { n_processed: 0, n_new: found });
        }
        let mut plan = Plan::default();
        self.kv.plan_into(&[(seq, found)], &self.policy, LogitsRequest::Each, &mut plan)?;
        match plan.steps() {
            _ if plan.is_reprocess() => Err(PlanError::Shared.into()),
            [_] => Ok(plan),
            steps => {
                let expected = steps.first().map_or(0, InferenceStep::n_process);
                Err(EngineError::DraftTooLong { expected, found })
            }
        }
    }
}

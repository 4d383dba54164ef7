//! A tree of drafts in one step: every row with its own past, one path of rows kept.
//!
//! Where a draft can go on in several ways, all of them run in the same step: a row sees what its sequence has in the
//! cache, the rows on its path, and itself. Once the logits are there the caller chooses a path; its rows become the next
//! ones of the sequence, whatever the cache's layout, and the others are as if they had never been.
//!
//! *Example*: a token `t` with two guesses of what follows, `a b` and `c`, is the rows `t`, `a` after row 0, `b` after row
//! 1, `c` after row 0. If the model wants `c`, rows 0 and 3 are kept.

use genie_types::TokenId;
use kvmanager::{InferenceStep, LogitsRequest, Plan, PlanError, Policy, SeqId, Tree, TreeColumn};

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

    /// Tokens that follow each other, as rows that give logits.
    pub fn chain(tokens: &[TokenId]) -> impl Iterator<Item = Self> {
        tokens.iter().enumerate().map(|(at, token)| Self::new(*token, at.checked_sub(1)))
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

/// The rows of one sequence in a step that others share: a tree of drafts, or rows that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqTree<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// Its rows, from its next position on.
    pub rows: &'a [TreeRow],
}

/// As [`ChoosePath`] for each tree of a step, in order: gets the number of the tree and the logits of its rows.
pub type ChoosePaths<'a> = &'a mut dyn FnMut(usize, &[&[f32]]) -> Vec<usize>;

impl<X: Executor> Engine<X> {
    /// Runs the trees of several sequences in one step, shows each one's logits (empty for rows that want none) to `choose`, and
    /// keeps the paths that it returns as the next tokens of the sequences.
    ///
    /// # Errors
    ///
    /// [`EngineError::DraftTooLong`] for more rows than one step takes here; [`EngineError::Tree`] for rows that are no tree,
    /// [`EngineError::NotAPath`] for kept rows that are no path; [`EngineError::TokenOutOfRange`] for a kept row beyond the
    /// vocabulary; and as [`process_batch`](Self::process_batch). Nothing has changed then.
    pub fn process_trees(&mut self, trees: &[SeqTree<'_>], choose: ChoosePaths<'_>) -> Result<(), EngineError> {
        let shape = |row: &TreeRow| TreeColumn { parent: row.parent, also: row.also };
        let own = trees.iter().map(|tree| Tree::new(tree.rows.iter().map(shape)));
        let own = own.collect::<Result<Vec<_>, _>>()?;
        let rows: Vec<&TreeRow> = trees.iter().flat_map(|tree| tree.rows).collect();
        // By row: its tree, and where that begins.
        let mut place = Vec::with_capacity(rows.len());
        for (at, tree) in trees.iter().enumerate() {
            let first = place.len();
            place.extend(tree.rows.iter().map(|_| (at, first)));
        }
        let joined =
            Tree::new(rows.iter().zip(&place).map(|(row, (_, first))| TreeColumn {
                parent: row.parent.map(|parent| parent + first),
                also: row.also,
            }))?;
        let inputs: Vec<_> = trees.iter().map(|tree| (tree.seq, tree.rows.len())).collect();
        let variant = self.plan_of_drafts(&inputs)?.steps()[0].variant;
        let starts: Vec<_> = trees.iter().map(|tree| (tree.seq, self.kv.next_pos(tree.seq))).collect();
        let planned = self.kv.step(variant, joined.columns_by(|row| starts[place[row].0]));
        let tokens: Vec<TokenId> = rows.iter().map(|row| row.token).collect();
        let positions: Vec<usize> = planned.columns.iter().map(|column| column.pos).collect();
        let wanted: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].logits).collect();
        let before: Vec<_> = trees.iter().map(|tree| self.mark(tree.seq)).collect();
        let vocab_size = self.vocab_size;
        // By row of the step.
        let mut kept: Vec<usize> = Vec::new();
        let mut select = |graphs: &mut Graphs<X>| {
            let width = graphs.logits.len();
            let mut all = Vec::with_capacity(wanted.len() * width);
            for &row in &wanted {
                graphs.read_logits(row, positions[row])?;
                all.extend_from_slice(&graphs.logits);
            }
            let mut logits = vec![&[][..]; rows.len()];
            wanted.iter().zip(all.chunks_exact(width)).for_each(|(&row, values)| logits[row] = values);
            let mut first = 0;
            for (at, (tree, own)) in trees.iter().zip(&own).enumerate() {
                let path = choose(at, &logits[first..first + tree.rows.len()]);
                if !own.is_path(&path) {
                    return Err(EngineError::NotAPath { rows: path });
                }
                if let Some(place) = path.iter().position(|&row| tree.rows[row].token.0 as usize >= vocab_size) {
                    let token = tree.rows[path[place]].token;
                    return Err(EngineError::TokenOutOfRange { token, place, vocab_size });
                }
                kept.extend(path.iter().map(|row| first + row));
                first += tree.rows.len();
            }
            let mut keeps = vec![false; rows.len()];
            kept.iter().for_each(|&row| keeps[row] = true);
            graphs.keep_features(&planned, |row| keeps[row]);
            Ok(keeps)
        };
        let run = StepRun {
            planned: &planned,
            tokens: &tokens,
            features: &[],
            next: None,
            narrow_head: self.narrow_head(),
            as_genie: self.as_genie(),
            tree: Some(&joined),
            batch: None,
        };
        let done = self.graphs.run_step(&mut self.kv, run, wanted.iter().copied(), Some(&mut select));
        done.map_err(|e| self.rollback(&before, e))?;
        for row in kept {
            self.sequences.of_mut(trees[place[row].0].seq).push(tokens[row], positions[row]);
        }
        Ok(())
    }

    /// The plan of a draft, which is one step.
    pub(crate) fn plan_of_draft(&self, seq: SeqId, found: usize) -> Result<Plan, EngineError> {
        self.plan_of_drafts(&[(seq, found)])
    }

    /// The plan of the drafts of several sequences, which is one step.
    fn plan_of_drafts(&self, drafts: &[(SeqId, usize)]) -> Result<Plan, EngineError> {
        let (widest, found) = (self.kv.variants().with_logits().ar_max(), drafts.iter().map(|(_, n)| n).sum());
        if found == 0 || found > widest {
            return Err(EngineError::DraftTooLong { expected: widest, found });
        }
        if self.stop.is_set() {
            return Err(EngineError::Stopped { n_processed: 0, n_new: found });
        }
        if drafts.len() > 1 {
            self.check_no_batch("trees of several sequences in one step")?;
        }
        let mut plan = Plan::default();
        self.kv.plan_into(drafts, &self.policy, LogitsRequest::Each, &mut plan)?;
        if plan.steps().len() > 1 && matches!(self.policy, Policy::Cost(_)) {
            // Several narrow steps may be cheaper, but only what one step takes is verified.
            self.kv.plan_into(drafts, &Policy::Lenient, LogitsRequest::Each, &mut plan)?;
        }
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

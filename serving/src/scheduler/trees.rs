//! Trees of drafts as rows of shared steps, and the rows that stand beside the requests' for them: a forecast prefix.
//!
//! *Worth*. A tree is many rows for the few tokens that hold. Where the times of steps were measured, it runs if the tokens of all replies
//! in a microsecond do not become fewer by what trees have gained before; else until trees have not held for a while.

use dialog::DialogError;
use dialog::kinds::{EagletSettings, EagletTrees, TreeKind, VocabularyMap};
use engine::{EngineError, TokenModel};
use kvmanager::plan::serve::Phase;
use session_store::ForecastPrefix;

use super::{Scheduler, fitted, sequences};
use crate::ServeError;
use crate::draft::Draft;
use crate::tree_model::TreeModel;

impl Scheduler {
    /// Whether trees of drafts can be rows of its steps: not those of fused graphs, nor of graphs with a batch dimension.
    pub fn takes_trees(&mut self) -> bool {
        let batched = self.model.sequences().is_none_or(|model| model.is_batched());
        !self.pairs && !batched
    }

    /// Whether trees of this kind can: forecasts need a cache that keeps several sequences beside each other.
    pub fn takes_trees_of(&mut self, kind: &TreeKind) -> bool {
        self.takes_trees() && (self.together || !matches!(kind, TreeKind::Ssd(_)))
    }

    /// Lets requests from now on draft trees of a kind, or none; those that draft by lookup do not. A forecast prefix is put beside them.
    ///
    /// # Errors
    /// [`ServeError::Busy`]; [`ServeError::Setting`] for a model whose steps take none; [`ServeError::Dialog`] for settings that the kind
    /// cannot have, trees of more rows than a step, a prefix that cannot be read and one that does not fit the model.
    pub fn set_trees(&mut self, kind: Option<TreeKind>) -> Result<(), ServeError> {
        if !self.active.is_empty() {
            return Err(ServeError::Busy { n_requests: self.active.len() });
        }
        if kind.as_ref().is_some_and(|kind| !self.takes_trees_of(kind)) {
            return Err(no_trees());
        }
        if let Some(kind) = &kind {
            check_rows(kind.name(), kind.n_rows(), self.times.widest())?;
        }
        let prefix = match &kind {
            Some(TreeKind::Ssd(settings)) => Some(settings.read_prefix(&mut *self.model)?),
            Some(TreeKind::Lade(_)) | None => None,
        };
        self.model.reset()?;
        self.idle.clear();
        let of_model = sequences(&mut *self.model)?.most_sequences();
        // The last number is the prefix's.
        self.most_sequences = if prefix.is_some() { of_model.min(ForecastPrefix::SEQ.0.into()) } else { of_model };
        self.rules = fitted(self.options.rules(self.together)?, self.most_sequences, self.pairs);
        self.prefix = prefix;
        self.put_prefix()?;
        self.base = self.base.clone().with_trees(kind);
        Ok(())
    }

    /// Rows that no request has.
    pub(super) fn n_rows_of_prefix(&self) -> usize {
        self.prefix.as_ref().map_or(0, ForecastPrefix::n_rows)
    }

    /// Puts the prefix beside the requests' rows, unless it is there: a failure that cleared the cache took it away.
    pub(super) fn put_prefix(&mut self) -> Result<(), EngineError> {
        let Some(prefix) = &self.prefix else { return Ok(()) };
        let there = sequences(&mut *self.model)?.transcript_of(ForecastPrefix::SEQ).map_or(0, |tokens| tokens.len());
        if there == prefix.n_rows() {
            return Ok(());
        }
        let snapshot = self.model.snapshot()?;
        self.model.restore_snapshot(&prefix.before(snapshot))
    }

    /// Has another model propose trees from the model's hidden states, for each reply that does not draft by itself. A token that is
    /// drawn is the first model's; where offers hold there are several in a step. `map`: the draft model has ids of its own.
    ///
    /// # Errors
    /// [`ServeError::Busy`]; [`ServeError::Setting`] for a model whose steps take no trees; [`ServeError::Dialog`] for models that do not go together.
    pub fn set_tree_model(
        &mut self,
        mut draft: Box<dyn TokenModel>,
        settings: EagletSettings,
        map: Option<VocabularyMap>,
    ) -> Result<(), ServeError> {
        if !self.active.is_empty() {
            return Err(ServeError::Busy { n_requests: self.active.len() });
        }
        if !self.takes_trees() {
            return Err(no_trees());
        }
        self.model.reset()?;
        self.idle.clear();
        let trees = EagletTrees::new(settings, map, &mut *self.model, &mut *draft)?;
        check_rows("eaglet", trees.n_rows(), self.times.widest())?;
        self.tree_model = Some(TreeModel::new(draft, trees));
        Ok(())
    }

    /// A tree for each reply that has some, as far as they are worth the rows.
    pub(super) fn make_trees(&mut self) {
        if self.base.trees().is_none() && self.tree_model.is_none() {
            return;
        }
        let (limit, widest, n_vocab) = (self.limit(), self.times.widest(), self.vocab_size());
        let times = self.options.step_times.is_some().then(|| self.times_now());
        let replies = self.active.iter().filter(|request| request.phase == Phase::Decode);
        let (mut n_rows, mut n_tokens) = (0, 0.0);
        for request in replies {
            n_rows += 1 + request.draft.n_rows();
            n_tokens += 1.0;
        }
        let step = self.n_steps as u64 + 1;
        for request in self.active.iter_mut().filter(|request| request.phase == Phase::Decode) {
            if !request.draft.is_none() {
                continue;
            }
            let most = limit.saturating_sub(request.n_done).min((widest + 1).saturating_sub(n_rows));
            let is_worth = |more: usize, gain: f64| {
                times.as_ref().is_none_or(|times| {
                    let (without, with) = (times.us_for(n_rows), times.us_for(n_rows + more));
                    (n_tokens + gain) * without >= n_tokens * with
                })
            };
            let (tree, gain) = match &mut self.tree_model {
                Some(model) => {
                    let n_rows = model.n_rows();
                    let Some(gain) = request.reply.wants_tree().filter(|_| n_rows <= most) else { continue };
                    if !is_worth(n_rows - 1, gain) {
                        request.reply.left_tree();
                        continue;
                    }
                    let Some(tree) = model.tree(&mut *self.model, request, step) else { continue };
                    (tree, gain)
                }
                None => {
                    let Some((tree, gain)) = request.reply.tree(most, n_vocab) else { continue };
                    if !is_worth(tree.n_rows() - 1, gain) {
                        request.reply.left_tree();
                        continue;
                    }
                    (tree, gain)
                }
            };
            (n_rows, n_tokens) = (n_rows + tree.n_rows() - 1, n_tokens + gain);
            request.draft = Draft::Tree(tree);
        }
    }
}

fn no_trees() -> ServeError {
    let expected = "a model whose steps have rows of several sequences";
    let found = "fused graphs, a batch dimension, or a cache of one sequence".to_owned();
    ServeError::Setting { key: "trees of drafts", expected, found }
}

fn check_rows(kind: &'static str, n_rows: usize, widest: usize) -> Result<(), ServeError> {
    if n_rows <= widest {
        return Ok(());
    }
    let expected = format!("steps with the {n_rows} rows of a tree of these settings");
    let found = format!("steps of at most {widest}; smaller numbers fit");
    Err(DialogError::Kind { kind, expected, found }.into())
}

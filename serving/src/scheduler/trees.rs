//! Trees of drafts as rows of shared steps, and the rows that stand beside the requests' for them: a forecast prefix.
//!
//! *Worth*. A tree is many rows for the few tokens that hold. It runs if the tokens of all replies in a microsecond do not become fewer by what
//! trees have gained before, by the times of steps that were measured, or else by those that were seen.

use dialog::DialogError;
use dialog::kinds::{EagletSettings, EagletTrees, TreeKind, VocabularyMap};
use engine::{EngineError, TokenModel};
use kvmanager::plan::serve::{Phase, TickRows};
use session_store::ForecastPrefix;

use super::{Scheduler, fitted, sequences};
use crate::ServeError;
use crate::active::Active;
use crate::draft::Draft;
use crate::seen_times::is_worth;
use crate::tree_model::TreeModel;

impl Scheduler {
    /// Whether trees of drafts can be rows of its steps: not those of fused graphs, of graphs with a batch dimension, nor of graphs without
    /// a past.
    pub fn takes_trees(&mut self) -> bool {
        !self.pairs && self.model.sequences().is_some_and(|model| model.takes_trees())
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
        self.refuse_while_busy()?;
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
        let tried = self.put_prefix().map_err(ServeError::from).and_then(|()| match &kind {
            Some(TreeKind::Ssd(settings)) => Ok(settings.try_forecast(&mut *self.model)?),
            Some(TreeKind::Lade(_)) | None => Ok(()),
        });
        if let Err(error) = tried {
            self.model.reset()?;
            self.prefix = None;
            self.base = self.base.clone().with_trees(None);
            self.most_sequences = of_model;
            self.rules = fitted(self.options.rules(self.together)?, of_model, self.pairs);
            return Err(error);
        }
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
        self.refuse_while_busy()?;
        if !self.takes_trees() {
            return Err(no_trees());
        }
        check_rows("eaglet", settings.max_rows, self.times.widest())?;
        if settings.max_rows < 2 {
            let expected = "trees of at least 2 rows: the newest token and what may follow it".to_owned();
            return Err(DialogError::Kind { kind: "eaglet", expected, found: settings.max_rows.to_string() }.into());
        }
        self.model.reset()?;
        self.idle.clear();
        let trees = EagletTrees::new(settings, map, &mut *self.model, &mut *draft)?;
        self.tree_model = Some(TreeModel::new(draft, trees));
        Ok(())
    }

    /// A step ran; where another follows at once, its time is seen.
    pub(super) fn see_step(&mut self, rows: &[TickRows], now_us: u64) {
        if self.active.iter().any(Active::runs) {
            let n_rows = rows.iter().map(|rows| rows.n).sum();
            self.seen_times.begins(now_us, self.times.width_for(n_rows));
        }
    }

    /// A tree for each reply that has some, as far as they are worth the rows.
    pub(super) fn make_trees(&mut self) {
        if self.base.trees().is_none() && self.tree_model.is_none() {
            return;
        }
        let (limit, widest, n_vocab) = (self.limit(), self.times.widest(), self.vocab_size());
        let measured = self.options.step_times.is_some().then(|| self.times_now());
        if let Some(model) = &mut self.tree_model {
            model.begin_step();
        }
        // Those that have rows next, as the planner sees it.
        let mut replies: Vec<usize> =
            (0..self.active.len()).filter(|&at| self.active[at].phase == Phase::Decode).collect();
        replies.sort_by_key(|&at| self.active[at].view(0, 0, 0).turn());
        replies.truncate(self.rules.replies_a_step);
        let mut n_rows: usize = replies.iter().map(|&at| 1 + self.active[at].draft.n_rows()).sum();
        let mut n_tokens = replies.len() as f64;
        // Those whose trees the model makes, all at once.
        let mut of_model = Vec::new();
        for at in replies {
            let request = &mut self.active[at];
            if !request.draft.is_none() {
                continue;
            }
            let most = limit.saturating_sub(request.n_done).min((widest + 1).saturating_sub(n_rows));
            let own = self.base.trees().and_then(|kind| Some((kind.n_rows(), request.reply.tree(most, n_vocab)?)));
            let (rows, gain) = match (&own, &self.tree_model) {
                // One that only forecasts is worth nothing without the whole one behind it.
                (Some((whole, (tree, gain))), _) => (if tree.counts() { tree.n_rows() } else { *whole }, *gain),
                (None, Some(model)) => match request.reply.wants_tree().filter(|_| model.n_rows() <= most) {
                    Some(gain) => (model.n_rows(), gain),
                    None => continue,
                },
                (None, None) => continue,
            };
            let with_tree = n_rows + rows - 1;
            let is_worth = match &measured {
                _ if rows > most => false,
                Some(times) => is_worth((n_tokens, gain), times.us_for(n_rows), times.us_for(with_tree)),
                None => {
                    let (narrow, wide) = (self.times.width_for(n_rows), self.times.width_for(with_tree));
                    self.seen_times.is_worth((n_tokens, gain), narrow, wide)
                }
            };
            if !is_worth {
                request.reply.left_tree();
                continue;
            }
            (n_rows, n_tokens) = (with_tree, n_tokens + gain);
            match own {
                Some((_, (tree, _))) => {
                    n_rows = n_rows + tree.n_rows() - rows;
                    request.draft = Draft::Tree(tree);
                }
                None => of_model.push(at),
            }
        }
        let Some(model) = &mut self.tree_model else { return };
        let requests: Vec<&Active> = of_model.iter().map(|&at| &self.active[at]).collect();
        match model.trees(&mut *self.model, &requests) {
            Ok(trees) => {
                for (at, tree) in of_model.into_iter().zip(trees) {
                    self.active[at].draft = tree.map_or(Draft::None, Draft::Tree);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the draft model is left aside");
                self.tree_model = None;
                if let Some(Err(error)) = self.model.features().map(|model| model.keep_features(false)) {
                    tracing::warn!(%error, "hidden states are kept on");
                }
            }
        }
    }
}

fn no_trees() -> ServeError {
    let expected = "a model whose steps have rows of several sequences";
    let found = "fused graphs, a batch dimension, graphs without a past, or a cache of one sequence".to_owned();
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

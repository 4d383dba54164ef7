//! `ssd-q1`, self-speculative decoding: the model drafts for itself by forecast tokens.
//!
//! Forecast tokens are entries of the embedding table behind the vocabulary, trained together with a prefix of cache rows
//! that they alone see. k of them behind a token give k rows of logits: what may stand 2, 3, .. places after it. The best of
//! them become a tree of offers, and each of its nodes has forecast tokens of its own, so that whichever is accepted, the
//! next tree is known.
//!
//! *Rows* of a step: the newest token, the nodes level by level, then k forecast rows for each of them in that order. A
//! forecast row stands behind its node, and sees the prefix, the node's past and the forecast rows before it.
//!
//! *In the cache* the prefix is a sequence of its own in front of the dialog's; forecast rows are never kept.
//!
//! *Source*: libGenie 1.21, docs/speculation.md; the method is that of Lin et al., "BiTA: bi-directional tuning for lossless
//! acceleration in large language models" (2024).

mod branches;
mod forecasts;
mod prefix;
mod served;

use std::path::PathBuf;
use std::time::Instant;

use engine::{SeqId, TokenModel, TreeRow};
use genie_types::TokenId;
use session_store::ForecastPrefix;

use super::time_budget::TimeBudget;
use super::{DialogKind, Models};
use crate::config::DialogConfig;
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::kpi::Speculation;
use crate::sampler::SamplerRules;

pub use branches::{BranchMode, Branches};
pub(crate) use served::SsdTrees;

use forecasts::Forecasts;
use prefix::{NAME, Prefix};

/// The settings of an `ssd-q1` dialog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdSettings {
    /// How the tree grows: one level for each forecast token in use.
    pub branches: Branches,
    /// Forecast tokens that the model was trained for: at least as many as there are levels.
    pub n_forecast: usize,
    /// The first forecast token; those behind it follow.
    pub first_forecast: TokenId,
    /// Folder of the prefix.
    pub prefix: PathBuf,
    /// Rows that the prefix must have, at least 1; `None` takes what there is.
    pub n_prefix: Option<usize>,
}

impl SsdSettings {
    /// Those of a config's block `ssd-q1`; without one, settings that [`Ssd::new`] refuses.
    pub fn of_config(config: &DialogConfig) -> Self {
        let block = config.kind_blocks().ssd.clone().unwrap_or_default();
        let mode = block.branch_mode.as_deref().and_then(BranchMode::from_name).unwrap_or_default();
        Self {
            branches: Branches::new(block.branches, mode),
            n_forecast: block.forecast_token_count,
            first_forecast: TokenId(u32::try_from(config.context().n_vocab).unwrap_or(u32::MAX)),
            prefix: block.forecast_prefix_name,
            n_prefix: Some(block.forecast_prefix),
        }
    }

    /// Rows of a whole tree with its forecasts.
    pub fn n_rows(&self) -> usize {
        self.branches.n_nodes().saturating_mul(1 + self.branches.n_levels())
    }

    /// The prefix, read and compared with the model's cache.
    ///
    /// # Errors
    /// [`DialogError::Kind`] for settings that [`Ssd::new`] refuses, and a prefix of another size; it cannot be read.
    pub fn read_prefix(&self, model: &mut dyn TokenModel) -> Result<ForecastPrefix, DialogError> {
        self.check()?;
        Prefix::new(self.prefix.clone(), self.n_prefix).load(model)
    }

    /// Runs a forecast token behind another one, and keeps neither: whether the model has an embedding for it shows in no other way.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: the step fails.
    pub fn try_forecast(&self, model: &mut dyn TokenModel) -> Result<(), DialogError> {
        let (first, n) = (self.first_forecast.0, u32::try_from(self.n_forecast).unwrap_or(u32::MAX));
        let last = first.saturating_add(n.saturating_sub(1));
        let rows = [TreeRow::new(TokenId(0), None).without_logits(), TreeRow::new(TokenId(last), Some(0))];
        let Some(sequences) = model.sequences() else { return Ok(()) };
        sequences.process_tree(SeqId(0), &rows, &mut |_| Vec::new()).map(drop).map_err(|error| DialogError::Kind {
            kind: NAME,
            expected: format!(
                "a model that was trained for forecast tokens, with embeddings for ids {first} to {last}"
            ),
            found: error.to_string(),
        })
    }

    fn check(&self) -> Result<(), DialogError> {
        let refuse =
            |expected: String, found: &str| Err(DialogError::Kind { kind: NAME, expected, found: found.to_owned() });
        let n_levels = self.branches.n_levels();
        if n_levels == 0 || self.branches.counts().contains(&0) {
            return refuse("at least one number in `branches`, each of at least 1".into(), "another list");
        }
        if n_levels > self.n_forecast {
            let expected = format!("at most {} numbers in `branches`, the `forecast-token-count`", self.n_forecast);
            return refuse(expected, &n_levels.to_string());
        }
        if self.n_prefix == Some(0) {
            return refuse("a `forecast-prefix` of at least 1 row".into(), "0");
        }
        Ok(())
    }
}

/// Genie's `ssd-q1` dialog.
#[derive(Debug)]
pub struct Ssd {
    settings: SsdSettings,
    prefix: Prefix,
    forecasts: Forecasts,
    /// The step before offered nothing.
    only_forecast: bool,
    budget: TimeBudget,
}

impl Ssd {
    /// A dialog kind with these settings; the prefix is read once the model is known.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: no branches, more levels than forecast tokens, no prefix.
    pub fn new(settings: SsdSettings) -> Result<Self, DialogError> {
        settings.check()?;
        let prefix = Prefix::new(settings.prefix.clone(), settings.n_prefix);
        let budget = TimeBudget::of_rows(settings.n_rows());
        let forecasts = Forecasts::new(settings.branches.clone(), settings.first_forecast);
        Ok(Self { settings, prefix, forecasts, only_forecast: false, budget })
    }

    /// The same without a back-off: it forecasts with every step, whatever that costs.
    #[must_use]
    pub fn always(self) -> Self {
        Self { budget: self.budget.free(), ..self }
    }
}

impl DialogKind for Ssd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, models: &Models<'_>) -> Result<(), DialogError> {
        let n_rows = self.settings.n_rows();
        match models.main.widest_step().filter(|widest| n_rows > *widest) {
            None => Ok(()),
            Some(widest) => Err(DialogError::Kind {
                kind: NAME,
                expected: format!("graphs that give logits for the {n_rows} rows of a tree of these `branches`"),
                found: format!("at most {widest} at once: fewer or smaller branches fit"),
            }),
        }
    }

    fn prepare(&mut self, model: &mut dyn TokenModel) -> Result<(), DialogError> {
        self.prefix.put_into(model)
    }

    fn n_reserved(&self) -> usize {
        self.prefix.n_rows()
    }

    fn speculation(&self) -> Option<Speculation> {
        Some(Speculation::default())
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        if !decoding.has_started() {
            self.forecasts.forget();
        }
        let last = decoding.last().filter(|_| decoding.has_started());
        let Some(last) = last else { return decoding.advance() };
        let began = Instant::now();
        // A step that only forecasts is worth nothing without the one behind it.
        let is_paid = self.only_forecast && self.forecasts.is_known();
        if decoding.rules() != SamplerRules::Genie && !is_paid && !self.budget.may_draft() {
            self.forecasts.forget();
            return self.budget.plain_step(began, decoding);
        }
        // A stored prompt prefix may have replaced the whole cache.
        self.prefix.put_into(decoding.model())?;
        let (tree, rows) = self.forecasts.tree(last, decoding.model().n_past());
        let (mut candidates, rules) = (None, decoding.rules());
        let verified = decoding.verify_tree(&tree, &mut |draw| {
            candidates = Some(self.forecasts.candidates(&rows, draw.row, draw.logits, rules));
            Ok(())
        })?;
        self.only_forecast = tree.n_offers() == 0;
        match (&candidates, self.only_forecast) {
            (None, _) => self.budget.plain(began.elapsed()),
            // Fewer rows than a tree has: what it takes longer than a plain step is paid, and tells nothing of a tree.
            (Some(_), true) => self.budget.spent_beside_token(began.elapsed()),
            (Some(_), false) => self.budget.round(began.elapsed(), tree.n_rows() - 1, verified.n_accepted),
        }
        self.forecasts.set(decoding.model().n_past(), candidates);
        Ok(verified.stop)
    }

    fn forget(&mut self) {
        self.budget.forget_gains();
        self.forecasts.forget();
    }
}

//! Which trees the replies of a model have where several are made at once.

use super::lade::{LadeSettings, LadeTrees};
use super::ssd::{SsdSettings, SsdTrees};
use super::tree_drafts::TreeDrafts;

/// Kinds whose trees can be rows of a step that others share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Lookahead.
    Lade(LadeSettings),
    /// Forecast tokens. The model must have the prefix ([`SsdSettings::read_prefix`]) as the sequence
    /// [`ForecastPrefix::SEQ`](session_store::ForecastPrefix::SEQ).
    Ssd(SsdSettings),
}

impl TreeKind {
    /// Genie's name of the kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lade(_) => "lade",
            Self::Ssd(_) => "ssd-q1",
        }
    }

    /// Most rows of a tree.
    pub fn n_rows(&self) -> usize {
        match self {
            Self::Lade(settings) => settings.n_rows(),
            Self::Ssd(settings) => settings.n_rows(),
        }
    }

    /// For one reply.
    pub(crate) fn drafts(&self) -> Box<dyn TreeDrafts> {
        match self {
            Self::Lade(settings) => Box::new(LadeTrees::new(*settings)),
            Self::Ssd(settings) => Box::new(SsdTrees::new(settings.branches.clone(), settings.first_forecast)),
        }
    }
}

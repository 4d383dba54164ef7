//! How a graph is chosen for the next tokens.

use super::cost::CostTable;
use std::sync::Arc;

/// The planner's policies.
#[derive(Clone, Debug, Default)]
pub enum Policy {
    /// What libGenie 1.21 does today, going on where it gives up: pieces of the largest AR; for each piece the
    /// smallest CL whose smallest sufficient AR leaves room for its rows. Called `lenient`.
    #[default]
    Lenient,
    /// The same, but refusing where the real library does ([`PlanError::GenieGivesUp`](super::PlanError)). Called
    /// `genie`.
    Genie,
    /// The older strategy loop: one AR for the whole input, picked again only when CL is promoted; never demotes.
    FixedVariant,
    /// Least total time under a measured table, by dynamic programming.
    Cost(Arc<CostTable>),
}

impl Policy {
    /// The name used on command lines and in tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Lenient => "lenient",
            Self::Genie => "genie",
            Self::FixedVariant => "fixed-variant",
            Self::Cost(_) => "cost",
        }
    }
}

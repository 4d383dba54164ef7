//! `--policy`: how the planner chooses graphs.

use anyhow::Result;
use clap::ValueEnum;
use genie_types::Variant;
use kvmanager::plan::{CostTable, Policy, Variants};

/// How the planner chooses the graphs of a query.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// The graphs that libGenie runs; continues where libGenie fails although the context has room.
    #[default]
    #[value(alias = "serve")]
    Lenient,
    /// Exactly the graphs that libGenie runs; fails with status 4 where libGenie does.
    Genie,
    /// One variant for the whole input, chosen again only when the context length grows.
    FixedVariant,
    /// The cheapest plan by the step times of `calibration.json`, else by nominal costs.
    Cost,
}

impl PolicyArg {
    /// The planner's policy. `Cost` has nominal costs: a step's time grows with its AR and CL.
    pub fn policy(self, variants: &Variants) -> Result<Policy> {
        Ok(match self {
            Self::Lenient => Policy::Lenient,
            Self::Genie => Policy::Genie,
            Self::FixedVariant => Policy::FixedVariant,
            Self::Cost => {
                let nominal = |variant: &Variant| {
                    let (ar, cl) = (variant.ar().get() as f64, variant.cl().get() as f64);
                    (*variant, 100.0 + ar * (1.0 + cl / 4096.0))
                };
                Policy::Cost(CostTable::new(variants.specs().iter().map(nominal), 1.0, 0.01)?.into())
            }
        })
    }
}

//! `--policy`: how the planner chooses graphs.

use anyhow::Result;
use clap::ValueEnum;
use genie_bundle::calibration::CalibrationMismatch;
use kvmanager::plan::Policy;
use open_genie::{Model, PolicyChoice};

use crate::printer::Printer;

/// How the planner chooses the graphs of a query.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// `cost` on the embedded backend, `lenient` on others.
    #[default]
    Auto,
    /// The graphs that libGenie runs; continues where libGenie fails although the context has room.
    #[value(alias = "serve")]
    Lenient,
    /// Exactly the graphs that libGenie runs; fails with status 4 where libGenie does.
    Genie,
    /// One variant for the whole input, chosen again only when the context length grows.
    FixedVariant,
    /// The cheapest plan by the step times of `calibration.json`, else by nominal costs.
    Cost,
}

impl From<PolicyArg> for PolicyChoice {
    fn from(arg: PolicyArg) -> Self {
        match arg {
            PolicyArg::Auto => Self::Auto,
            PolicyArg::Lenient => Self::Lenient,
            PolicyArg::Genie => Self::Genie,
            PolicyArg::FixedVariant => Self::FixedVariant,
            PolicyArg::Cost => Self::Cost,
        }
    }
}

/// Warns of step times that were measured on a busy machine.
pub fn warn_of_doubts(doubts: &[String], printer: &Printer) {
    let Some((first, more)) = doubts.split_first() else { return };
    let more = if more.is_empty() { String::new() } else { format!(", and {} more doubts", more.len()) };
    printer.info(format_args!("warning: the step times were measured on a busy machine: {first}{more}"));
    printer.info("hint: `genie bench --calibrate` measures again; let nothing else run, or use more `--reps`");
}

/// Warns where nominal costs are used because the bundle's calibration cannot be.
pub fn warn_of_nominal_costs(model: &Model, mismatch: Option<&CalibrationMismatch>, printer: &Printer) -> Result<()> {
    if mismatch.is_none() && matches!(model.engine().policy(), Policy::Cost(_)) {
        warn_of_doubts(&model.calibration()?.doubts(), printer);
    }
    if let Some(why) = mismatch {
        let path = model.calibration()?.path();
        printer.info(format_args!("warning: using nominal costs, not `{}`: {why}", path.display()));
        printer.info("hint: `genie bench --calibrate` measures this bundle on this machine and writes that file");
    }
    Ok(())
}

//! `genie bench --calibrate`: a bundle's steps, timed and kept beside it.

use anyhow::{Context, Result};
use engine::Engine;
use engine::calibrate::median;

use crate::calibration::CalibrationContext;
use crate::cli::BenchArgs;
use crate::commands::ExitStatus;
use crate::printer::Printer;
use crate::threads::Threads;

/// Measures every shape, writes the calibration and prints it.
pub fn run(
    args: &BenchArgs,
    threads: &Threads,
    printer: &Printer,
    here: &CalibrationContext,
    engine: &mut Engine,
) -> Result<ExitStatus> {
    let measured = engine.calibrate(args.reps).context("cannot measure the bundle")?;
    let path = here.write(&measured, threads.count())?;
    if args.json {
        printer.data_line(std::fs::read_to_string(&path)?.trim_end())?;
    } else {
        for step in &measured.steps {
            printer.data_line(format_args!("{:<16} {:>10.1} us", step.spec.to_string(), median(&step.us)))?;
        }
        let (fixed, by_row) = (measured.switch_us, measured.switch_us_per_row);
        printer.data_line(format_args!("change of shape  {fixed:>10.1} us, and {by_row:.4} us a row"))?;
    }
    printer.info(format_args!("written to {}", path.display()));
    Ok(ExitStatus::Done)
}

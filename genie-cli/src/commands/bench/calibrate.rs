//! `genie bench --calibrate`: measures a bundle's step times and writes them into the bundle.

use anyhow::{Context, Result};
use engine::Engine;
use engine::calibrate::median;

use super::Args;
use crate::calibration::CalibrationContext;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::threads::Threads;

/// Measures each variant, writes the calibration and prints it.
pub fn run(
    args: &Args,
    threads: &Threads,
    printer: &Printer,
    calibration: &CalibrationContext,
    engine: &mut Engine,
) -> Result<ExitStatus> {
    let measured = engine.calibrate(args.reps).context("cannot measure the bundle")?;
    let path = calibration.write(&measured, threads.count())?;
    if args.json {
        printer.data_line(std::fs::read_to_string(&path)?.trim_end())?;
    } else {
        for step in &measured.steps {
            printer.data_line(format_args!("{:<16} {:>10.1} us", step.spec.to_string(), median(&step.us)))?;
        }
        let (fixed, by_row) = (measured.switch_us, measured.switch_us_per_row);
        printer.data_line(format_args!("variant switch   {fixed:>10.1} us, and {by_row:.4} us per row"))?;
    }
    printer.info(format_args!("wrote {}", path.display()));
    Ok(ExitStatus::Done)
}

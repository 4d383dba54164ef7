//! `genie bench --calibrate`: measures a bundle's step times and writes them into the bundle.

use anyhow::{Context, Result};
use engine::calibrate::median;
use open_genie::Model;

use super::Args;
use crate::args::warn_of_doubts;
use crate::exit::ExitStatus;
use crate::outfile;
use crate::printer::Printer;

/// Measures each variant, writes the calibration and prints it.
pub fn run(args: &Args, printer: &Printer, model: &mut Model) -> Result<ExitStatus> {
    outfile::must_be_writable("--calibrate", &model.calibration()?.path())?;
    let measured = model.engine_mut().calibrate(args.reps).context("cannot measure the bundle")?;
    let path = model.calibration()?.write(&measured, model.threads().count())?;
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
    warn_of_doubts(&model.calibration()?.doubts(), printer);
    Ok(ExitStatus::Done)
}

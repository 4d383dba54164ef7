//! `genie bench`: how fast a bundle is here, next to what the machine can do; and with `--calibrate` the times that
//! `--policy cost` plans by.
//!
//! *Units*: milliseconds, tokens a second, 10^9 bytes or operations a second. Each test runs once uncounted, then `--reps`
//! times. Tokens are made up: speed does not depend on them. A measure is printed as soon as it is there.

mod calibrate;
mod limits;
mod measure;
mod record;
mod table;
mod work;

use anyhow::Result;

use super::ExitStatus;
use crate::calibration::Here;
use crate::cli::{BenchArgs, PolicyArg};
use crate::failure::Hinted;
use crate::printer::Printer;
use crate::{backend, bundle, demo};
use limits::Ceiling;
use record::{About, Record};
use work::Work;

/// Measures and prints, or measures and writes the calibration.
pub fn run(args: &BenchArgs, printer: &Printer) -> Result<ExitStatus> {
    if args.reps == 0 {
        return Err(Hinted::error("`--reps 0` measures nothing", "give at least 1"));
    }
    if args.threads == Some(0) {
        return Err(Hinted::error("`--threads 0` runs nothing", "give at least 1, or leave it out for all cores"));
    }
    let path = match &args.config {
        Some(path) => bundle::config_path(path)?,
        None => demo::config(&args.backend, printer)?,
    };
    let config = bundle::config(&path, printer)?;
    let backend = backend::open(&args.backend, args.threads)?;
    let here = Here::new(&path, &config.engine().ctx_bins, &backend)?;
    let mut engine = bundle::engine(config.engine(), &backend, PolicyArg::Serve)?;
    if args.calibrate {
        return calibrate::run(args, printer, &here, &mut engine);
    }
    engine.set_policy(here.policy(args.policy, engine.variants(), printer)?);
    let tests = measure::tests(args, &engine)?;
    let work = Work::of(&engine, &config.engine().ctx_bins)?;
    let about = About::new(&path, &here, args, engine.policy().name());

    let mut out = table::Out::new(printer, args.json);
    let ceiling =
        if args.limits { limits::measure(about.threads, args.reps, &about, &mut out)? } else { Ceiling::default() };
    for test in &tests {
        let seconds = measure::run(test, &mut engine, args.reps)?;
        out.measure(&Record::new(&about, test, &seconds, &work, &ceiling))?;
    }
    Ok(ExitStatus::Done)
}

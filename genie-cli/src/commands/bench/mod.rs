//! `genie bench`: how fast a bundle is here, next to what the machine can do; and with `--calibrate` the times that
//! `--policy cost` plans by.
//!
//! *Units*: milliseconds, tokens a second, 10^9 bytes or operations a second. Each test runs once uncounted, then `--reps`
//! times. Tokens are made up: speed does not depend on them. A measure is printed as soon as it is there. Profiles are taken
//! in runs of their own, after all measures.

mod calibrate;
mod measure;
mod outfile;
mod output;
#[cfg(feature = "plot")]
mod plot;
mod profile;
mod record;
mod roofline;
mod trace;
mod weight_traffic;

use anyhow::Result;
use engine::Engine;

use super::ExitStatus;
use crate::calibration::CalibrationContext;
use crate::cli::{BenchArgs, PolicyArg};
use crate::failure::UserError;
use crate::printer::Printer;
use crate::threads::Threads;
use crate::{backend, bundle, demo};
use measure::Test;
use record::{Record, RunMetadata};
use roofline::Roofline;
use weight_traffic::WeightTraffic;

/// Measures and prints, or measures and writes the calibration.
pub fn run(args: &BenchArgs, printer: &Printer) -> Result<ExitStatus> {
    if args.reps == 0 {
        return Err(UserError::error("`--reps 0` measures nothing", "give at least 1"));
    }
    if args.threads.threads == Some(0) {
        return Err(UserError::error("`--threads 0` runs nothing", "give at least 1, or leave it out for all cores"));
    }
    if let Some(path) = &args.trace {
        outfile::must_be_writable("--trace", path)?;
    }
    #[cfg(feature = "plot")]
    if let Some(path) = &args.plot {
        outfile::must_be_writable("--plot", path)?;
    }
    let path = match &args.config {
        Some(path) => bundle::config_path(path)?,
        None => demo::config(&args.backend, printer)?,
    };
    let config = bundle::config(&path, printer)?;
    let threads = Threads::new(&args.threads, config.backend().cpu_mask)?;
    let backend = backend::open(&args.backend, &threads)?;
    let here = CalibrationContext::new(&path, &config.engine().ctx_bins, &backend)?;
    let mut engine = bundle::engine(config.engine(), &backend, PolicyArg::Lenient)?;
    if args.calibrate {
        return calibrate::run(args, &threads, printer, &here, &mut engine);
    }
    engine.set_policy(here.policy(args.policy, engine.variants(), printer)?);
    let tests = measure::tests(args, &engine)?;
    let work = WeightTraffic::of(&engine, &config.engine().ctx_bins)?;
    let about = RunMetadata::new(&path, &here, &threads, engine.policy().name());

    let mut out = output::Output::new(printer, args.json);
    let ceiling =
        if args.limits { roofline::measure(about.threads, args.reps, &about, &mut out)? } else { Roofline::default() };
    #[cfg(feature = "plot")]
    let mut plot = plot::Plot::default();
    for test in &tests {
        let seconds = measure::run(test, &mut engine, args.reps)?;
        let record = Record::new(&about, test, &seconds, &work, &ceiling);
        out.measure(&record)?;
        #[cfg(feature = "plot")]
        plot.add(test, &record);
    }
    #[cfg(feature = "plot")]
    if let Some(path) = &args.plot {
        outfile::write("--plot", path, &plot.svg(&about.title())?)?;
    }
    if args.profile || args.trace.is_some() {
        profiles(args, &tests, &mut engine, printer, &mut out)?;
    }
    Ok(ExitStatus::Done)
}

/// Runs each test again under a profile.
fn profiles(
    args: &BenchArgs,
    tests: &[Test],
    engine: &mut Engine,
    printer: &Printer,
    out: &mut output::Output<'_>,
) -> Result<()> {
    let mut last = Vec::new();
    for test in tests {
        let mut steps = profile::steps(test, engine, args.reps)?;
        let times = if args.profile { profile::times(&steps) } else { Vec::new() };
        for time in &times {
            out.op(time)?;
        }
        last.extend(steps.pop());
    }
    if last.iter().all(|step| step.runs.iter().all(|run| profile::nodes(&run.events).is_empty())) {
        printer.info("warning: this backend tells no times of ops; only graphs are shown");
    }
    match &args.trace {
        Some(path) => outfile::write("--trace", path, &trace::document(&last).to_string()),
        None => Ok(()),
    }
}

//! `genie bench`: prefill and decode rates of a bundle on this machine; with `--calibrate`, the step times for
//! `--policy cost`.
//!
//! *Units*: milliseconds, tokens/s, 10^9 bytes/s or operations/s. Each test runs once to warm up, then `--reps` times. Tokens
//! are arbitrary: speed does not depend on them. Each result is printed as soon as it is measured. Profiles are taken in
//! separate runs after all measurements.

mod calibrate;
mod disturb;
pub(super) mod measure;
mod output;
#[cfg(feature = "plot")]
mod plot;
pub(super) mod profile;
mod record;
mod roofline;
mod rows;
mod serve;
mod speculation;
mod trace;
pub(super) mod weight_traffic;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use open_genie::{Opened, Perf};

use crate::args::number;
use crate::args::{BackendArgs, BundleArgs, ContextSizeArg, PolicyArg, ThreadArgs, warn_of_nominal_costs};
use crate::exit::ExitStatus;
use crate::failure::{self, UserError};
use crate::interrupt::Interrupted;
use crate::outfile;
use crate::printer::Printer;
use disturb::Disturbance;
use measure::Test;
use profile::OpTime;
use record::{Measured, Record, RunMetadata};
use roofline::{ReadGauge, ReadLimit, Roofline};
use weight_traffic::WeightTraffic;

/// Tokens before the replies of `--spec-accept`.
const SPEC_PROMPT: usize = 32;

/// Flags of `genie bench`.
#[derive(clap::Args)]
pub struct Args {
    /// The model, as for `--model`.
    #[arg(value_name = "MODEL", conflicts_with_all = ["named", "config"])]
    pub word: Option<String>,
    #[command(flatten)]
    pub bundle: BundleArgs,
    #[command(flatten)]
    pub context: ContextSizeArg,
    /// Measure each variant's step and the changes between variants, and write `calibration.json` into the bundle.
    #[arg(long)]
    pub calibrate: bool,
    /// Prompt lengths to prefill, in tokens (`pp`, as in llama-bench).
    #[arg(long, value_delimiter = ',', default_value = "128,512", value_name = "N,N", value_parser = number::count, conflicts_with = "calibrate")]
    pub pp: Vec<usize>,
    /// Tokens to decode, one by one (`tg`, as in llama-bench).
    #[arg(long, value_delimiter = ',', default_value = "64", value_name = "N,N", value_parser = number::count, conflicts_with = "calibrate")]
    pub tg: Vec<usize>,
    /// Tokens in the cache before decoding starts (as llama-bench's depth); each `--tg` is measured at each of them.
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "N,N", value_parser = number::count, conflicts_with = "calibrate")]
    pub fill: Vec<usize>,
    /// Instead of the above: decode `--tg` tokens with drafts whose tokens are right with these probabilities, by prompt lookup,
    /// and without drafts, in turns.
    #[arg(long, value_delimiter = ',', value_name = "P,P", value_parser = number::probability, conflicts_with_all = ["calibrate", "limits", "profile", "trace", "pp", "fill"])]
    pub spec_accept: Vec<f64>,
    /// Most tokens of a draft of `--spec-accept`.
    #[arg(long, default_value_t = 7, value_name = "TOKENS", value_parser = number::at_least_one, requires = "spec_accept")]
    pub draft_len: usize,
    /// Measured runs per test, after one warm-up run.
    #[arg(long, default_value_t = 5, value_parser = number::count)]
    pub reps: usize,
    /// Also measure peak memory bandwidth and compute with the same thread count, and report rates as a percentage of peak. Bandwidth is
    /// measured again before and after each decode test, whose percentage is of the mean of the two.
    #[arg(long, conflicts_with = "calibrate")]
    pub limits: bool,
    /// Keep this many other threads busy meanwhile: how much a program beside it costs; profiles and traces too. Limits are measured without them.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024), hide_default_value = true, conflicts_with_all = ["calibrate", "spec_accept", "serve"])]
    pub disturb: u16,
    /// Print the time of each op per step of each test; runs each test again.
    #[arg(long, conflicts_with = "calibrate")]
    pub profile: bool,
    /// Write the last step of each test as a Chrome trace: the step, its graphs, their ops.
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    pub trace: Option<PathBuf>,
    /// Plot tokens/s against prompt length and context fill, as an SVG.
    #[cfg(feature = "plot")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["calibrate", "serve", "spec_accept"])]
    pub plot: Option<PathBuf>,
    #[command(flatten)]
    pub serving: serve::ServeArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value_t)]
    pub policy: PolicyArg,
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// Print results in a form for other programs.
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "limits", "calibrate", "spec_accept", "profile", "serve"])]
    pub output: Option<rows::Format>,
    /// Print one JSON line per result.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

impl Args {
    /// Whether stdout is JSON, an error's line too.
    pub fn is_json(&self) -> bool {
        self.json || self.output == Some(rows::Format::Jsonl)
    }

    /// Whether the tests have a purpose beside what is printed.
    fn writes_files(&self) -> bool {
        #[cfg(feature = "plot")]
        let plot = self.plot.is_some();
        #[cfg(not(feature = "plot"))]
        let plot = false;
        plot || self.trace.is_some()
    }
}

/// Measures and prints, or measures and writes the calibration.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    if args.reps == 0 {
        return Err(UserError::error("`--reps 0` measures nothing", "use at least 1"));
    }
    if let Some(path) = &args.trace {
        outfile::must_be_writable("--trace", path)?;
    }
    #[cfg(feature = "plot")]
    if let Some(path) = &args.plot {
        outfile::must_be_writable("--plot", path)?;
    }
    let bundle = args.bundle.read_word(args.word.as_deref(), args.context.context_size, &args.backend, printer)?;
    let options = args.context.apply(args.threads.apply(args.backend.options()?)).perf(Perf::LeaveAlone);
    let mut model = bundle.open_either(&options)?;
    // Before anything is measured: no check runs beside it, and no figure is of damaged weights.
    model.check_weights_in_full()?;
    model.finish_loading();
    let deferred = printer.interrupt().defer();
    let stop = model.stop_flag();
    deferred.stop_with(move || stop.set());
    if args.calibrate {
        return calibrate::run(args, printer, &mut model.plain("a calibration")?);
    }
    match &mut model {
        Opened::Plain(model) => {
            let mismatch = model.set_policy(args.policy.into())?;
            warn_of_nominal_costs(model, mismatch.as_ref(), printer)?;
        }
        Opened::Fused(_) if args.policy != PolicyArg::default() => {
            return Err(open_genie::Error::NotWithFused { what: "a planner policy" }.into());
        }
        Opened::Fused(_) => {}
    }
    if args.serving.serve {
        return serve::run(&args.serving, model, args.reps, args.json, printer);
    }
    let metadata = RunMetadata::new(&model)?;
    let weights = WeightTraffic::of(&model)?;
    if !args.spec_accept.is_empty() {
        let mut out = output::Output::new(printer, args.json);
        let mut session = model.into_session()?;
        let &[tokens] = &args.tg[..] else {
            let what = format!("`--tg`: expected one number with `--spec-accept`, found {}", args.tg.len());
            return Err(UserError::error(what, "measure one length at a time"));
        };
        let (accept, prompt) = (&args.spec_accept[..], SPEC_PROMPT);
        let plan = speculation::Plan { accept, tokens, prompt, draft_len: args.draft_len, reps: args.reps };
        speculation::run(&plan, &mut session, &metadata, &mut out)?;
        return Ok(ExitStatus::Done);
    }
    let tests = measure::tests(args, model.context_size())?;

    let mut out = output::Output::new(printer, args.json).in_format(args.output);
    let roofline = if args.limits {
        roofline::measure(metadata.threads, args.reps, &metadata, &mut out)?
    } else {
        Roofline::default()
    };
    #[cfg(feature = "plot")]
    let mut plot = plot::Plot::default();
    let mut n_done = 0;
    for test in &tests {
        if !printer.has_reader() && !args.writes_files() {
            return Ok(ExitStatus::Done);
        }
        let measured = match run_test(test, &mut model, &roofline, args) {
            Err(error) if failure::is_stop(&error) => break,
            Ok(measured) => measured,
            Err(error) => {
                // What was printed stays a whole document.
                out.finish()?;
                return Err(error);
            }
        };
        let record = Record::new(&metadata, test, &measured, &weights, &roofline);
        out.measure(&record)?;
        if let Some(doubt) = record.doubt().filter(|_| args.disturb == 0) {
            printer.info(format_args!("warning: {doubt}: the machine was busy"));
        }
        #[cfg(feature = "plot")]
        plot.add(test, &record);
        n_done += 1;
    }
    out.finish()?;
    #[cfg(feature = "plot")]
    if let Some(path) = args.plot.as_ref().filter(|_| n_done > 0) {
        outfile::write("--plot", path, &plot.svg(&metadata.title(args.disturb.into()))?)?;
    }
    if let Some(signal) = printer.interrupt().received() {
        return Err(Interrupted::new(signal, format!("{n_done} of {} tests are done", tests.len())).into());
    }
    if args.profile || args.trace.is_some() {
        profiles(args, &tests, &mut model, printer, &mut out)?;
    }
    Ok(ExitStatus::Done)
}

/// Runs a test beside the busy threads that are wanted. The read bandwidth is measured without them, right before the runs of a decode
/// test, its cache filled, and right after them.
fn run_test(test: &Test, model: &mut Opened, roofline: &Roofline, args: &Args) -> Result<Measured> {
    measure::prepare(test, model.token_model())?;
    let gauge = roofline.reads.as_ref().filter(|_| matches!(test, Test::Decode { .. }));
    let before = gauge.map(ReadGauge::measure).transpose()?;
    let disturbance = Disturbance::start(args.disturb.into()).context("starting the threads of `--disturb`")?;
    let seconds = measure::run(test, model.token_model(), args.reps)?;
    let disturb = disturbance.n_threads();
    drop(disturbance);
    let after = gauge.map(ReadGauge::measure).transpose()?;
    let reads = before.zip(after).map(|(before, after)| ReadLimit { before, after });
    Ok(Measured { seconds, disturb, reads })
}

/// Runs each test again with a profile, beside as many busy threads.
fn profiles(
    args: &Args,
    tests: &[Test],
    model: &mut Opened,
    printer: &Printer,
    out: &mut output::Output<'_>,
) -> Result<()> {
    let mut last = Vec::new();
    for test in tests {
        let (mut steps, disturb) = profile::steps(test, model, args.reps, args.disturb.into())?;
        let times = if args.profile { profile::times(&steps) } else { Vec::new() };
        for time in times {
            out.op(&OpTime { disturb, ..time })?;
        }
        last.extend(steps.pop());
    }
    if last.iter().all(|step| step.runs.iter().all(|run| profile::nodes(&run.events).is_empty())) {
        printer.info("warning: this backend reports no times of ops; only graphs are shown");
    }
    match &args.trace {
        Some(path) => outfile::write("--trace", path, &trace::document(&last).to_string()),
        None => Ok(()),
    }
}

//! `genie bench --serve`: a trace of requests under several policies of the scheduler, side by side in one run.
//!
//! Policies take turns, seed by seed, on one open model. Replies have the lengths that the trace says: nothing ends them early.

mod live;
mod metrics;
mod picture;
mod replay;
mod table;
mod trace_file;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use open_genie::Opened;
use open_genie::serving::{Policy, ServeOptions, StepTimes};

use crate::args::{number, step_policy};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::interrupt::Interrupted;
use crate::outfile;
use crate::printer::Printer;
use metrics::Summary;
use trace_file::Trace;
use workload::{Arrival, Loop, Mix};

/// Flags of `genie bench --serve`.
#[derive(clap::Args)]
pub struct ServeArgs {
    /// Serve a trace of many requests under several policies of the scheduler, and compare them.
    #[arg(long, conflicts_with_all = ["calibrate", "profile", "trace", "limits", "pp", "tg", "fill", "spec_accept"])]
    pub serve: bool,
    /// The requests: short chats, documents among chats, prompts with a long beginning in common, or long prompts with short replies.
    #[arg(long, value_enum, default_value = "chat", requires = "serve", value_name = "MIX")]
    pub mix: Mix,
    /// Clients that each send the next request once their last is over.
    #[arg(long, default_value_t = 4, requires = "serve", value_parser = number::at_least_one, value_name = "N")]
    pub clients: usize,
    /// Requests a second, at random times, instead of clients that wait.
    #[arg(long, requires = "serve", conflicts_with = "clients", value_parser = number::rate, value_name = "RATE")]
    pub rate: Option<f64>,
    /// Requests of a mix.
    #[arg(long, default_value_t = 8, requires = "serve", value_parser = number::at_least_one, value_name = "N")]
    pub requests: usize,
    /// Seeds of the traces; each is run under all policies.
    #[arg(long, value_delimiter = ',', default_value = "1", requires = "serve", value_name = "N,N")]
    pub seeds: Vec<u64>,
    /// Policies, the first one is what replies are compared with: one, prefill-first, alternating, fused, batched,
    /// alternating-batched, prefill-first-batched.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "one,prefill-first,alternating,fused,batched",
        requires = "serve",
        value_name = "P,P",
        value_parser = step_policy
    )]
    pub policies: Vec<Policy>,
    /// Time between tokens that steps are chosen for, in ms; 0 for the best throughput.
    #[arg(long, default_value_t = 150, requires = "serve", value_name = "MS")]
    pub target_ms: u64,
    /// Requests that have rows in the cache at once [default: `max-slots` of the config, or 8].
    #[arg(long, requires = "serve", value_parser = number::slots, value_name = "N")]
    pub slots: Option<usize>,
    /// Most rows of prompts in one step [default: `prefill-chunk-size` of the config, or as many as fit].
    #[arg(long, requires = "serve", value_parser = number::at_least_one, value_name = "N")]
    pub chunk: Option<usize>,
    /// Replay this trace instead of a mix: a line of JSON a request, which says who sends it and when. Or what `genie serve --record` wrote:
    /// requests come at its times, with prompts of random tokens and replies of its lengths.
    #[arg(long, requires = "serve", conflicts_with_all = ["mix", "requests", "seeds", "rate", "clients"], value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Write the first trace, to be replayed: as it was, whether clients waited or not.
    #[arg(long, requires = "serve", value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Draw what each step of the first trace did, as an SVG: a lane for each request, a strip of rates, for each policy.
    #[arg(long, requires = "serve", value_name = "FILE")]
    pub picture: Option<PathBuf>,
}

/// Measures steps, then serves each trace under each policy.
pub fn run(args: &ServeArgs, mut model: Opened, reps: usize, json: bool, printer: &Printer) -> Result<ExitStatus> {
    for (flag, path) in [("--record", &args.record), ("--picture", &args.picture)] {
        if let Some(path) = path {
            outfile::must_be_writable(flag, path)?;
        }
    }
    let context = model.bundle().config().context().size.min(model.context_size());
    // Before the steps are measured: a file that is no trace is refused at once.
    let traces = traces(args, context, printer)?;
    let Some(times) = model.measure_step_times(reps)? else {
        return Err(UserError::error("this bundle has no graph to serve with", "compile one with AR 1 and wider"));
    };
    table::print_times(&times, json, printer)?;
    let of_config = model.bundle().serve_options();
    let mut serving = model.into_serving(None)?;
    if let Some(note) = serving.note() {
        printer.info(format_args!("note: {note}"));
    }
    if let Some(path) = &args.record {
        outfile::write("--record", path, &trace_file::text(&traces[0].1)?)?;
    }
    let scheduler = serving.scheduler();
    scheduler.set_base(scheduler.base().without_end_tokens());
    let mut pictures = Vec::new();
    let mut header = false;
    for (number, (seed, trace)) in traces.iter().enumerate() {
        let mut first = Vec::new();
        for &policy in &args.policies {
            // The reader of the results has left, and no picture is wanted of them either.
            if !printer.has_reader() && (args.picture.is_none() || number > 0) {
                return Ok(ExitStatus::Done);
            }
            scheduler.set_options(options(args, &of_config, policy, &times))?;
            let interrupted = || printer.interrupt().received();
            let replayed = replay::replay(scheduler, trace, &|| interrupted().is_some());
            if let Some(signal) = interrupted() {
                return Err(Interrupted::new(signal, "the policies before are done".to_owned()).into());
            }
            let (seen, steps) = replayed?;
            if first.is_empty() {
                first = seen.iter().map(|seen| seen.tokens.clone()).collect();
            }
            let target = if args.target_ms == 0 { f64::INFINITY } else { args.target_ms as f64 };
            let summary = Summary::new(policy.name(), *seed, &seen, &steps, &first, target);
            table::print(&summary, json, &mut header, printer)?;
            if let Some(why) = seen.iter().find_map(|seen| seen.failed.as_ref()) {
                if seen.iter().all(|seen| seen.failed.is_some()) {
                    return Err(UserError::error(
                        format!("each request of the trace failed: {why}"),
                        "prompts and replies have to fit the context",
                    ));
                }
                printer.info(format_args!("warning: a request failed: {why}"));
            }
            if number == 0 {
                pictures.push((summary, seen, steps));
            }
        }
        if let Some(path) = args.picture.as_ref().filter(|_| number == 0) {
            outfile::write("--picture", path, &picture::svg(&pictures))?;
        }
    }
    Ok(ExitStatus::Done)
}

/// The traces of the seeds; the one that is replayed has seed 0.
fn traces(args: &ServeArgs, context: usize, printer: &Printer) -> Result<Vec<(u64, Vec<Arrival>)>> {
    if let Some(path) = &args.replay {
        let Trace { arrivals, note } = trace_file::read(path)?;
        if let Some(note) = note {
            printer.info(note);
        }
        return Ok(vec![(0, arrivals)]);
    }
    let how = args.rate.map_or(Loop::Closed { clients: args.clients }, |rate| Loop::Open { rate });
    let of = |seed: &u64| (*seed, workload::of_mix(args.mix, how, args.requests, *seed, context));
    Ok(args.seeds.iter().map(of).collect())
}

/// Flags win over the config's `batching` block. Replies have the length that the trace says: `prefill-only` does not count.
fn options(args: &ServeArgs, of_config: &ServeOptions, policy: Policy, times: &StepTimes) -> ServeOptions {
    ServeOptions {
        policy,
        max_slots: args.slots.unwrap_or(of_config.max_slots),
        prefill_chunk: args.chunk.or(of_config.prefill_chunk),
        coalesce: of_config.coalesce,
        target: (args.target_ms > 0).then(|| Duration::from_millis(args.target_ms)),
        max_waiting: usize::MAX,
        step_times: Some(times.clone()),
        ..ServeOptions::default()
    }
}

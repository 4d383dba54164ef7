//! `genie bench --serve`: a trace of requests under several policies of the scheduler, side by side in one run.
//!
//! Policies take turns, seed by seed, on one open model. Replies have the lengths that the trace says: nothing ends them early.

mod metrics;
mod picture;
mod workload;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use open_genie::serving::{
    Event, Policy, Request, RequestId, RequestSettings, Scheduler, ServeError, ServeOptions, StepTime, StepTimes,
};
use open_genie::{Opened, Reply, SamplerSettings};

use crate::args::number;
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::interrupt::Interrupted;
use crate::outfile;
use crate::printer::Printer;
use metrics::{Ran, Seen, Summary};
use workload::{Arrival, Loop, Mix};

/// Flags of `genie bench --serve`.
#[derive(clap::Args)]
pub struct ServeArgs {
    /// Serve a trace of many requests under several policies of the scheduler, and compare them.
    #[arg(long, conflicts_with_all = ["calibrate", "profile", "trace", "limits"])]
    pub serve: bool,
    /// The requests: short chats, documents among chats, or prompts with a long beginning in common.
    #[arg(long, value_enum, default_value = "chat", requires = "serve", value_name = "MIX")]
    pub mix: Mix,
    /// Clients that each send the next request once their last is over.
    #[arg(long, default_value_t = 4, requires = "serve", value_parser = number::count, value_name = "N")]
    pub clients: usize,
    /// Requests a second, at random times, instead of clients that wait.
    #[arg(long, requires = "serve", conflicts_with = "clients", value_name = "RATE")]
    pub rate: Option<f64>,
    /// Requests of a mix.
    #[arg(long, default_value_t = 8, requires = "serve", value_parser = number::count, value_name = "N")]
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
        value_parser = policy
    )]
    pub policies: Vec<Policy>,
    /// Time between tokens that steps are chosen for, in ms; 0 for the best throughput.
    #[arg(long, default_value_t = 150, requires = "serve", value_name = "MS")]
    pub target_ms: u64,
    /// Requests that have rows in the cache at once [default: `max-slots` of the config, or 8].
    #[arg(long, requires = "serve", value_parser = number::count, value_name = "N")]
    pub slots: Option<usize>,
    /// Most rows of prompts in one step [default: `prefill-chunk-size` of the config, or as many as fit].
    #[arg(long, requires = "serve", value_parser = number::count, value_name = "N")]
    pub chunk: Option<usize>,
    /// Replay this trace instead of a mix: a line of JSON a request.
    #[arg(long, requires = "serve", conflicts_with_all = ["mix", "requests", "seeds", "rate"], value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Write the first trace, to be replayed.
    #[arg(long, requires = "serve", value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Draw what each step did, as an SVG: a lane for each request, a strip of rates, for each policy.
    #[arg(long, requires = "serve", value_name = "FILE")]
    pub picture: Option<PathBuf>,
}

fn policy(text: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(Policy::name).join(", ");
    Policy::by_name(text).ok_or_else(|| format!("expected one of {}", names()))
}

/// Measures steps, then serves each trace under each policy.
pub fn run(args: &ServeArgs, mut model: Opened, reps: usize, json: bool, printer: &Printer) -> Result<ExitStatus> {
    for (flag, path) in [("--record", &args.record), ("--picture", &args.picture)] {
        if let Some(path) = path {
            outfile::must_be_writable(flag, path)?;
        }
    }
    if args.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(UserError::error("`--rate` is no rate", "give requests a second, above 0"));
    }
    let Some(times) = model.measure_step_times(reps)? else {
        return Err(UserError::error("this bundle has no graph to serve with", "compile one with AR 1 and wider"));
    };
    print_times(&times, json, printer)?;
    let context = model.bundle().config().context().size.min(model.context_size());
    let of_config = model.bundle().serve_options();
    let mut serving = model.into_serving(None)?;
    let traces = traces(args, context)?;
    if let Some(path) = &args.record {
        outfile::write("--record", path, &workload::text(&traces[0].1)?)?;
    }
    let scheduler = serving.scheduler();
    scheduler.set_base(scheduler.base().without_end_tokens());
    let mut pictures = Vec::new();
    let mut header = false;
    for (number, (seed, trace)) in traces.iter().enumerate() {
        let mut first = Vec::new();
        for &policy in &args.policies {
            if let Some(signal) = printer.interrupt().received() {
                return Err(Interrupted::new(signal, "the policies before are done".to_owned()).into());
            }
            scheduler.set_options(options(args, &of_config, policy, &times))?;
            let (seen, steps) = replay(scheduler, trace, closed(args))?;
            if first.is_empty() {
                first = seen.iter().map(|seen| seen.tokens.clone()).collect();
            }
            let target = if args.target_ms == 0 { f64::INFINITY } else { args.target_ms as f64 };
            let summary = Summary::new(policy.name(), *seed, &seen, &steps, &first, target);
            print(&summary, json, &mut header, printer)?;
            if let Some(why) = seen.iter().find_map(|seen| seen.failed.as_ref()) {
                printer.info(format_args!("warning: a request failed: {why}"));
            }
            if number == 0 {
                pictures.push((summary, seen, steps));
            }
        }
    }
    if let Some(path) = &args.picture {
        outfile::write("--picture", path, &picture::svg(&pictures))?;
    }
    Ok(ExitStatus::Done)
}

fn closed(args: &ServeArgs) -> bool {
    args.rate.is_none() && args.replay.is_none()
}

fn traces(args: &ServeArgs, context: usize) -> Result<Vec<(u64, Vec<Arrival>)>> {
    if let Some(path) = &args.replay {
        return Ok(vec![(0, workload::read(path)?)]);
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

/// Serves a trace; what each client saw, and the steps.
fn replay(scheduler: &mut Scheduler, trace: &[Arrival], closed: bool) -> Result<(Vec<Seen>, Vec<Ran>)> {
    let n_vocab = scheduler.vocab_size();
    let prompts: Vec<_> = trace.iter().map(|arrival| arrival.tokens(n_vocab)).collect();
    let began = Instant::now();
    let ms = || began.elapsed().as_secs_f64() * 1e3;
    let mut seen = vec![Seen::default(); trace.len()];
    let mut ids: Vec<Option<RequestId>> = vec![None; trace.len()];
    let mut over = vec![false; trace.len()];
    let mut steps: Vec<Ran> = Vec::new();
    while over.iter().any(|over| !over) {
        let now = ms();
        for at in 0..trace.len() {
            let arrival = &trace[at];
            let free = !closed || !(0..at).any(|before| trace[before].client == arrival.client && !over[before]);
            if ids[at].is_some() || over[at] || !free || (!closed && arrival.at_ms as f64 > now) {
                continue;
            }
            let mut settings = RequestSettings::new(SamplerSettings::argmax());
            settings.max_tokens = Some(arrival.reply);
            let request = Request { prompt: prompts[at].clone(), settings, priority: 0 };
            seen[at].n_prompt = arrival.prompt;
            seen[at].sent = if closed { now } else { arrival.at_ms as f64 };
            match scheduler.submit(request, (seen[at].sent * 1e3) as u64) {
                Ok(id) => ids[at] = Some(id),
                Err(error) => {
                    seen[at].failed = Some(error.to_string());
                    over[at] = true;
                }
            }
        }
        let at = ms();
        let report = match scheduler.tick((at * 1e3) as u64) {
            Err(ServeError::Engine(error)) => return Err(error.into()),
            report => report?,
        };
        let done = ms();
        if report.rows.is_empty() {
            let waits = !scheduler.is_idle() || over.iter().any(|over| !over);
            if waits && scheduler.is_idle() {
                std::thread::sleep(Duration::from_micros(200));
            }
        } else {
            let number = |id: u64| ids.iter().position(|own| own.is_some_and(|own| own.0 == id)).unwrap_or(0) as u64;
            let rows = report.rows.iter().map(|rows| (number(rows.id), rows.n, rows.prefill)).collect();
            steps.push(Ran { at, ms: done - at, width: report.width, rows });
        }
        for event in scheduler.take_events() {
            let Some(place) = ids.iter().position(|id| *id == Some(event.id())) else { continue };
            match event {
                Event::Piece { piece, .. } => {
                    seen[place].tokens_at.extend(piece.tokens.iter().map(|_| done));
                    seen[place].tokens.extend(piece.tokens.iter().map(|token| token.0));
                }
                Event::Done(finished) => {
                    let Reply { stop, .. } = &finished.reply;
                    if stop.name() != "max-num-tokens" {
                        seen[place].failed = Some(format!("the reply ended by {stop}"));
                    }
                    (seen[place].n_shared, seen[place].n_parked) = (finished.n_shared, finished.n_parked);
                    over[place] = true;
                }
                Event::Failed { error, .. } => {
                    seen[place].failed = Some(error.to_string());
                    over[place] = true;
                }
                _ => {}
            }
        }
    }
    Ok((seen, steps))
}

fn print_times(times: &StepTimes, json: bool, printer: &Printer) -> Result<()> {
    for &StepTime { width, us } in times.all() {
        if json {
            printer.data_line(serde_json::json!({"test": "step", "width": width, "ms": us / 1e3}))?;
        } else {
            printer.data_line(format_args!("step of {width:>4} rows: {:>8.1} ms", us / 1e3))?;
        }
    }
    Ok(())
}

fn print(s: &Summary, json: bool, header: &mut bool, printer: &Printer) -> Result<()> {
    if json {
        return printer.data_line(serde_json::to_string(s)?);
    }
    if !std::mem::replace(header, true) {
        printer.data_line(format_args!(
            "{:<22} {:>4} {:>8} {:>17} {:>23} {:>9} {:>9} {:>8} {:>7} {:>6}",
            "policy",
            "seed",
            "seconds",
            "ttft p50/p99 ms",
            "itl p50/p99/max ms",
            "in tok/s",
            "out tok/s",
            "goodput",
            "padding",
            "same"
        ))?;
    }
    let ttft = format!("{:.0} / {:.0}", s.ttft_ms.p50, s.ttft_ms.p99);
    let itl = format!("{:.0} / {:.0} / {:.0}", s.itl_ms.p50, s.itl_ms.p99, s.itl_ms.max);
    let same = format!("{}/{}", s.same_replies, s.requests);
    printer.data_line(format_args!(
        "{:<22} {:>4} {:>8.2} {ttft:>17} {itl:>23} {:>9.1} {:>9.1} {:>8.2} {:>6.0}% {same:>6}",
        s.policy,
        s.seed,
        s.seconds,
        s.in_tok_s,
        s.out_tok_s,
        s.goodput,
        s.padding * 100.0
    ))
}

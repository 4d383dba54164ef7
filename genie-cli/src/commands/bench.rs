//! `genie bench`: how fast a bundle is here, and with `--calibrate` the times that `--policy cost` plans by.
//!
//! *Units*: milliseconds and tokens a second. Each test runs once uncounted, then `--reps` times; the middle, the
//! smallest and the largest are told. Tokens are made up: speed does not depend on them.

use std::time::Instant;

use anyhow::{Context, Result};
use engine::calibrate::median;
use engine::{Engine, TokenModel};
use genie_types::TokenId;
use serde::Serialize;

use super::ExitStatus;
use crate::calibration::{BackendId, Here, Machine};
use crate::cli::{BenchArgs, PolicyArg};
use crate::failure::Hinted;
use crate::printer::Printer;
use crate::{backend, bundle, demo};

/// The document of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report<'a> {
    build: &'static str,
    bundle: String,
    backend: &'a BackendId,
    machine: &'a Machine,
    threads: Option<usize>,
    policy: &'static str,
    results: Vec<Outcome>,
}

/// One test.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Outcome {
    test: String,
    tokens: usize,
    runs: usize,
    ms: Spread,
    tokens_per_second: Spread,
}

#[derive(Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        Self { median: median(values), min, max: values.iter().copied().fold(0.0, f64::max) }
    }
}

/// Measures and prints, or measures and writes the calibration.
pub fn run(args: &BenchArgs, printer: &Printer) -> Result<ExitStatus> {
    if args.reps == 0 {
        return Err(Hinted::error("`--reps 0` measures nothing", "give at least 1"));
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
        return calibrate(args, printer, &here, &mut engine);
    }
    engine.set_policy(here.policy(args.policy, engine.variants(), printer)?);
    let mut results = Vec::new();
    for &n in &args.pp {
        results.push(test(&mut engine, args.reps, "pp", n, prefill)?);
    }
    for &n in &args.tg {
        results.push(test(&mut engine, args.reps, "tg", n, decode)?);
    }
    if args.json {
        let policy = engine.policy().name();
        let report = Report {
            build: env!("CARGO_PKG_VERSION"),
            bundle: path.display().to_string(),
            backend: here.backend(),
            machine: here.machine(),
            threads: args.threads,
            policy,
            results,
        };
        printer.line(serde_json::to_string(&report)?)?;
    } else {
        table(printer, &results)?;
    }
    Ok(ExitStatus::Done)
}

fn calibrate(args: &BenchArgs, printer: &Printer, here: &Here, engine: &mut Engine) -> Result<ExitStatus> {
    let measured = engine.calibrate(args.reps).context("cannot measure the bundle")?;
    let path = here.write(&measured, args.threads)?;
    if args.json {
        printer.line(std::fs::read_to_string(&path)?.trim_end())?;
    } else {
        for step in &measured.steps {
            printer.line(format_args!("{:<16} {:>10.1} us", step.spec.to_string(), median(&step.us)))?;
        }
        let (fixed, by_row) = (measured.switch_us, measured.switch_us_per_row);
        printer.line(format_args!("change of shape  {fixed:>10.1} us, and {by_row:.4} us a row"))?;
    }
    printer.say(format_args!("written to {}", path.display()));
    Ok(ExitStatus::Done)
}

/// Runs one test; its body answers the seconds that count.
fn test(
    engine: &mut Engine,
    reps: usize,
    kind: &str,
    n: usize,
    body: fn(&mut Engine, usize) -> Result<f64>,
) -> Result<Outcome> {
    let limit = engine.context_size();
    if n == 0 || n >= limit {
        return Err(Hinted::error(
            format!("`--{kind} {n}` cannot be measured: the context holds {limit} tokens"),
            format!("choose from 1 to {}", limit - 1),
        ));
    }
    let mut seconds = Vec::with_capacity(reps);
    for run in 0..=reps {
        engine.reset()?;
        let took = body(engine, n)?;
        if run > 0 {
            seconds.push(took);
        }
    }
    let ms: Vec<f64> = seconds.iter().map(|s| s * 1e3).collect();
    let rates: Vec<f64> = seconds.iter().map(|s| n as f64 / s).collect();
    let (ms, tokens_per_second) = (Spread::of(&ms), Spread::of(&rates));
    Ok(Outcome { test: format!("{kind}{n}"), tokens: n, runs: reps, ms, tokens_per_second })
}

fn made_up(engine: &Engine, n: usize) -> Vec<TokenId> {
    let vocab = engine.vocab_size() as u32;
    (0..n as u32).map(|i| TokenId((i * 31 + 7) % vocab)).collect()
}

fn prefill(engine: &mut Engine, n: usize) -> Result<f64> {
    let tokens = made_up(engine, n);
    let began = Instant::now();
    engine.process(&tokens)?;
    Ok(began.elapsed().as_secs_f64())
}

fn decode(engine: &mut Engine, n: usize) -> Result<f64> {
    let tokens = made_up(engine, n);
    engine.process(&tokens[..1])?;
    let began = Instant::now();
    for token in &tokens {
        engine.process(std::slice::from_ref(token))?;
    }
    Ok(began.elapsed().as_secs_f64())
}

fn table(printer: &Printer, results: &[Outcome]) -> Result<()> {
    printer.line(format_args!(
        "{:<8} {:>12} {:>24} {:>14} {:>24}",
        "test", "median ms", "min .. max", "tokens/s", "min .. max"
    ))?;
    for r in results {
        let range = |s: &Spread| format!("{:.2} .. {:.2}", s.min, s.max);
        printer.line(format_args!(
            "{:<8} {:>12.2} {:>24} {:>14.1} {:>24}",
            r.test,
            r.ms.median,
            range(&r.ms),
            r.tokens_per_second.median,
            range(&r.tokens_per_second)
        ))?;
    }
    Ok(())
}

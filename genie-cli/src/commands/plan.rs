//! `genie plan`: which graphs would run for a number of tokens, under each policy. Nothing is executed.

use anyhow::{Context, Result};
use genie_types::{Ar, Cl, Variant};
use kvmanager::plan::{CostTable, KvForm, KvState, Plan, Policy, Request, Variants, plan};
use serde::Serialize;

use super::ExitStatus;
use crate::calibration::Here;
use crate::cli::{PlanArgs, PolicyArg};
use crate::failure::Hinted;
use crate::printer::Printer;
use crate::threads::Threads;
use crate::{backend, bundle};

/// One plan, as a JSON line.
#[derive(Serialize)]
struct PlanRecord {
    policy: &'static str,
    n_past: usize,
    n_new: usize,
    steps: Vec<StepRecord>,
}

#[derive(Serialize)]
struct StepRecord {
    graph: String,
    n_past: usize,
    n_valid_kv: usize,
    n_process: usize,
    past_idx: usize,
    new_idx: usize,
}

/// Prints a table, or a JSON line, for every number of tokens and every policy.
pub fn run(args: &PlanArgs, printer: &Printer) -> Result<ExitStatus> {
    let (variants, here) = match &args.config {
        Some(path) => {
            let path = bundle::config_path(path)?;
            let config = bundle::config(&path, printer)?;
            let backend = backend::open(&args.backend, &Threads::default())?;
            let engine = bundle::engine(config.engine(), &backend, PolicyArg::Lenient)?;
            (engine.variants().clone(), Some(Here::new(&path, &config.engine().ctx_bins, &backend)?))
        }
        None => (Variants::new(grid(&args.ar, &args.cl)?, KvForm::Concat, None)?, None),
    };
    let wanted = args.policy.map_or(vec![PolicyArg::Lenient, PolicyArg::FixedVariant, PolicyArg::Cost], |p| vec![p]);
    let policy_of = |&arg: &PolicyArg| match &here {
        Some(here) => here.policy(arg, &variants, printer),
        None => policy(arg, &variants),
    };
    let policies = wanted.iter().map(policy_of).collect::<Result<Vec<_>>>()?;
    let mut status = ExitStatus::Done;
    for &n_new in &args.tokens {
        for policy in &policies {
            match plan(&KvState::at(args.n_past), &[request(args.n_past, n_new)], &variants, policy) {
                Ok(strategy) if args.json => {
                    printer.line(serde_json::to_string(&record(policy, args.n_past, n_new, &strategy))?)?;
                }
                Ok(strategy) => table(printer, policy, n_new, &strategy)?,
                Err(error) => {
                    printer.failure(
                        &anyhow::Error::new(error).context(format!("{n_new} tokens, policy {}", policy.name())),
                    );
                    status = ExitStatus::Failed;
                }
            }
        }
    }
    Ok(status)
}

fn request(n_past: usize, n_new: usize) -> Request {
    Request { n_past, n_new, ..Request::default() }
}

/// The policy of a flag. `Cost` without a calibration takes a step's time to grow with its width and its context.
pub fn policy(arg: PolicyArg, variants: &Variants) -> Result<Policy> {
    Ok(match arg {
        PolicyArg::Lenient => Policy::Lenient,
        PolicyArg::Genie => Policy::Genie,
        PolicyArg::FixedVariant => Policy::FixedVariant,
        PolicyArg::Cost => {
            let nominal = |spec: &Variant| {
                let (ar, cl) = (spec.ar().get() as f64, spec.cl().get() as f64);
                (*spec, 100.0 + ar * (1.0 + cl / 4096.0))
            };
            Policy::Cost(CostTable::new(variants.specs().iter().map(nominal), 1.0, 0.01)?.into())
        }
    })
}

/// All pairs that a graph can have.
fn grid(ars: &[u32], cls: &[u32]) -> Result<Vec<Variant>> {
    let mut specs = Vec::new();
    for &cl in cls {
        let cl = Cl::new(cl).context("`--cl 0`: expected a context length of at least 1 token")?;
        for &ar in ars {
            let ar = Ar::new(ar).context("`--ar 0`: expected a width of at least 1 token")?;
            // A width past this context simply has no graph here; another context may have it.
            specs.extend(Variant::from_widths(ar, cl).ok());
        }
    }
    if specs.is_empty() {
        return Err(Hinted::error("every AR is wider than every CL", "give a `--cl` of at least the smallest `--ar`"));
    }
    Ok(specs)
}

fn record(policy: &Policy, n_past: usize, n_new: usize, strategy: &Plan) -> PlanRecord {
    let step = |s: &kvmanager::plan::InferenceStep| StepRecord {
        graph: s.variant.to_string(),
        n_past: s.n_past(),
        n_valid_kv: s.n_valid_kv,
        n_process: s.n_process(),
        past_idx: s.past_idx.0,
        new_idx: s.new_idx.0,
    };
    PlanRecord { policy: policy.name(), n_past, n_new, steps: strategy.steps().iter().map(step).collect() }
}

fn table(printer: &Printer, policy: &Policy, n_new: usize, strategy: &Plan) -> Result<()> {
    let padding: usize = strategy.steps().iter().map(|s| s.ar() - s.n_process()).sum();
    printer.line(format_args!(
        "{n_new} tokens, policy {}: {} steps, {padding} tokens of padding",
        policy.name(),
        strategy.steps().len()
    ))?;
    printer.line(format_args!(
        "  {:>5} {:>6} {:>6} {:>8} {:>8} {:>10} {:>9} {:>8}",
        "step", "AR", "CL", "n_past", "n_kv", "n_process", "past_idx", "new_idx"
    ))?;
    for (i, s) in strategy.steps().iter().enumerate() {
        printer.line(format_args!(
            "  {i:>5} {:>6} {:>6} {:>8} {:>8} {:>10} {:>9} {:>8}",
            s.ar(),
            s.cl(),
            s.n_past(),
            s.n_valid_kv,
            s.n_process(),
            s.past_idx.0,
            s.new_idx.0
        ))?;
    }
    Ok(())
}

//! `genie plan`: lists the graphs that would run for a number of tokens, under each policy. Executes nothing.

mod fused;

use std::path::PathBuf;

use anyhow::{Context, Result};
use genie_types::{Ar, Cl, Variant};
use kvmanager::plan::{InferenceStep, KvForm, KvState, Plan, Policy, Request, Variants, plan};
use open_genie::{Error, Opened, Perf, PolicyChoice};
use serde::Serialize;

use crate::args::{BackendArgs, LONGEST, PolicyArg, VariantArgs, read_bundle, warn_of_nominal_costs};
use crate::counted::counted;
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;

/// Flags of `genie plan`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub variants: VariantArgs,
    /// Take the variants from a bundle instead.
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["ar", "cl"])]
    pub config: Option<PathBuf>,
    /// Numbers of new tokens to plan for.
    #[arg(required = true, value_name = "TOKENS", value_parser = tokens)]
    pub tokens: Vec<usize>,
    /// Tokens already in the cache.
    #[arg(long, default_value_t = 0, value_name = "TOKENS", value_parser = tokens)]
    pub n_past: usize,
    /// Only this policy [default: all; steps that are alike are one line].
    #[arg(long, value_enum)]
    pub policy: Option<PolicyArg>,
    /// Print one JSON line per plan.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// One plan, as a JSON line.
#[derive(Serialize)]
struct PlanRecord {
    policy: &'static str,
    n_past: usize,
    n_new: usize,
    /// By the bundle's measured step times, where it has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
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

/// Prints a table or a JSON line for each number of tokens and each policy.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let model = match &args.config {
        Some(path) => {
            let options = args.backend.options()?.perf(Perf::LeaveAlone);
            match read_bundle(path, &args.backend, printer)?.open_either(&options)? {
                Opened::Plain(model) => Some(model),
                Opened::Fused(_) if args.policy.is_some() => {
                    return Err(Error::NotWithFused { what: "a planner policy" }.into());
                }
                Opened::Fused(model) => {
                    return fused::run((&args.tokens, args.n_past, args.json), model.runner(), printer);
                }
            }
        }
        None => None,
    };
    let variants = match &model {
        Some(model) => model.engine().variants().clone(),
        None => Variants::new(grid(&args.variants)?, KvForm::Concat, None)?,
    };
    let wanted = args
        .policy
        .map_or(vec![PolicyArg::Lenient, PolicyArg::Genie, PolicyArg::FixedVariant, PolicyArg::Cost], |p| vec![p]);
    let policy_of = |&arg: &PolicyArg| match &model {
        Some(model) => {
            let (policy, mismatch) = model.policy(arg.into())?;
            warn_of_nominal_costs(model, mismatch.as_ref(), printer)?;
            Ok(policy)
        }
        None => Ok(PolicyChoice::from(arg).nominal(&variants, false)),
    };
    let policies = wanted.iter().map(policy_of).collect::<Result<Vec<_>>>()?;
    let measured = match &model {
        Some(model) => match model.policy(PolicyChoice::Cost)? {
            (Policy::Cost(table), None) => Some(table),
            _ => None,
        },
        None => None,
    };
    let ms = |plan: &Plan| measured.as_ref().and_then(|table| Some(table.total_us(plan.steps(), None).ok()? / 1e3));
    let mut status = ExitStatus::Done;
    for &n_new in &args.tokens {
        for policy in &policies {
            match plan(&KvState::at(args.n_past), &[request(args.n_past, n_new)], &variants, policy) {
                Ok(strategy) if args.json => {
                    printer.data_line(serde_json::to_string(&record(
                        policy,
                        args.n_past,
                        n_new,
                        &strategy,
                        ms(&strategy),
                    ))?)?;
                }
                Ok(strategy) => table(printer, policy, n_new, &strategy, ms(&strategy))?,
                // What libGenie cannot do is what the policy shows.
                Err(error) if args.policy.is_none() && matches!(policy, Policy::Genie) => {
                    printer.info(format_args!("{n_new} tokens, policy {}: libGenie fails: {error}", policy.name()));
                }
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

/// A number of tokens to plan for: a plan may have a step for each.
fn tokens(text: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|n| *n <= LONGEST as usize);
    found.ok_or_else(|| format!("expected a number of tokens from 0 to {LONGEST}"))
}

fn request(n_past: usize, n_new: usize) -> Request {
    Request { n_past, n_new, ..Request::default() }
}

/// All pairs of AR and CL with AR at most CL.
fn grid(args: &VariantArgs) -> Result<Vec<Variant>> {
    let mut specs = Vec::new();
    let (ars, cls) = args.widths(None);
    for cl in cls {
        let cl = Cl::new(cl).context("`--cl 0`: expected a context length of at least 1 token")?;
        for &ar in &ars {
            let ar = Ar::new(ar).context("`--ar 0`: expected at least 1 token per step")?;
            specs.extend(Variant::from_widths(ar, cl).ok());
        }
    }
    if specs.is_empty() {
        return Err(UserError::error(
            "every AR is larger than every CL",
            "add a `--cl` of at least the smallest `--ar`",
        ));
    }
    Ok(specs)
}

fn record(policy: &Policy, n_past: usize, n_new: usize, strategy: &Plan, ms: Option<f64>) -> PlanRecord {
    let step = |s: &InferenceStep| StepRecord {
        graph: s.variant.to_string(),
        n_past: s.n_past(),
        n_valid_kv: s.n_valid_kv,
        n_process: s.n_process(),
        past_idx: s.past_idx.0,
        new_idx: s.new_idx.0,
    };
    PlanRecord { policy: policy.name(), n_past, n_new, ms, steps: strategy.steps().iter().map(step).collect() }
}

fn table(printer: &Printer, policy: &Policy, n_new: usize, strategy: &Plan, ms: Option<f64>) -> Result<()> {
    let padding: usize = strategy.steps().iter().map(|s| s.ar() - s.n_process()).sum();
    printer.data_line(format_args!(
        "{}, policy {}: {}, {} of padding{}",
        counted(n_new, "token"),
        policy.name(),
        counted(strategy.steps().len(), "step"),
        counted(padding, "token"),
        ms.map(|ms| format!(", {ms:.2} ms by measured step times")).unwrap_or_default(),
    ))?;
    printer.data_line(format_args!(
        "  {:>5} {:>6} {:>6} {:>8} {:>8} {:>10} {:>9} {:>8}",
        "step", "AR", "CL", "n_past", "n_kv", "n_process", "past_idx", "new_idx"
    ))?;
    let steps = strategy.steps();
    let mut i = 0;
    for run in steps.chunk_by(alike) {
        let last = i + run.len() - 1;
        for (i, step) in (i..).zip(run) {
            match run.len() {
                n if n <= FOLDED || i == last || i + n == last + 1 => row(printer, i, step)?,
                n if i + n == last + 2 => printer.data_line(format_args!(
                    "    ... {} more of AR-{} CL-{}, {} tokens each",
                    n - 2,
                    step.ar(),
                    step.cl(),
                    step.n_process()
                ))?,
                _ => {}
            }
        }
        i = last + 1;
    }
    Ok(())
}

/// Steps that are alike are written out up to this number; of more, the first and the last.
const FOLDED: usize = 4;

/// The same graph for the same number of tokens.
fn alike(a: &InferenceStep, b: &InferenceStep) -> bool {
    (a.variant, a.n_process()) == (b.variant, b.n_process())
}

fn row(printer: &Printer, i: usize, s: &InferenceStep) -> Result<()> {
    printer.data_line(format_args!(
        "  {i:>5} {:>6} {:>6} {:>8} {:>8} {:>10} {:>9} {:>8}",
        s.ar(),
        s.cl(),
        s.n_past(),
        s.n_valid_kv,
        s.n_process(),
        s.past_idx.0,
        s.new_idx.0
    ))
}

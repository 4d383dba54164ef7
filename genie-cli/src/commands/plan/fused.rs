//! `genie plan` of fused graphs: which of them a prompt runs on when no other request is there.

use anyhow::Result;
use engine::{PairRunner, PairStep, next_pair_step};
use serde_json::json;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Prints the steps of each number of new tokens, `n_past` being in the cache.
pub fn run(
    (tokens, n_past, json): (&[usize], usize, bool),
    runner: &PairRunner,
    printer: &Printer,
) -> Result<ExitStatus> {
    let began = n_past;
    let (limits, limit) = (runner.limits(), runner.limits().limit());
    let names: Vec<&str> = runner.layout().graphs().map(|g| g.info.name.as_str()).collect();
    let mut status = ExitStatus::Done;
    for &n_new in tokens {
        if began + n_new > limit {
            printer.failure(&anyhow::anyhow!("{n_new} tokens behind {began}: the fused graphs hold {limit}"));
            status = ExitStatus::Failed;
            continue;
        }
        let (mut n_past, mut rest, mut steps) = (began, n_new, Vec::new());
        // A single token is a decode row.
        let next = |n_past, rest| match (n_new, rest) {
            (_, 0) => None,
            (1, _) => next_pair_step(limits, None, Some(n_past)),
            _ => next_pair_step(limits, Some((n_past, rest)), None),
        };
        while let Some(step) = next(n_past, rest) {
            let (graph, n) = match step {
                PairStep::Fused { graph, chunk, .. } => (names[graph], chunk),
                PairStep::Decode | PairStep::PromptToken => (names[names.len() - 1], 1),
            };
            steps.push((graph, n_past, n));
            (n_past, rest) = (n_past + n, rest - n);
        }
        if json {
            let all: Vec<_> = steps
                .iter()
                .map(|(graph, n_past, n)| json!({"graph": graph, "n_past": n_past, "n_process": n}))
                .collect();
            printer.data_line(json!({"policy": "fused", "n_past": began, "n_new": n_new, "steps": all}))?;
            continue;
        }
        printer.data_line(format_args!("{n_new} tokens, fused graphs: {} steps", steps.len()))?;
        printer.data_line(format_args!("  {:>5} {:<20} {:>8} {:>10}", "step", "graph", "n_past", "n_process"))?;
        for (i, (graph, n_past, n)) in steps.iter().enumerate() {
            printer.data_line(format_args!("  {i:>5} {graph:<20} {n_past:>8} {n:>10}"))?;
        }
    }
    Ok(status)
}

//! `--profile`: the time of each op per step, from the backend's profile events.
//!
//! *Units*: microseconds per step: a whole prompt, or one token. An op's time ends when all threads finish its phase; time
//! outside of ops belongs to the graph (the call and its overhead), time outside of graphs to the engine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use engine::{GraphProfile, GraphRun};
use open_genie::Opened;
use qnn_api::{ProfileEvent, ProfileLevel, ProfileUnit};
use serde::Serialize;

use super::disturb::Disturbance;
use super::measure::{self, Test};
use super::record::is_zero;

/// QNN's type of the event of an execution.
const EXECUTE: u32 = 400;
/// QNN's type of the event of a node.
const NODE: u32 = 404;
/// Row for the time in graphs outside of ops.
const IN_GRAPHS: &str = "(graph, outside ops)";
/// Row for the time in the engine outside of graphs.
const IN_ENGINE: &str = "(engine, outside graphs)";

/// One measured step.
pub struct Step {
    /// Its test.
    pub test: Test,
    /// Start time.
    pub began: Instant,
    /// Wall time, with the reading of the profile.
    pub wall: Duration,
    /// The graphs that ran in it.
    pub runs: Vec<GraphRun>,
}

/// A row of the table.
#[derive(Debug, PartialEq, Serialize)]
pub struct OpTime {
    /// Always `profile`.
    pub test: &'static str,
    /// The test.
    pub of: String,
    /// The op type, or a name in brackets for time outside of ops.
    pub op: String,
    /// Executions per step.
    pub count: f64,
    /// Time per step.
    pub us: f64,
    /// Fraction of the step's time.
    pub share: f64,
    /// Other threads that were kept busy meanwhile.
    #[serde(skip_serializing_if = "is_zero")]
    pub disturb: usize,
}

/// Runs a test once to warm up, then with a profile: a prompt `reps` times, tokens once. Returns the steps, and how many other threads
/// were kept busy meanwhile: `disturb` of them.
pub fn steps(test: &Test, model: &mut Opened, reps: usize, disturb: usize) -> Result<(Vec<Step>, usize)> {
    measure::prepare(test, model.token_model())?;
    let disturbance = Disturbance::start(disturb)?;
    measure::run(test, model.token_model(), 0)?;
    let profile = GraphProfile::keeping_runs(ProfileLevel::Detailed);
    let tokens = measure::arbitrary_of(model.token_model().vocab_size(), model.context_size());
    let reps = if matches!(test, Test::Prefill(_)) { reps } else { 1 };
    let mut steps = Vec::new();
    for _ in 0..reps {
        let pieces = measure::ready(test, model.token_model(), &tokens)?;
        model.set_graph_profile(Some(profile.clone()));
        for piece in pieces {
            let began = Instant::now();
            model.token_model().process(piece)?;
            steps.push(Step { test: *test, began, wall: began.elapsed(), runs: profile.take_runs() });
        }
        model.set_graph_profile(None);
    }
    Ok((steps, disturbance.n_threads()))
}

/// Sums up the steps of a test: op types, longest first, then the time outside of ops.
pub fn times(steps: &[Step]) -> Vec<OpTime> {
    let Some(first) = steps.first() else { return Vec::new() };
    let mut ops: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    let (mut wall, mut graphs, mut n_graphs) = (Duration::ZERO, Duration::ZERO, 0);
    for step in steps {
        wall += step.wall;
        for run in &step.runs {
            let took = took(run);
            graphs += took;
            wall = wall.saturating_sub(run.overhead + run.took.saturating_sub(took));
            n_graphs += 1;
            for event in nodes(&run.events) {
                let (count, us) = ops.entry(kind(&event.name)).or_default();
                *count += 1;
                *us += event.value;
            }
        }
    }
    let (n, wall_us, graphs_us) = (steps.len() as f64, micros(wall), micros(graphs));
    let ops_us: u64 = ops.values().map(|(_, us)| us).sum();
    let row = |op: &str, count: usize, us: f64| OpTime {
        test: "profile",
        of: first.test.to_string(),
        op: op.to_owned(),
        count: count as f64 / n,
        us: us / n,
        share: if wall_us > 0.0 { us / wall_us } else { 0.0 },
        disturb: 0,
    };
    let mut rows: Vec<OpTime> = ops.iter().map(|(op, &(count, us))| row(op, count, us as f64)).collect();
    rows.sort_by(|a, b| b.us.total_cmp(&a.us));
    rows.push(row(IN_GRAPHS, n_graphs, (graphs_us - ops_us as f64).max(0.0)));
    rows.push(row(IN_ENGINE, steps.len(), (wall_us - graphs_us).max(0.0)));
    rows
}

/// How long a graph ran: the backend's figure, which excludes the profiling itself; else the time of the call.
pub fn took(run: &GraphRun) -> Duration {
    let whole = run.events.iter().find(|e| e.kind == EXECUTE && e.unit == ProfileUnit::Microseconds);
    whole.map_or(run.took, |event| Duration::from_micros(event.value).min(run.took))
}

/// The events of nodes in microseconds, at any depth.
pub fn nodes(events: &[ProfileEvent]) -> Vec<&ProfileEvent> {
    let mut found = Vec::new();
    for event in events {
        if event.kind == NODE && event.unit == ProfileUnit::Microseconds {
            found.push(event);
        }
        found.extend(nodes(&event.parts));
    }
    found
}

/// The op type: the embedded backend names its events `node:Type`.
pub fn kind(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, kind)| kind)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn event(kind: u32, name: &str, value: u64, parts: Vec<ProfileEvent>) -> ProfileEvent {
        ProfileEvent { kind, value, unit: ProfileUnit::Microseconds, name: name.into(), parts }
    }

    /// A token: 102 us, 7 of them for the profile; two graphs of 40 us with three ops.
    pub fn step() -> Step {
        let began = Instant::now();
        let us = Duration::from_micros;
        let run = |at, overhead, parts| GraphRun {
            graph: "ar1".into(),
            began: began + us(at),
            took: us(41),
            overhead: us(overhead),
            events: vec![event(EXECUTE, "ar1", 40, parts)],
        };
        let first = vec![event(NODE, "q:Linear", 20, vec![]), event(NODE, "norm:RmsNorm", 5, vec![])];
        let runs = vec![run(5, 2, first), run(50, 3, vec![event(NODE, "a:b:Linear", 30, vec![])])];
        Step { test: Test::Decode { n: 1, fill: 7 }, began, wall: us(102), runs }
    }

    #[test]
    fn ops_graphs_and_engine_add_up_to_the_step() {
        let rows = times(&[step(), step()]);
        let short: Vec<_> = rows.iter().map(|r| (r.op.as_str(), r.count, r.us.round())).collect();
        assert_eq!(
            short,
            [("Linear", 2.0, 50.0), ("RmsNorm", 1.0, 5.0), (IN_GRAPHS, 2.0, 25.0), (IN_ENGINE, 1.0, 15.0)]
        );
        assert!((rows.iter().map(|r| r.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(rows.iter().all(|r| r.of == "tg1@7"));
        assert!(times(&[]).is_empty());
    }
}

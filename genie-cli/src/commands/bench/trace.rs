//! `--trace`: steps as a Chrome trace, for `chrome://tracing` or Perfetto.
//!
//! *Units*: microseconds from the start of the file. Steps follow one another with a gap; a graph is a slice at its time in
//! the step. Backends report an op's duration but not its start: in a graph, each op is drawn after the one before.

use std::time::Duration;

use engine::GraphRun;
use serde_json::{Value, json};

use super::profile::{Step, kind, nodes, took};

/// Gap between two steps.
const GAP_US: f64 = 100.0;

/// The trace's document.
pub fn document(steps: &[Step]) -> Value {
    let named = |what: &str, name: &str| json!({"name": what, "ph": "M", "pid": 1, "tid": 1, "args": {"name": name}});
    let mut events = vec![named("process_name", "genie bench"), named("thread_name", "steps")];
    let mut at = 0.0;
    for step in steps {
        let wall = micros(step.wall);
        events.push(slice(&step.test.to_string(), "step", at, wall, json!({"graphs": step.runs.len()})));
        for run in &step.runs {
            graph(&mut events, run, at + micros(run.began.saturating_duration_since(step.began)));
        }
        at += wall + GAP_US;
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"})
}

fn graph(events: &mut Vec<Value>, run: &GraphRun, at: f64) {
    let (end, nodes) = (at + micros(took(run)), nodes(&run.events));
    events.push(slice(&run.graph, "graph", at, end - at, json!({"ops": nodes.len()})));
    let mut at = at;
    for event in nodes {
        // Never past the graph's end.
        let us = (event.value as f64).min(end - at);
        events.push(slice(kind(&event.name), "op", at, us, json!({"node": event.name})));
        at += us;
    }
}

fn slice(name: &str, cat: &str, ts: f64, dur: f64, args: Value) -> Value {
    json!({"name": name, "cat": cat, "ph": "X", "ts": ts, "dur": dur, "pid": 1, "tid": 1, "args": args})
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::profile::tests::step;

    #[test]
    fn slices_nest() {
        let document = document(&[step(), step()]);
        let slices: Vec<_> = document["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
        let of = |cat: &str| {
            let mine = slices.iter().filter(|e| e["cat"] == cat);
            mine.map(|e| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap())).collect::<Vec<_>>()
        };
        let (steps, graphs, ops) = (of("step"), of("graph"), of("op"));
        assert_eq!((steps.len(), graphs.len(), ops.len()), (2, 4, 6));
        let inside = |inner: &[(f64, f64)], outer: &[(f64, f64)]| {
            inner.iter().all(|i| outer.iter().any(|o| o.0 <= i.0 && i.0 + i.1 <= o.0 + o.1 + 1e-6))
        };
        assert!(inside(&graphs, &steps) && inside(&ops, &graphs), "{document}");
        assert_eq!(steps, [(0.0, 102.0), (202.0, 102.0)]);
        assert_eq!(slices[2]["name"], "Linear");
        assert_eq!(slices[2]["args"]["node"], "q:Linear");
    }
}

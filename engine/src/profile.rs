//! The backend's own times of its graphs: its profile events, added up by graph.
//!
//! *Units*: the library's, given with each figure (microseconds, cycles, bytes).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use qnn_api::{Backend, Profile, ProfileEvent, ProfileLevel, ProfileUnit};

/// A collection that an executor fills and its maker reads. Clones are the same collection.
#[derive(Clone, Debug)]
pub struct GraphProfile {
    level: ProfileLevel,
    graphs: Arc<Mutex<Vec<GraphTimes>>>,
    /// Only for [`GraphProfile::keeping_runs`].
    runs: Option<Arc<Mutex<Vec<GraphRun>>>>,
}

/// One run of a graph.
#[derive(Clone, Debug)]
pub struct GraphRun {
    /// The graph.
    pub graph: String,
    /// When it was handed to the library.
    pub began: Instant,
    /// Until it came back.
    pub took: Duration,
    /// What making the profile and reading it cost, before and after.
    pub overhead: Duration,
    /// What the library reported.
    pub events: Vec<ProfileEvent>,
}

/// All events of one graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphTimes {
    /// The graph.
    pub graph: String,
    /// How often it ran.
    pub n_runs: u64,
    /// The events, in the order in which they first came.
    pub events: Vec<EventTimes>,
}

/// One event over all runs of its graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTimes {
    /// The event's name, after those of the events that it is part of, with ` / ` between.
    pub name: String,
    /// QNN's number of its type.
    pub kind: u32,
    /// What the figures count, e.g. `us`.
    pub unit: &'static str,
    /// How often it came.
    pub count: u64,
    /// All its values added up.
    pub total: u64,
    /// The largest value.
    pub max: u64,
}

impl GraphProfile {
    /// An empty collection of events of that level.
    pub fn new(level: ProfileLevel) -> Self {
        Self { level, graphs: Arc::default(), runs: None }
    }

    /// One that keeps each run by itself as well, until it is taken.
    pub fn keeping_runs(level: ProfileLevel) -> Self {
        Self { runs: Some(Arc::default()), ..Self::new(level) }
    }

    /// The runs since the last call, in order; none unless they are kept.
    pub fn take_runs(&self) -> Vec<GraphRun> {
        self.runs.as_ref().map(|runs| std::mem::take(&mut *runs.lock())).unwrap_or_default()
    }

    /// The events so far, graph by graph in the order of their first run.
    pub fn graphs(&self) -> Vec<GraphTimes> {
        self.graphs.lock().clone()
    }

    /// A fresh profile of the library for one run: libraries differ in whether a second run clears the first one's events.
    pub(crate) fn begin(&self, backend: &Arc<Backend>) -> qnn_api::Result<Profile> {
        Profile::new(backend, self.level)
    }

    /// Adds a run of a graph.
    pub(crate) fn add(&self, run: GraphRun) {
        let mut graphs = self.graphs.lock();
        let graph = &run.graph;
        let at = graphs.iter().position(|times| times.graph == *graph).unwrap_or_else(|| {
            graphs.push(GraphTimes { graph: graph.clone(), n_runs: 0, events: Vec::new() });
            graphs.len() - 1
        });
        graphs[at].n_runs += 1;
        run.events.iter().for_each(|event| graphs[at].add(event, ""));
        if let Some(runs) = &self.runs {
            runs.lock().push(run);
        }
    }
}

impl GraphTimes {
    fn add(&mut self, event: &ProfileEvent, above: &str) {
        let name = if above.is_empty() { event.name.clone() } else { format!("{above} / {}", event.name) };
        let unit = unit(event.unit);
        match self.events.iter_mut().find(|e| e.name == name && e.kind == event.kind && e.unit == unit) {
            Some(times) => {
                times.count += 1;
                times.total = times.total.saturating_add(event.value);
                times.max = times.max.max(event.value);
            }
            None => self.events.push(EventTimes {
                name: name.clone(),
                kind: event.kind,
                unit,
                count: 1,
                total: event.value,
                max: event.value,
            }),
        }
        event.parts.iter().for_each(|part| self.add(part, &name));
    }
}

const fn unit(unit: ProfileUnit) -> &'static str {
    match unit {
        ProfileUnit::Microseconds => "us",
        ProfileUnit::Bytes => "bytes",
        ProfileUnit::Cycles => "cycles",
        ProfileUnit::Count => "count",
        ProfileUnit::Other(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, value: u64, parts: Vec<ProfileEvent>) -> ProfileEvent {
        ProfileEvent { kind: 400, value, unit: ProfileUnit::Microseconds, name: name.into(), parts }
    }

    fn run(graph: &str, event: ProfileEvent) -> GraphRun {
        let (began, took, overhead) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        GraphRun { graph: graph.into(), began, took, overhead, events: vec![event] }
    }

    #[test]
    fn runs_are_kept_on_request_and_taken_once() {
        let (plain, keeping) =
            (GraphProfile::new(ProfileLevel::Basic), GraphProfile::keeping_runs(ProfileLevel::Basic));
        for profile in [&plain, &keeping] {
            profile.add(run("a", event("execute", 1, vec![])));
            profile.add(run("b", event("execute", 2, vec![])));
        }
        assert!(plain.take_runs().is_empty());
        assert_eq!(keeping.take_runs().iter().map(|run| run.graph.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(keeping.take_runs().is_empty());
        assert_eq!(plain.graphs(), keeping.graphs());
    }

    #[test]
    fn runs_add_up_by_graph_and_event() {
        let profile = GraphProfile::new(ProfileLevel::Detailed);
        let clone = profile.clone();
        profile.add(run("ar32", event("execute", 50, vec![event("node", 30, vec![])])));
        profile.add(run("ar1", event("execute", 5, vec![])));
        profile.add(run("ar32", event("execute", 70, vec![event("node", 20, vec![])])));
        let times =
            |name: &str, count, total, max| EventTimes { name: name.into(), kind: 400, unit: "us", count, total, max };
        let want = [
            GraphTimes {
                graph: "ar32".into(),
                n_runs: 2,
                events: vec![times("execute", 2, 120, 70), times("execute / node", 2, 50, 30)],
            },
            GraphTimes { graph: "ar1".into(), n_runs: 1, events: vec![times("execute", 1, 5, 5)] },
        ];
        assert_eq!(clone.graphs(), want);
    }
}

//! What the backend itself says about the time its graphs take: its profile events, added up by graph.
//!
//! *Units*: as the library has them, told with each figure (microseconds, cycles, bytes).

use std::sync::{Arc, Mutex, PoisonError};

use qnn_api::{Backend, Profile, ProfileEvent, ProfileLevel, ProfileUnit};

/// A collection that an executor fills and its maker reads. Clones are the same collection.
#[derive(Clone, Debug)]
pub struct GraphProfile {
    level: ProfileLevel,
    graphs: Arc<Mutex<Vec<GraphTimes>>>,
}

/// Everything said about one graph.
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
        Self { level, graphs: Arc::default() }
    }

    /// What has been said so far, graph by graph in the order of their first run.
    pub fn graphs(&self) -> Vec<GraphTimes> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A fresh profile of the library for one run: libraries differ in whether a second run clears the first one's events.
    pub(crate) fn begin(&self, backend: &Arc<Backend>) -> qnn_api::Result<Profile> {
        Profile::new(backend, self.level)
    }

    /// Adds a run of a graph.
    pub(crate) fn add(&self, graph: &str, events: &[ProfileEvent]) {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        let at = graphs.iter().position(|times| times.graph == graph).unwrap_or_else(|| {
            graphs.push(GraphTimes { graph: graph.to_owned(), n_runs: 0, events: Vec::new() });
            graphs.len() - 1
        });
        graphs[at].n_runs += 1;
        events.iter().for_each(|event| graphs[at].add(event, ""));
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

    #[test]
    fn runs_add_up_by_graph_and_event() {
        let profile = GraphProfile::new(ProfileLevel::Detailed);
        let clone = profile.clone();
        profile.add("ar32", &[event("execute", 50, vec![event("node", 30, vec![])])]);
        profile.add("ar1", &[event("execute", 5, vec![])]);
        profile.add("ar32", &[event("execute", 70, vec![event("node", 20, vec![])])]);
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

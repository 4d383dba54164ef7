//! The graphs that ran, in order, as names.
//!
//! A decode step adds a few integers to a reserved list, so logging costs no allocation until the reserve is used up.

/// Names of executed graphs.
#[derive(Clone, Debug, Default)]
pub struct StepLog {
    names: Vec<String>,
    ran: Vec<u32>,
}

impl StepLog {
    /// A log for these graphs, with room for `room` executions before it grows.
    pub fn new(names: Vec<String>, room: usize) -> Self {
        Self { names, ran: Vec::with_capacity(room) }
    }

    /// Notes that the graph of that index ran.
    ///
    /// # Panics
    ///
    /// If there is no such graph: the log was made for all of them.
    pub fn push(&mut self, graph: usize) {
        assert!(graph < self.names.len(), "graph {graph} of {}", self.names.len());
        self.ran.push(u32::try_from(graph).expect("a bundle has fewer than 2^32 graphs"));
    }

    /// Executions so far.
    pub fn len(&self) -> usize {
        self.ran.len()
    }

    /// True before the first execution.
    pub fn is_empty(&self) -> bool {
        self.ran.is_empty()
    }

    /// The names in order of execution.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.ran.iter().map(|&g| self.names[g as usize].as_str())
    }

    /// The names with how often each ran in a row.
    pub fn runs(&self) -> Vec<(&str, usize)> {
        let mut runs: Vec<(&str, usize)> = Vec::new();
        for name in self.names() {
            match runs.last_mut() {
                Some((last, n)) if *last == name => *n += 1,
                _ => runs.push((name, 1)),
            }
        }
        runs
    }

    /// Forgets the executions, keeps the room.
    pub fn clear(&mut self) {
        self.ran.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_order_and_in_runs() {
        let mut log = StepLog::new(vec!["ar1".into(), "ar32".into()], 8);
        for graph in [1, 1, 0, 0, 0, 1] {
            log.push(graph);
        }
        assert_eq!(log.names().collect::<Vec<_>>(), ["ar32", "ar32", "ar1", "ar1", "ar1", "ar32"]);
        assert_eq!(log.runs(), [("ar32", 2), ("ar1", 3), ("ar32", 1)]);
        log.clear();
        assert!(log.is_empty() && log.runs().is_empty());
    }
}

//! The graphs that ran, in order, as names.
//!
//! A decode step adds a few integers to a reserved list, so logging costs no allocation until the reserve is used up;
//! printing costs none.

use core::fmt;

use kvmanager::FmtWriter;
use ufmt::{uDisplay, uWrite, uwrite};

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
        self.by_runs().collect()
    }

    fn by_runs(&self) -> impl Iterator<Item = (&str, usize)> + '_ {
        let name = |graph: u32| self.names[graph as usize].as_str();
        self.ran.chunk_by(move |&a, &b| name(a) == name(b)).map(move |run| (name(run[0]), run.len()))
    }

    /// Forgets the executions, keeps the room.
    pub fn clear(&mut self) {
        self.ran.clear();
    }
}

/// `ar32 x2, ar1 x9`: the names with how often each ran in a row.
impl uDisplay for StepLog {
    fn fmt<W: uWrite + ?Sized>(&self, f: &mut ufmt::Formatter<'_, W>) -> Result<(), W::Error> {
        let mut separator = "";
        for (name, n) in self.by_runs() {
            uwrite!(f, "{}{} x{}", separator, name, n)?;
            separator = ", ";
        }
        Ok(())
    }
}

impl fmt::Display for StepLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uwrite!(FmtWriter(f), "{}", self)
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
        assert_eq!(log.to_string(), "ar32 x2, ar1 x3, ar32 x1");
        log.clear();
        assert_eq!(log.to_string(), "");
        assert!(log.is_empty() && log.runs().is_empty());
    }
}

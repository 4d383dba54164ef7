//! The graphs that ran, in order, as names: the last [`StepLog::MOST`] of them, and how many came before.
//!
//! A decode step adds a few integers to a reserved list, so logging costs no allocation until the reserve is used up;
//! printing costs none. *Invariant*: a log never has more than `MOST` entries, however long its engine runs.

use core::fmt;
use std::collections::VecDeque;

use kvmanager::FmtWriter;
use ufmt::{uDisplay, uWrite, uwrite};

/// Names of executed graphs.
#[derive(Clone, Debug, Default)]
pub struct StepLog {
    names: Vec<String>,
    /// The last that ran.
    ran: VecDeque<u32>,
    n_forgotten: usize,
}

impl StepLog {
    /// Most executions that are kept: 256 KiB, some minutes of a server's work or a reply of tens of thousands of tokens.
    pub const MOST: usize = 1 << 16;

    /// A log for these graphs, with room for `room` executions before it grows.
    pub fn new(names: Vec<String>, room: usize) -> Self {
        Self { names, ran: VecDeque::with_capacity(room.min(Self::MOST)), n_forgotten: 0 }
    }

    /// Notes that the graph of that index ran.
    ///
    /// # Panics
    ///
    /// If there is no such graph: the log was made for all of them.
    pub fn push(&mut self, graph: usize) {
        assert!(graph < self.names.len(), "graph {graph} of {}", self.names.len());
        if self.ran.len() == Self::MOST {
            self.ran.pop_front();
            self.n_forgotten += 1;
        }
        self.ran.push_back(u32::try_from(graph).expect("a bundle has fewer than 2^32 graphs"));
    }

    /// Executions so far, forgotten ones too.
    pub fn len(&self) -> usize {
        self.n_forgotten + self.ran.len()
    }

    /// True before the first execution.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first executions, of which no names are kept.
    pub fn n_forgotten(&self) -> usize {
        self.n_forgotten
    }

    /// The names that are kept, in order of execution.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.ran.iter().map(|&g| self.names[g as usize].as_str())
    }

    /// The names behind the first `n` executions (a former [`len`](Self::len)), as far as they are kept.
    pub fn names_since(&self, n: usize) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.names().skip(n.saturating_sub(self.n_forgotten))
    }

    /// The names that are kept with how often each ran in a row.
    pub fn runs(&self) -> Vec<(&str, usize)> {
        self.by_runs().collect()
    }

    fn by_runs(&self) -> impl Iterator<Item = (&str, usize)> + '_ {
        let mut names = self.names().peekable();
        std::iter::from_fn(move || {
            let name = names.next()?;
            let mut n = 1;
            while names.next_if_eq(&name).is_some() {
                n += 1;
            }
            Some((name, n))
        })
    }

    /// Forgets the executions and their number, keeps the room.
    pub fn clear(&mut self) {
        self.ran.clear();
        self.n_forgotten = 0;
    }
}

/// `ar32 x2, ar1 x9`: the names with how often each ran in a row, behind `(12 before)` if the first 12 are forgotten.
impl uDisplay for StepLog {
    fn fmt<W: uWrite + ?Sized>(&self, f: &mut ufmt::Formatter<'_, W>) -> Result<(), W::Error> {
        let mut separator = "";
        if self.n_forgotten > 0 {
            uwrite!(f, "({} before)", self.n_forgotten)?;
            separator = ", ";
        }
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
    #[test]
    fn a_log_of_many_steps_keeps_the_last() {
        let mut log = StepLog::new(vec!["ar1".into(), "ar32".into()], 8);
        log.push(1);
        log.push(1);
        (0..StepLog::MOST - 2).for_each(|_| log.push(0));
        assert_eq!((log.len(), log.n_forgotten(), log.names().len()), (StepLog::MOST, 0, StepLog::MOST));
        let before = log.len();
        log.push(1);
        log.push(0);
        log.push(1);
        assert_eq!((log.len(), log.n_forgotten(), log.names().len()), (StepLog::MOST + 3, 3, StepLog::MOST));
        assert_eq!(log.names_since(before).collect::<Vec<_>>(), ["ar32", "ar1", "ar32"]);
        assert_eq!(log.names_since(0).len(), StepLog::MOST);
        assert_eq!(log.to_string(), format!("(3 before), ar1 x{}, ar32 x1, ar1 x1, ar32 x1", StepLog::MOST - 3));
        log.clear();
        assert_eq!((log.len(), log.n_forgotten()), (0, 0));
    }
}

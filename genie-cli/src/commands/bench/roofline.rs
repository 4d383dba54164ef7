//! `--limits`: what the machine can do at most, measured on the threads that the bundle runs on.

use anyhow::{Context, Result};
use qnn_host::roofline::{Limits, ReadMemory};
use serde::Serialize;

use super::output::Output;
use super::record::{RunMetadata, Summary};
use crate::failure::UserError;

/// Fewest passes of a limit: they take milliseconds.
const LEAST_PASSES: usize = 9;

/// The best passes on all threads; `None` where nothing was measured. By the second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline {
    /// Bytes read.
    pub read_bytes: Option<f64>,
    /// Operations on 8-bit codes.
    pub int8_ops: Option<f64>,
}

/// A limit, as it is printed.
#[derive(Serialize)]
pub struct Limit<'a> {
    /// Its name.
    pub test: &'static str,
    /// The middle, 10^9 bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_s: Option<f64>,
    /// The middle, 10^9 operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gop_s: Option<f64>,
    /// Slowest pass.
    pub min: f64,
    /// Fastest pass: the limit that shares are of.
    pub max: f64,
    /// Threads that took part.
    pub threads: usize,
    /// Passes.
    pub reps: usize,
    /// Where.
    pub machine: &'a super::record::Machine,
    /// What.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
}

/// Measures with one thread, with two, with four and so on, and with all that are asked for; prints; answers the last.
pub fn measure(threads: usize, reps: usize, about: &RunMetadata, out: &mut Output<'_>) -> Result<Roofline> {
    let memory = ReadMemory::new().map_err(|error| {
        UserError::error(format!("no memory to measure its bandwidth with: {error}"), "leave `--limits` out")
    })?;
    let passes = reps.max(LEAST_PASSES);
    let mut ceiling = Roofline::default();
    for n in counts(threads) {
        let limits = Limits::new(n).with_context(|| format!("cannot start {n} threads"))?;
        let read = limits.read_bandwidth(&memory, passes);
        let (int8, f32) = (limits.int8_ops(passes), limits.f32_ops(passes));
        for (test, rates) in [("read-bandwidth", &read), ("int8-peak", &int8), ("f32-peak", &f32)] {
            let giga: Vec<f64> = rates.iter().map(|rate| rate / 1e9).collect();
            let spread = Summary::of(&giga);
            let bytes = test == "read-bandwidth";
            out.limit(&Limit {
                test,
                gb_s: bytes.then_some(spread.median),
                gop_s: (!bytes).then_some(spread.median),
                min: spread.min,
                max: spread.max,
                threads: n,
                reps: passes,
                machine: &about.machine,
                commit: about.commit,
            })?;
        }
        ceiling = Roofline { read_bytes: Some(Summary::of(&read).max), int8_ops: Some(Summary::of(&int8).max) };
    }
    Ok(ceiling)
}

/// 1, 2, 4, ... and `threads` itself.
fn counts(threads: usize) -> Vec<usize> {
    let doubling = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
    doubling.take_while(|&n| n < threads).chain([threads]).collect()
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn numbers_of_threads_double() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
    }
}

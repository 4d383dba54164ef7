//! `--limits`: the machine's peak rates, measured with the bundle's thread count.

use anyhow::{Context, Result};
use qnn_host::roofline::{Limits, ReadMemory};
use serde::Serialize;

use super::output::Output;
use super::record::{RunMetadata, Summary};
use crate::failure::UserError;

/// Fewest passes per limit; each takes milliseconds.
const LEAST_PASSES: usize = 9;

/// Peak rates of all threads, per second; `None` if not measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline {
    /// Bytes read.
    pub read_bytes: Option<f64>,
    /// Operations on 8-bit integers.
    pub int8_ops: Option<f64>,
    /// Operations of a matrix unit on tiles of bf16, which computes steps of 64 rows or more.
    pub tile_ops: Option<f64>,
}

/// A measured limit, as it is printed.
#[derive(Serialize)]
pub struct Limit<'a> {
    /// Its name.
    pub test: &'static str,
    /// Median, 10^9 bytes/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_s: Option<f64>,
    /// Median, 10^9 operations/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gop_s: Option<f64>,
    /// Slowest pass.
    pub min: f64,
    /// Fastest pass: the peak that shares refer to.
    pub max: f64,
    /// Number of threads.
    pub threads: usize,
    /// Number of passes.
    pub reps: usize,
    /// The machine.
    pub machine: &'a super::record::Machine,
    /// The program's commit, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
}

/// Measures and prints the limits of 1, 2, 4, ... and `threads` threads; returns those of `threads`.
pub fn measure(threads: usize, reps: usize, metadata: &RunMetadata, out: &mut Output<'_>) -> Result<Roofline> {
    let memory = ReadMemory::new().map_err(|error| {
        UserError::error(format!("cannot allocate memory to measure its bandwidth: {error}"), "remove `--limits`")
    })?;
    let passes = reps.max(LEAST_PASSES);
    let mut roofline = Roofline::default();
    for n in counts(threads) {
        let limits = Limits::new(n).with_context(|| format!("cannot start {n} threads"))?;
        let read = limits.read_bandwidth(&memory, passes);
        let (int8, f32) = (limits.int8_ops(passes), limits.f32_ops(passes));
        let tiles = (limits.int8_tile_ops(passes), limits.bf16_tile_ops(passes));
        let mut all = vec![("read-bandwidth", &read), ("int8-peak", &int8), ("f32-peak", &f32)];
        all.extend(tiles.0.as_ref().map(|rates| ("int8-tile-peak", rates)));
        all.extend(tiles.1.as_ref().map(|rates| ("bf16-tile-peak", rates)));
        for (test, rates) in all {
            let giga: Vec<f64> = rates.iter().map(|rate| rate / 1e9).collect();
            let summary = Summary::of(&giga);
            let bytes = test == "read-bandwidth";
            out.limit(&Limit {
                test,
                gb_s: bytes.then_some(summary.median),
                gop_s: (!bytes).then_some(summary.median),
                min: summary.min,
                max: summary.max,
                threads: n,
                reps: passes,
                machine: &metadata.machine,
                commit: metadata.commit,
            })?;
        }
        let peak = |rates: &Vec<f64>| Summary::of(rates).max;
        roofline = Roofline {
            read_bytes: Some(peak(&read)),
            int8_ops: Some(peak(&int8)),
            tile_ops: tiles.1.as_ref().map(peak),
        };
    }
    Ok(roofline)
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

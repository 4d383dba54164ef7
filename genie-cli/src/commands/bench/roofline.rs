//! `--limits`: the machine's peak rates, measured with the bundle's thread count.
//!
//! *Units*: per second, all threads together. *Trap*: the memory of a shared machine changes its rate within minutes, so reading is
//! measured again right before and right after each decode test, and its share is of the mean of these two.

use std::time::Duration;

use anyhow::{Context, Result};
use qnn_host::roofline::{Limits, ReadMemory};
use serde::Serialize;

use super::output::Output;
use super::record::{RunMetadata, Summary};
use crate::failure::UserError;

/// Fewest passes per limit; each takes milliseconds.
const LEAST_PASSES: usize = 9;

/// Ways of reading that [`Limits::read_bandwidth`] tries, each with an uncounted pass before its others.
const WAYS: f64 = 3.0;

/// Time for measuring reading again, as long as a pass of each way fits.
const AGAIN: Duration = Duration::from_millis(400);

/// Rows from which on a matrix unit computes a step.
const TILE_ROWS: usize = 64;

/// Peak rates of all threads, per second; `None` if not measured.
#[derive(Debug, Default)]
pub struct Roofline {
    /// Measures the bytes that are read, again and again.
    pub reads: Option<ReadGauge>,
    /// Operations on 8-bit integers.
    pub int8_ops: Option<f64>,
    /// Operations of a matrix unit on tiles of bf16, which computes steps of 64 rows or more.
    pub tile_ops: Option<f64>,
}

impl Roofline {
    /// The peak that a prompt of `n` tokens is compared with: the higher one of the units that may compute it.
    pub fn prompt_ops(&self, n: usize) -> Option<f64> {
        let tiles = self.tile_ops.filter(|_| n >= TILE_ROWS);
        [tiles, self.int8_ops].into_iter().flatten().reduce(f64::max)
    }
}

/// Read bandwidth right before and right after a test, bytes/s: the fastest pass of each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadLimit {
    /// Before the test.
    pub before: f64,
    /// After it.
    pub after: f64,
}

impl ReadLimit {
    /// What a share is of.
    pub fn mean(&self) -> f64 {
        f64::midpoint(self.before, self.after)
    }
}

/// Measures the read bandwidth again, in less than half a second. Its threads are there only while it does.
#[derive(Debug)]
pub struct ReadGauge {
    memory: ReadMemory,
    threads: usize,
    passes: usize,
}

impl ReadGauge {
    /// `rate`: what was measured already, bytes/s.
    fn new(memory: ReadMemory, threads: usize, rate: f64) -> Self {
        let passes = passes_within(AGAIN, memory.size_bytes() as f64 / rate);
        Self { memory, threads, passes }
    }

    /// The fastest pass, bytes/s.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn measure(&self) -> Result<f64> {
        let n = self.threads;
        let limits = Limits::new(n).with_context(|| format!("cannot start {n} threads"))?;
        Ok(Summary::of(&limits.read_bandwidth(&self.memory, self.passes)).max)
    }
}

/// Counted passes of each way that take that time, if a pass takes `pass` seconds; one at least.
fn passes_within(time: Duration, pass: f64) -> usize {
    ((time.as_secs_f64() / (WAYS * pass)) as usize).saturating_sub(1).clamp(1, LEAST_PASSES)
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
    /// Fastest pass: the peak that shares of prompts refer to.
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
    let mut read_bytes = 0.0;
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
        read_bytes = peak(&read);
        (roofline.int8_ops, roofline.tile_ops) = (Some(peak(&int8)), tiles.1.as_ref().map(peak));
    }
    roofline.reads = Some(ReadGauge::new(memory, threads, read_bytes));
    Ok(roofline)
}

/// 1, 2, 4, ... and `threads` itself.
fn counts(threads: usize) -> Vec<usize> {
    let doubling = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
    doubling.take_while(|&n| n < threads).chain([threads]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_again_takes_less_than_half_a_second() {
        let passes = |pass| passes_within(AGAIN, pass);
        assert_eq!([0.001, 0.022, 0.023, 0.07, 0.3, f64::INFINITY].map(passes), [9, 5, 4, 1, 1, 1]);
    }

    #[test]
    fn the_mean_is_between_before_and_after() {
        assert_eq!(ReadLimit { before: 31e9, after: 55e9 }.mean(), 43e9);
    }

    #[test]
    fn prompts_of_64_tokens_or_more_are_compared_with_the_faster_unit() {
        let roofline = |int8, tiles| Roofline { reads: None, int8_ops: int8, tile_ops: tiles };
        let of = |n: usize, int8, tiles| roofline(int8, tiles).prompt_ops(n);
        assert_eq!(of(63, Some(2e12), Some(7e12)), Some(2e12));
        assert_eq!(of(64, Some(2e12), Some(7e12)), Some(7e12));
        assert_eq!(of(512, Some(2e12), Some(7e12)), Some(7e12));
        assert_eq!(of(512, Some(2e12), Some(1e12)), Some(2e12));
        assert_eq!(of(512, Some(2e12), None), Some(2e12));
        assert_eq!(of(512, None, None), None);
    }

    #[test]
    fn numbers_of_threads_double() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
    }
}

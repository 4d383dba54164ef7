//! The result of a test, as a JSON line or a row of a table.

#[cfg(feature = "plot")]
use std::path::Path;

use engine::calibrate::median;
use open_genie::Opened;
use serde::Serialize;

use super::measure::Test;
use super::roofline::{ReadLimit, Roofline};
use super::weight_traffic::WeightTraffic;

/// What all results of a run share.
#[derive(Serialize)]
pub struct RunMetadata {
    /// Threads of the embedded backend.
    pub threads: usize,
    /// The cores that the threads are pinned to; empty if they are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pin: Vec<usize>,
    /// The machine.
    pub machine: Machine,
    /// The commit that this program was built from, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
    /// This program's version.
    build: &'static str,
    bundle: String,
    backend: String,
    policy: &'static str,
}

/// For fields that are left out when they are 0.
pub fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// The machine that runs the tests.
#[derive(Serialize)]
pub struct Machine {
    cpu: String,
    cores: usize,
    platform: String,
    /// The instruction set that the embedded backend uses.
    isa: &'static str,
}

impl RunMetadata {
    /// Of an open bundle on this machine.
    pub fn new(model: &Opened) -> Result<Self, open_genie::Error> {
        let (calibration, threads) = (model.calibration()?, model.threads());
        let (backend, machine) = (calibration.backend(), calibration.machine());
        Ok(Self {
            threads: threads.count().unwrap_or(machine.cores),
            pin: threads.pin().to_vec(),
            machine: Machine {
                cpu: machine.cpu.clone(),
                cores: machine.cores,
                platform: machine.platform.clone(),
                isa: qnn_host::kernels::Isa::detect().name(),
            },
            commit: option_env!("GENIE_COMMIT"),
            build: env!("CARGO_PKG_VERSION"),
            bundle: model.bundle().path().display().to_string(),
            backend: format!("{} {}", backend.name, backend.build_id),
            policy: match model {
                Opened::Plain(model) => model.engine().policy().name(),
                Opened::Fused(_) => "fused",
            },
        })
    }
}

impl RunMetadata {
    /// What ran the tests: `2 threads of CPU (avx2)`, and how many busy threads there were beside them.
    pub fn line(&self, disturb: usize) -> String {
        let (cpu, isa, threads) = (&self.machine.cpu, self.machine.isa, self.threads);
        let plural = if threads == 1 { "" } else { "s" };
        format!("{threads} thread{plural} of {cpu} ({isa}){}", beside(disturb))
    }

    /// Title of the plot.
    #[cfg(feature = "plot")]
    pub fn title(&self, disturb: usize) -> String {
        let bundle = Path::new(&self.bundle).parent().and_then(Path::file_name).unwrap_or_default();
        format!("{}, {}", bundle.to_string_lossy(), self.line(disturb))
    }
}

/// `, beside 2 busy threads`, or nothing.
pub fn beside(disturb: usize) -> String {
    match disturb {
        0 => String::new(),
        1 => ", beside 1 busy thread".to_owned(),
        n => format!(", beside {n} busy threads"),
    }
}

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Self {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        Self { median: median(values), min, max: values.iter().copied().fold(0.0, f64::max) }
    }
}

/// The result of a test.
#[derive(Serialize)]
pub struct Record<'a> {
    /// Its name.
    pub test: String,
    /// Median, tokens/s.
    pub tok_s: f64,
    /// Slowest run, tokens/s.
    pub min: f64,
    /// Fastest run, tokens/s.
    pub max: f64,
    /// Tokens/s of each run, in order.
    pub samples_ts: Vec<f64>,
    /// Median milliseconds per run.
    pub ms: f64,
    /// Tokens per run.
    pub tokens: usize,
    /// Tokens in the cache before the test.
    pub fill: usize,
    /// Bytes of weights that a decode step reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// For decoding: 10^9 bytes of weights per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_s: Option<f64>,
    /// For prefill: 10^9 operations per second in the products with weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gop_s: Option<f64>,
    /// For decoding: the read bandwidth right before the test, 10^9 bytes/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_before: Option<f64>,
    /// The same right after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_after: Option<f64>,
    /// Fraction of the measured peak: for decoding the mean of the read bandwidth before and after, for prefill that of operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Measured runs.
    pub reps: usize,
    /// Other threads that were kept busy meanwhile.
    #[serde(skip_serializing_if = "is_zero")]
    pub disturb: usize,
    /// What all results of the run share.
    #[serde(flatten)]
    pub metadata: &'a RunMetadata,
}

/// What was found of a test.
pub struct Measured {
    /// Of each run.
    pub seconds: Vec<f64>,
    /// Other threads that were kept busy meanwhile.
    pub disturb: usize,
    /// The read bandwidth before and after it, where shares are wanted of a decode test.
    pub reads: Option<ReadLimit>,
}

/// Rates of one test that differ by more than this were not taken on an idle machine.
const MOST_SPREAD: f64 = 2.0;

impl<'a> Record<'a> {
    /// What speaks against the figure: runs that took very different times.
    pub fn doubt(&self) -> Option<String> {
        let (min, median, max) = (self.min, self.tok_s, self.max);
        let far = max > MOST_SPREAD * median || median > MOST_SPREAD.powi(2) * min;
        far.then(|| format!("{} ran at {min:.1} to {max:.1} tokens/s, the median is {median:.1}", self.test))
    }

    /// Of a test that was run.
    pub fn new(
        metadata: &'a RunMetadata,
        test: &Test,
        measured: &Measured,
        weights: &WeightTraffic,
        roofline: &Roofline,
    ) -> Self {
        let Measured { seconds, disturb, reads } = measured;
        let tokens = test.tokens();
        let samples_ts: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s).collect();
        let Summary { median: tok_s, min, max } = Summary::of(&samples_ts);
        let (fill, rate, limit) = match *test {
            Test::Prefill(n) => (0, weights.prompt_weights.map(|n| 2.0 * n as f64 * tok_s), roofline.prompt_ops(n)),
            Test::Decode { fill, .. } => {
                (fill, weights.step_bytes.map(|n| n as f64 * tok_s), reads.as_ref().map(ReadLimit::mean))
            }
        };
        let decode = matches!(test, Test::Decode { .. });
        Self {
            test: test.to_string(),
            tok_s,
            min,
            max,
            samples_ts,
            ms: median(seconds) * 1e3,
            tokens,
            fill,
            bytes: weights.step_bytes,
            gb_s: rate.filter(|_| decode).map(|rate| rate / 1e9),
            gop_s: rate.filter(|_| !decode).map(|rate| rate / 1e9),
            limit_before: reads.map(|reads| reads.before / 1e9),
            limit_after: reads.map(|reads| reads.after / 1e9),
            share: rate.zip(limit).map(|(rate, limit)| rate / limit),
            reps: seconds.len(),
            disturb: *disturb,
            metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static METADATA: RunMetadata = RunMetadata {
        threads: 2,
        pin: Vec::new(),
        machine: Machine { cpu: String::new(), cores: 2, platform: String::new(), isa: "avx2" },
        commit: None,
        build: "",
        bundle: String::new(),
        backend: String::new(),
        policy: "fewest",
    };
    /// 10^9 operations for each token of a prompt, 10^9 bytes for each step.
    const WEIGHTS: WeightTraffic = WeightTraffic { step_bytes: Some(1_000_000_000), prompt_weights: Some(500_000_000) };
    const ROOFLINE: Roofline = Roofline { reads: None, int8_ops: Some(100e9), tile_ops: Some(400e9) };

    /// Of a test that ran at 20 tokens/s.
    fn record(test: Test, reads: Option<ReadLimit>) -> Record<'static> {
        let seconds = vec![test.tokens() as f64 / 20.0; 3];
        Record::new(&METADATA, &test, &Measured { seconds, disturb: 0, reads }, &WEIGHTS, &ROOFLINE)
    }

    #[test]
    fn a_prompt_of_64_tokens_or_more_has_a_share_of_the_tiles() {
        let share = |n| record(Test::Prefill(n), None).share;
        assert_eq!([63, 64, 512].map(share), [Some(0.2), Some(0.05), Some(0.05)]);
        let long = record(Test::Prefill(512), None);
        assert_eq!((long.gop_s, long.gb_s, long.limit_before), (Some(20.0), None, None));
    }

    #[test]
    fn a_decode_test_has_a_share_of_the_mean_of_both_limits() {
        let reads = ReadLimit { before: 30e9, after: 50e9 };
        let decode = record(Test::Decode { n: 64, fill: 9 }, Some(reads));
        assert_eq!((decode.limit_before, decode.limit_after), (Some(30.0), Some(50.0)));
        assert_eq!((decode.gb_s, decode.share), (Some(20.0), Some(0.5)));
        let without = record(Test::Decode { n: 64, fill: 9 }, None);
        assert_eq!((without.gb_s, without.share), (Some(20.0), None));
    }

    #[test]
    fn the_line_of_the_machine_tells_of_busy_threads() {
        assert_eq!(METADATA.line(0), "2 threads of  (avx2)");
        assert!(
            METADATA.line(1).ends_with(", beside 1 busy thread") && METADATA.line(3).ends_with("beside 3 busy threads")
        );
    }
}

//! A measure as it is written: one JSON line, or a row of a table.

use std::path::Path;

use engine::calibrate::median;
use serde::Serialize;

use super::measure::Test;
use super::roofline::Roofline;
use super::weight_traffic::WeightTraffic;
use crate::calibration::CalibrationContext;
use crate::threads::Threads;

/// What is the same for all measures of a run.
#[derive(Serialize)]
pub struct RunMetadata {
    /// Threads of the embedded backend.
    pub threads: usize,
    /// The cores that they are kept on, if they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pin: Vec<usize>,
    /// Where.
    pub machine: Machine,
    /// The commit that this program was built from, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
    /// This program's version.
    build: &'static str,
    bundle: String,
    backend: String,
    policy: &'static str,
}

/// Where it ran.
#[derive(Serialize)]
pub struct Machine {
    cpu: String,
    cores: usize,
    platform: String,
    /// The vector unit that the embedded backend takes here.
    isa: &'static str,
}

impl RunMetadata {
    /// This bundle, here.
    pub fn new(config: &Path, here: &CalibrationContext, threads: &Threads, policy: &'static str) -> Self {
        let (backend, machine) = (here.backend(), here.machine());
        Self {
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
            bundle: config.display().to_string(),
            backend: format!("{} {}", backend.name, backend.build_id),
            policy,
        }
    }
}

#[cfg(feature = "plot")]
impl RunMetadata {
    /// What a picture is titled with.
    pub fn title(&self) -> String {
        let bundle = Path::new(&self.bundle).parent().and_then(Path::file_name).unwrap_or_default();
        let (cpu, isa, threads) = (&self.machine.cpu, self.machine.isa, self.threads);
        let many = if threads == 1 { "" } else { "s" };
        format!("{}, {threads} thread{many} of {cpu} ({isa})", bundle.to_string_lossy())
    }
}

/// The middle, the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Self {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        Self { median: median(values), min, max: values.iter().copied().fold(0.0, f64::max) }
    }
}

/// One test's outcome.
#[derive(Serialize)]
pub struct Record<'a> {
    /// Its name.
    pub test: String,
    /// Tokens a second, the middle.
    pub tok_s: f64,
    /// The slowest.
    pub min: f64,
    /// The fastest.
    pub max: f64,
    /// Tokens a second of each run, in order.
    pub samples_ts: Vec<f64>,
    /// Milliseconds of a run, the middle.
    pub ms: f64,
    /// Tokens that were timed.
    pub tokens: usize,
    /// Tokens in the cache before.
    pub fill: usize,
    /// Bytes of weights that a decode step reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// For decoding: 10^9 bytes of weights a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_s: Option<f64>,
    /// For prefill: 10^9 operations a second in the products with weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gop_s: Option<f64>,
    /// Of the measured limit: read bandwidth for decoding, the int8 peak for prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Runs that count.
    pub reps: usize,
    #[serde(flatten)]
    about: &'a RunMetadata,
}

impl<'a> Record<'a> {
    /// From the seconds of each run.
    pub fn new(about: &'a RunMetadata, test: &Test, seconds: &[f64], work: &WeightTraffic, ceiling: &Roofline) -> Self {
        let tokens = test.tokens();
        let samples_ts: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s).collect();
        let Summary { median: tok_s, min, max } = Summary::of(&samples_ts);
        let (fill, rate, limit) = match *test {
            Test::Prefill(_) => (0, work.prompt_weights.map(|n| 2.0 * n as f64 * tok_s), ceiling.int8_ops),
            Test::Decode { fill, .. } => (fill, work.step_bytes.map(|n| n as f64 * tok_s), ceiling.read_bytes),
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
            bytes: work.step_bytes,
            gb_s: rate.filter(|_| decode).map(|rate| rate / 1e9),
            gop_s: rate.filter(|_| !decode).map(|rate| rate / 1e9),
            share: rate.zip(limit).map(|(rate, limit)| rate / limit),
            reps: seconds.len(),
            about,
        }
    }
}

//! The result of a test, as a JSON line or a row of a table.

use std::path::Path;

use engine::calibrate::median;
use open_genie::Opened;
use serde::Serialize;

use super::measure::Test;
use super::roofline::Roofline;
use super::weight_traffic::WeightTraffic;

/// What all results of a run share.
#[derive(Serialize)]
pub struct RunMetadata {
    /// Threads of the embedded backend.
    pub threads: usize,
    /// The cores that the threads are pinned to; empty if they are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pin: Vec<usize>,
    /// Other threads that were kept busy.
    #[serde(skip_serializing_if = "is_zero")]
    disturb: usize,
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

fn is_zero(n: &usize) -> bool {
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
    /// Of an open bundle on this machine, beside `disturb` busy threads.
    pub fn new(model: &Opened, disturb: usize) -> Result<Self, open_genie::Error> {
        let (calibration, threads) = (model.calibration()?, model.threads());
        let (backend, machine) = (calibration.backend(), calibration.machine());
        Ok(Self {
            threads: threads.count().unwrap_or(machine.cores),
            pin: threads.pin().to_vec(),
            disturb,
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

#[cfg(feature = "plot")]
impl RunMetadata {
    /// Title of the plot.
    pub fn title(&self) -> String {
        let bundle = Path::new(&self.bundle).parent().and_then(Path::file_name).unwrap_or_default();
        let (cpu, isa, threads) = (&self.machine.cpu, self.machine.isa, self.threads);
        let plural = if threads == 1 { "" } else { "s" };
        format!("{}, {threads} thread{plural} of {cpu} ({isa})", bundle.to_string_lossy())
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
    /// Fraction of the measured peak: read bandwidth for decoding, int8 operations for prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Measured runs.
    pub reps: usize,
    #[serde(flatten)]
    metadata: &'a RunMetadata,
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

    /// From the seconds of each run.
    pub fn new(
        metadata: &'a RunMetadata,
        test: &Test,
        seconds: &[f64],
        weights: &WeightTraffic,
        roofline: &Roofline,
    ) -> Self {
        let tokens = test.tokens();
        let samples_ts: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s).collect();
        let Summary { median: tok_s, min, max } = Summary::of(&samples_ts);
        let (fill, rate, limit) = match *test {
            Test::Prefill(n) => {
                let tiles = roofline.tile_ops.filter(|_| n >= 64);
                let peak = [tiles, roofline.int8_ops].into_iter().flatten().reduce(f64::max);
                (0, weights.prompt_weights.map(|n| 2.0 * n as f64 * tok_s), peak)
            }
            Test::Decode { fill, .. } => (fill, weights.step_bytes.map(|n| n as f64 * tok_s), roofline.read_bytes),
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
            share: rate.zip(limit).map(|(rate, limit)| rate / limit),
            reps: seconds.len(),
            metadata,
        }
    }
}

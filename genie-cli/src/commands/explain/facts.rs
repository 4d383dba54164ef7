//! What `genie explain` found out, as it is printed by `--json`; the report is made of nothing else.

use engine::Engine;
use explain::{CacheType, Operations, Shape, StepColumn};
use serde::Serialize;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// The model.
    pub shape: Shape,
    /// Where its checkpoint was.
    pub checkpoint: String,
    /// Longest context that was looked at.
    pub context: usize,
    /// The prompt.
    pub prompt: String,
    /// Its tokens: ids and texts.
    pub tokens: Vec<(u32, String)>,
    /// Sections that were left out have no facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equality: Option<Equality>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Times>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<Counted>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Vec<Memory>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<Graphs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Vec<super::modes::ModeFill>>,
}

/// Generation with the cache and without it, side by side.
#[derive(Debug, Serialize)]
pub struct Equality {
    pub steps: Vec<EqualStep>,
    /// All tokens are the same.
    pub equal: bool,
    pub largest_difference: f32,
}

/// One generated token.
#[derive(Debug, Serialize)]
pub struct EqualStep {
    pub step: usize,
    pub naive: (u32, String),
    pub cached: (u32, String),
    /// Of two logits.
    pub largest_difference: f32,
}

/// Seconds.
#[derive(Debug, Serialize)]
pub struct Times {
    pub prompt: usize,
    pub points: Vec<TimePoint>,
    /// Pairs of other prompt lengths.
    pub pairs: Vec<TimePoint>,
}

/// One length.
#[derive(Debug, Serialize)]
pub struct TimePoint {
    pub prompt: usize,
    pub generated: usize,
    /// Median, lowest, highest.
    pub cached_s: [f64; 3],
    /// The same; from some of the steps where not all were run.
    pub naive_s: [f64; 3],
    pub naive_steps_run: usize,
    pub speed_up: f64,
    pub needed_tokens: [u64; 2],
    /// With padding: rows that graphs computed.
    pub computed_rows: [u64; 2],
}

impl TimePoint {
    /// Generated tokens per second, with the cache and without.
    pub fn rates(&self) -> [f64; 2] {
        [self.cached_s[0], self.naive_s[0]].map(|seconds| self.generated as f64 / seconds.max(1e-12))
    }
}

/// Operations of a reply of as many tokens as the prompt has.
#[derive(Debug, Serialize)]
pub struct Counted {
    pub prompt: u64,
    pub generated: u64,
    pub without_cache: Operations,
    pub with_cache: Operations,
    /// The notebook's formula: without, with.
    pub simple: [u64; 2],
    /// The notebook's count of tokens without a cache.
    pub tokens_without_cache: u64,
}

/// Bytes of the cache.
#[derive(Debug, Serialize)]
pub struct Memory {
    pub model: String,
    pub cache_type: CacheType,
    pub bytes_per_token: u64,
    /// Tokens and bytes.
    pub points: Vec<(u64, u64)>,
}

/// Where time goes.
#[derive(Debug, Serialize)]
pub struct Profile {
    pub with_cache: Vec<super::super::bench::profile::OpTime>,
    pub without_cache: Vec<super::super::bench::profile::OpTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roofline: Option<Roofline>,
}

/// The machine's limits, and steps below them.
#[derive(Debug, Serialize)]
pub struct Roofline {
    pub threads: usize,
    pub bytes_per_second: f64,
    /// One for each kind of arithmetic that the kernels use; float32 first.
    pub peaks: Vec<Peak>,
    pub points: Vec<RooflinePoint>,
}

/// The most operations that the machine does in a second.
#[derive(Debug, Serialize)]
pub struct Peak {
    pub arithmetic: &'static str,
    pub operations_per_second: f64,
}

/// One step.
#[derive(Debug, Serialize)]
pub struct RooflinePoint {
    pub name: String,
    pub operations: u64,
    pub bytes: u64,
    pub seconds: f64,
}

impl RooflinePoint {
    /// Operations per byte, operations per second.
    pub fn place(&self) -> (f64, f64) {
        (self.operations as f64 / self.bytes.max(1) as f64, self.operations as f64 / self.seconds.max(1e-12))
    }
}

/// The graphs that ran.
#[derive(Debug, Serialize)]
pub struct Graphs {
    pub with_cache: Vec<StepColumn>,
    pub without_cache: Vec<StepColumn>,
    /// Bytes of a cache row, which a step writes for each of its tokens.
    pub row_bytes: u64,
}

/// Bytes of the cache of a model's graphs for that many tokens, if every layer keeps them all.
pub fn cache_bytes(engine: &Engine, tokens: usize) -> u64 {
    let rows = engine.layout().splits.iter().flat_map(|split| &split.kv);
    let row = rows.map(|kv| kv.tensor.n_heads * kv.tensor.head_dim * kv.dtype.size_bytes());
    (row.sum::<usize>() * tokens) as u64
}

/// How the graphs store the cache.
pub fn cache_type(engine: &Engine) -> CacheType {
    let dtype = engine.layout().splits.iter().flat_map(|split| &split.kv).map(|kv| kv.dtype).next();
    match dtype.map(|dtype| dtype.size_bytes()) {
        Some(4) => CacheType::F32,
        Some(1) => CacheType::U8,
        Some(2) if dtype.is_some_and(|dtype| dtype.name() != "float16") => CacheType::U16,
        _ => CacheType::F16,
    }
}

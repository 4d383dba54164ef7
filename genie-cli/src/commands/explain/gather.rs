//! Runs the graphs with the cache and those without it, and counts.
//!
//! *Units*: seconds. Steps without a cache all run the same graph as long as its width holds: of a long reply some are run, spread
//! over its length, and the sum is that of their mean; `naive_steps_run` says how many.

use std::time::{Duration, Instant};

use anyhow::Result;
use engine::{Engine, GraphProfile, TokenModel};
use explain::{CacheType, Operations, Shape, StepColumn, tokens};
use genie_types::{TokenId, Variant};
use indicatif::ProgressBar;
use open_genie::sampler::most_likely;
use open_genie::{Model, Naive};
use qnn_api::ProfileLevel;
use qnn_host::roofline::{Limits, ReadMemory};

use super::super::bench::measure::Test;
use super::super::bench::profile::{self, Step};
use super::super::bench::weight_traffic::WeightTraffic;
use super::facts::{
    Counted, EqualStep, Equality, Graphs, Memory, Peak, Profile, Roofline, RooflinePoint, TimePoint, Times,
    cache_bytes, cache_type,
};

/// Generated tokens of the curve.
const LENGTHS: [usize; 5] = [10, 50, 100, 200, 500];
/// Prompts and generated tokens of the table.
const PAIRS: [(usize, usize); 3] = [(32, 32), (128, 64), (256, 128)];
/// Steps without a cache that are run of one length, at most.
const SAMPLES: usize = 6;
/// Runs of one length with the cache, at most.
const RUNS: usize = 3;
/// For all runs of one length.
const BUDGET: Duration = Duration::from_millis(2500);
/// Prompt lengths of the counts.
const PROMPTS: [u64; 5] = [32, 64, 128, 256, 512];
/// Passes of the machine's limits.
const PASSES: usize = 5;

/// Both sides, and the prompt.
pub struct Sides<'a> {
    pub model: &'a mut Model,
    pub naive: &'a mut Naive,
    pub prompt: Vec<TokenId>,
}

fn spread(mut seconds: Vec<f64>) -> [f64; 3] {
    seconds.sort_by(f64::total_cmp);
    let at = |i: usize| seconds.get(i).copied().unwrap_or(0.0);
    [at(seconds.len() / 2), at(0), at(seconds.len().saturating_sub(1))]
}

impl Sides<'_> {
    /// Most tokens that both take.
    pub fn limit(&self) -> usize {
        self.naive.limit().min(self.model.engine().context_size())
    }

    /// Greedy tokens of both sides, each over what it has generated itself.
    pub fn equality(&mut self, n: usize, text: &dyn Fn(TokenId) -> String, bar: &ProgressBar) -> Result<Equality> {
        let n = n.min(self.limit() - self.prompt.len() + 1);
        let (mut cached, mut naive) = (self.prompt.clone(), self.prompt.clone());
        let mut steps: Vec<EqualStep> = Vec::new();
        let engine = self.model.engine_mut();
        engine.reset()?;
        let mut row = engine.process(&cached)?.to_vec();
        for step in 1..=n {
            let whole = self.naive.logits(&naive)?;
            let difference = row.iter().zip(whole).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
            let (ours, theirs) = (most_likely(&row), most_likely(whole));
            steps.push(EqualStep {
                step,
                naive: (theirs.0, text(theirs)),
                cached: (ours.0, text(ours)),
                largest_difference: difference,
            });
            cached.push(ours);
            naive.push(theirs);
            if step < n {
                row = self.model.engine_mut().process(&[ours])?.to_vec();
            }
            bar.inc(1);
        }
        let equal = steps.iter().all(|step| step.naive.0 == step.cached.0);
        let largest_difference = steps.iter().map(|step| step.largest_difference).fold(0.0, f32::max);
        Ok(Equality { steps, equal, largest_difference })
    }

    /// Times of all lengths that fit.
    pub fn times(&mut self, bar: &ProgressBar) -> Result<Times> {
        let (prompt, limit) = (self.prompt.len(), self.limit());
        // A reply ends where the context does.
        let room = limit - prompt + 1;
        let mut lengths: Vec<usize> = LENGTHS.iter().map(|&n| n.min(room)).collect();
        lengths.dedup();
        let mut points = Vec::new();
        for n in lengths {
            points.push(self.time(prompt, n)?);
            bar.inc(1);
        }
        let mut pairs = Vec::new();
        for (prompt, n) in PAIRS.into_iter().filter(|(prompt, n)| prompt + n - 1 <= limit) {
            pairs.push(self.time(prompt, n)?);
            bar.inc(1);
        }
        Ok(Times { prompt, points, pairs })
    }

    fn time(&mut self, prompt: usize, n: usize) -> Result<TimePoint> {
        let all: Vec<TokenId> = self.prompt.iter().copied().cycle().take(prompt + n).collect();
        let began = Instant::now();
        let (mut seconds, mut rows) = (Vec::new(), 0);
        while seconds.is_empty() || (seconds.len() < RUNS && began.elapsed() < BUDGET / 2) {
            let engine = self.model.engine_mut();
            engine.reset()?;
            engine.clear_steps();
            let started = Instant::now();
            engine.process(&all[..prompt])?;
            for token in &all[prompt..prompt + n - 1] {
                engine.process(std::slice::from_ref(token))?;
            }
            seconds.push(started.elapsed().as_secs_f64());
            rows = variants_of(engine).iter().map(|variant| variant.ar().get() as u64).sum();
        }
        let (began, mut each) = (Instant::now(), Vec::new());
        let samples = SAMPLES.min(n);
        for k in 0..samples {
            if k > 1 && began.elapsed() > BUDGET / 2 {
                break;
            }
            // From both ends of the reply first: graphs of several widths may take its steps.
            let step = if samples == 1 { 0 } else { [0, n - 1, n / 2, n / 4, 3 * n / 4, n / 3][k].min(n - 1) };
            let started = Instant::now();
            self.naive.logits(&all[..prompt + step])?;
            each.push((self.naive.width_for(prompt + step).unwrap_or(1), started.elapsed().as_secs_f64()));
        }
        // A step costs what its width costs.
        let cost = |width: usize, pick: &dyn Fn([f64; 3]) -> f64| {
            let own: Vec<f64> = each.iter().filter(|(w, _)| *w == width).map(|(_, s)| *s).collect();
            if !own.is_empty() {
                return pick(spread(own));
            }
            let rates = each.iter().map(|(w, s)| s / *w as f64).collect();
            width as f64 * pick(spread(rates))
        };
        let widths: Vec<usize> = (0..n).filter_map(|i| self.naive.width_for(prompt + i)).collect();
        let sum = |pick: &dyn Fn([f64; 3]) -> f64| widths.iter().map(|&width| cost(width, pick)).sum::<f64>();
        let naive_s = [sum(&|s| s[0]), sum(&|s| s[1]), sum(&|s| s[2])];
        let cached_s = spread(seconds);
        let (p, g) = (prompt as u64, n as u64);
        Ok(TimePoint {
            prompt,
            generated: n,
            cached_s,
            naive_s,
            naive_steps_run: each.len(),
            speed_up: naive_s[0] / cached_s[0].max(1e-12),
            needed_tokens: [tokens::needed_with_cache(p, g), tokens::needed_without_cache(p, g)],
            computed_rows: [rows, widths.iter().map(|&width| width as u64).sum()],
        })
    }

    /// The steps of a prompt and some tokens, both ways.
    pub fn graphs(&mut self, n: usize) -> Result<Graphs> {
        let n = n.min(self.limit() - self.prompt.len() + 1);
        let all: Vec<TokenId> = self.prompt.iter().copied().cycle().take(self.prompt.len() + n).collect();
        let prompt = self.prompt.len();
        let engine = self.model.engine_mut();
        engine.reset()?;
        engine.clear_steps();
        engine.process(&all[..prompt])?;
        let of_prompt = variants_of(engine).len();
        for token in &all[prompt..prompt + n - 1] {
            engine.process(std::slice::from_ref(token))?;
        }
        let (mut past, mut with_cache) = (0, Vec::new());
        for (i, variant) in variants_of(engine).into_iter().enumerate() {
            let (ar, cl) = (variant.ar().get() as u64, variant.cl().get() as u64);
            let tokens = if i < of_prompt { ar.min(prompt as u64 - past) } else { 1 };
            with_cache.push(StepColumn { ar, cl, tokens, past });
            past += tokens;
        }
        let naive = (0..n).filter_map(|i| {
            let width = self.naive.width_for(prompt + i)? as u64;
            Some(StepColumn { ar: width, cl: width, tokens: (prompt + i) as u64, past: 0 })
        });
        let row_bytes = cache_bytes(self.model.engine(), 1);
        Ok(Graphs { with_cache, without_cache: naive.collect(), row_bytes })
    }

    /// Where a step's time goes, and the machine's limits.
    pub fn profile(&mut self, shape: &Shape) -> Result<Profile> {
        let (prompt, n) = (self.prompt.len(), 8.min(self.limit() - self.prompt.len()).max(1));
        let all: Vec<TokenId> = self.prompt.iter().copied().cycle().take(prompt + n).collect();
        let test = Test::Decode { n, fill: prompt };
        let traffic = WeightTraffic::of_plain(self.model)?;
        let row_bytes = cache_bytes(self.model.engine(), 1);
        let engine = self.model.engine_mut();
        engine.reset()?;
        engine.process(&all[..prompt])?;
        let decode = &all[prompt..(prompt + n).min(all.len())];
        let with_cache = profiled(engine, test, decode.iter(), |engine, token| {
            engine.process(std::slice::from_ref(token)).map(|_| ())
        })?;
        let engine = self.naive.model_mut().engine_mut();
        let without_cache =
            profiled(engine, test, 0..n.min(3), |engine, i| engine.recompute(&all[..prompt + i]).map(|_| ()))?;

        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let roofline = match (ReadMemory::new(), Limits::new(threads), traffic.step_bytes) {
            (Ok(memory), Ok(limits), Some(weights)) => {
                let best = |rates: Vec<f64>| rates.into_iter().fold(0.0, f64::max);
                let mean = |steps: &[Step]| {
                    steps.iter().map(|s| s.wall.as_secs_f64()).sum::<f64>() / steps.len().max(1) as f64
                };
                let width = self.naive.width_for(prompt).unwrap_or(prompt) as u64;
                let points = vec![
                    RooflinePoint {
                        name: "a step with the cache (one token)".into(),
                        operations: Operations::of_tokens(shape, prompt as u64, 1).total(),
                        bytes: weights + row_bytes * prompt as u64,
                        seconds: mean(&with_cache),
                    },
                    RooflinePoint {
                        name: format!("a step without it (a graph of {width} rows)"),
                        operations: Operations::of_graph(shape, width, width, 1).total(),
                        bytes: weights,
                        seconds: mean(&without_cache),
                    },
                ];
                let mut peaks = vec![("float32", limits.f32_ops(PASSES)), ("8-bit integers", limits.int8_ops(PASSES))];
                peaks.extend(limits.bf16_tile_ops(PASSES).map(|rates| ("bf16 on the matrix unit", rates)));
                let peak = |(arithmetic, rates)| Peak { arithmetic, operations_per_second: best(rates) };
                Some(Roofline {
                    threads,
                    bytes_per_second: best(limits.read_bandwidth(&memory, PASSES)),
                    peaks: peaks.into_iter().map(peak).collect(),
                    points,
                })
            }
            _ => None,
        };
        let (with_cache, without_cache) = (profile::times(&with_cache), profile::times(&without_cache));
        Ok(Profile { with_cache, without_cache, roofline })
    }

    /// Bytes of this model's cache and of well-known ones.
    pub fn memory(&self, shape: &Shape) -> Vec<Memory> {
        let of = |shape: &Shape, ty: CacheType, lengths: &[u64]| Memory {
            model: shape.name.to_string(),
            cache_type: ty,
            bytes_per_token: shape.cache_bytes(ty, 1),
            points: lengths.iter().map(|&n| (n, shape.cache_bytes(ty, n))).collect(),
        };
        let own: Vec<u64> =
            [16, 64, 128, 256, 512, 1024, 2048, 4096].into_iter().filter(|n| *n <= self.limit() as u64).collect();
        let long = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
        let mut all = vec![of(shape, cache_type(self.model.engine()), &own)];
        for named in &Shape::NAMED {
            all.extend(CacheType::COMPARED.map(|ty| of(named, ty, &long)));
        }
        all
    }
}

/// Operations of replies as long as their prompts.
pub fn operations(shape: &Shape) -> Vec<Counted> {
    let of = |n: u64| {
        let (with, without) = Operations::simple(shape.layers, shape.hidden, n);
        Counted {
            prompt: n,
            generated: n,
            without_cache: Operations::without_cache(shape, n, n),
            with_cache: Operations::with_cache(shape, n, n),
            simple: [without, with],
            tokens_without_cache: tokens::without_cache(n, n),
        }
    };
    PROMPTS.into_iter().map(of).collect()
}

/// The variants of the steps since the log was cleared, by the graphs of the first split.
fn variants_of(engine: &Engine) -> Vec<Variant> {
    let layout = engine.layout();
    let Some(first) = layout.splits.first() else { return Vec::new() };
    let of = |name: &str| {
        let at = first.graphs.iter().position(|graph| graph.info.name == name)?;
        layout.variants.get(at).copied()
    };
    engine.steps().names().filter_map(of).collect()
}

fn profiled<T>(
    engine: &mut Engine,
    test: Test,
    pieces: impl Iterator<Item = T>,
    mut run: impl FnMut(&mut Engine, T) -> Result<(), engine::EngineError>,
) -> Result<Vec<Step>> {
    let profile = GraphProfile::keeping_runs(ProfileLevel::Detailed);
    engine.executor_mut().set_profile(Some(profile.clone()));
    let mut steps = Vec::new();
    let mut failed = None;
    for piece in pieces {
        let began = Instant::now();
        if let Err(error) = run(engine, piece) {
            failed = Some(error);
            break;
        }
        steps.push(Step { test, began, wall: began.elapsed(), runs: profile.take_runs() });
    }
    engine.executor_mut().set_profile(None);
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(steps),
    }
}

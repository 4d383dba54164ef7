//! Compares generation with the KV cache against full recomputation.
//!
//! For each prompt length the model generates greedily with its cache. Then, for each generated token, all tokens before it
//! are run again with an empty cache, and the two rows of logits and their most likely tokens are compared.
//!
//! *Fused graphs* have no other reference in the bundle than themselves: a request alone against one in company. What both have wrong alike is
//! found by comparing with plain graphs of the same model.

use dialog::sampler::most_likely;
use engine::{Engine, SeqId, SeqTokens, SequenceModel, TokenModel};
use genie_types::{Dtype, TokenId};
use serde::Serialize;

use crate::{Error, Model, PairModel};

/// The result of one prompt length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub generated: usize,
    /// Tokens that differ although the recomputed logits differ by more than the tolerance.
    pub wrong_tokens: usize,
    /// Tokens that differ where the recomputed logits are equal within the tolerance: no error.
    pub ties: usize,
    /// Largest difference of two logits, relative to the row's largest logit.
    pub max_relative_difference: f32,
    /// Graphs that ran with the cache, in order, with their counts.
    pub executed: Vec<(String, usize)>,
    /// What the tokens were recomputed by.
    pub reference: Reference,
    /// No wrong token, and no difference above the tolerance.
    pub ok: bool,
}

/// What tokens are recomputed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The same graphs over an empty cache, by plan: a fault of a graph that both runs have is not seen.
    Replay,
    /// A graph of the bundle that has no cache (AR == CL).
    Graph,
    /// The same request alone, on fused graphs.
    Fused,
    /// Graphs without a cache that were compiled from the checkpoint.
    Naive,
}

impl Model {
    /// Checks all weights ([`Self::check_weights_in_full`]), then verifies `n` generated tokens, fewer where the context ends, after a prompt of `length` pseudo-random tokens; calls
    /// `progress` after each. The cache is empty or arbitrary afterwards.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`], [`Error::PromptLength`], [`Error::NothingToVerify`], [`Error::Tolerance`]; a graph fails.
    pub fn verify(
        &mut self,
        length: usize,
        n: usize,
        tolerance: f32,
        progress: &mut dyn FnMut(),
    ) -> Result<Verification, Error> {
        check(length, n, tolerance, self.engine().context_size())?;
        self.check_weights_in_full()?;
        verify(self.engine_mut(), None, length, n, tolerance, progress)
    }

    /// [`Self::verify`] against graphs without a cache. The prompt and what is generated must fit those.
    ///
    /// # Errors
    /// Those of [`Self::verify`], and of [`crate::Naive::logits`].
    #[cfg(feature = "demo")]
    pub fn verify_with(
        &mut self,
        naive: &mut crate::Naive,
        length: usize,
        n: usize,
        tolerance: f32,
        progress: &mut dyn FnMut(),
    ) -> Result<Verification, Error> {
        check(length, n, tolerance, self.engine().context_size())?;
        self.check_weights_in_full()?;
        verify(self.engine_mut(), Some(naive.model_mut().engine_mut()), length, n, tolerance, progress)
    }

    /// Refuses prompts that [`Self::verify`] cannot take.
    ///
    /// # Errors
    /// [`Error::PromptLength`].
    pub fn check_prompt_length(&self, length: usize) -> Result<(), Error> {
        let limit = self.engine().context_size();
        if length == 0 || length > limit { Err(Error::PromptLength { length, limit }) } else { Ok(()) }
    }

    /// A tolerance larger than rounding errors and much smaller than the effect of a wrong cache row: 1e-4 for float32
    /// graphs, else 2e-2.
    pub fn default_tolerance(&self) -> f32 {
        let is_f32 = self
            .engine()
            .layout()
            .splits
            .iter()
            .flat_map(|s| &s.graphs)
            .flat_map(|g| &g.info.outputs)
            .all(|t| t.dtype == Dtype::F32);
        tolerance_of(is_f32)
    }

    /// The edges of chunks of the largest AR that fit, then the longest prompts.
    pub fn default_prompt_lengths(&self) -> Vec<usize> {
        let engine = self.engine();
        let ar = engine.layout().variants.iter().map(|v| v.ar().get()).max().unwrap_or(1);
        lengths_around(ar, engine.context_size())
    }
}

impl PairModel {
    /// As [`Model::verify`]. A second prompt runs chunk by chunk beside the decode rows, so that the fused graphs carry both; each request
    /// is compared with itself alone: run again from nothing, its prompt in chunks.
    ///
    /// # Errors
    /// As there.
    pub fn verify(
        &mut self,
        length: usize,
        n: usize,
        tolerance: f32,
        progress: &mut dyn FnMut(),
    ) -> Result<Verification, Error> {
        check(length, n, tolerance, self.runner().context_size())?;
        self.check_weights_in_full()?;
        let runner = self.runner_mut();
        let (limit, vocab) = (runner.context_size(), runner.vocab_size());
        let (mut tokens, other) = (pseudo_random(length, vocab), pseudo_random(limit, vocab));
        let n = n.min(limit - length + 1);
        runner.reset()?;
        runner.clear_steps();
        let mut cached = vec![runner.process(&tokens)?.to_vec()];
        // The other prompt's rows of logits, by the tokens up to them.
        let mut beside: Vec<(usize, Vec<f32>)> = Vec::new();
        while cached.len() < n {
            let token = most_likely(&cached[cached.len() - 1]);
            tokens.push(token);
            let at = runner.n_past_of(SeqId(1));
            let chunk = (cached.len() % 5 + 1).min(limit - at);
            let (one, other) = ([token], &other[at..at + chunk]);
            let both = [SeqTokens { seq: SeqId(0), tokens: &one }, SeqTokens { seq: SeqId(1), tokens: other }];
            let mut rows = [Vec::new(), Vec::new()];
            runner.process_batch(&both, &mut |i, logits| rows[i] = logits.to_vec())?;
            let [row, of_other] = rows;
            cached.push(row);
            beside.push((at + chunk, of_other));
            if at + chunk == limit {
                runner.remove(SeqId(1), 0..usize::MAX)?;
            }
        }
        let executed = runner.steps().runs().into_iter().map(|(g, n)| (g.to_owned(), n)).collect();
        let mut outcome = Verification::none((length, n), Reference::Fused, executed);
        for (i, row) in cached.iter().enumerate() {
            runner.reset()?;
            outcome.compare(row, runner.process(&tokens[..length + i])?, tolerance);
            progress();
        }
        for (len, row) in &beside {
            runner.reset()?;
            outcome.compare(row, runner.process(&other[..*len])?, tolerance);
        }
        Ok(outcome.done(tolerance))
    }

    /// As [`Model::default_tolerance`].
    pub fn default_tolerance(&self) -> f32 {
        let mut outputs = self.runner().layout().graphs().flat_map(|g| &g.info.outputs);
        tolerance_of(outputs.all(|t| t.dtype == Dtype::F32))
    }

    /// The edges of chunks of the widest graph, then the longest prompts.
    pub fn default_prompt_lengths(&self) -> Vec<usize> {
        lengths_around(self.runner().limits().prefill_len, self.runner().context_size())
    }
}

fn check(length: usize, n: usize, tolerance: f32, limit: usize) -> Result<(), Error> {
    if length == 0 || length > limit {
        return Err(Error::PromptLength { length, limit });
    }
    if n == 0 {
        return Err(Error::NothingToVerify);
    }
    if !(tolerance.is_finite() && tolerance >= 0.0) {
        return Err(Error::Tolerance { found: tolerance });
    }
    Ok(())
}

const fn tolerance_of(is_f32: bool) -> f32 {
    if is_f32 { 1e-4 } else { 2e-2 }
}

fn lengths_around(chunk: usize, limit: usize) -> Vec<usize> {
    let mut lengths =
        vec![1, chunk.saturating_sub(1), chunk, chunk + 1, 2 * chunk + 3, limit - limit.min(20), limit - 1, limit];
    lengths.retain(|&n| n > 0 && n <= limit);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

fn verify(
    engine: &mut Engine,
    mut naive: Option<&mut Engine>,
    length: usize,
    n: usize,
    tolerance: f32,
    progress: &mut dyn FnMut(),
) -> Result<Verification, Error> {
    let mut tokens = pseudo_random(length, engine.vocab_size());
    // The prompt's logits give one token; each further token takes one cell of the context.
    let n = n.min(engine.context_size() - length + 1);
    engine.reset()?;
    engine.clear_steps();
    let mut cached = vec![engine.process(&tokens)?.to_vec()];
    while cached.len() < n {
        let token = most_likely(&cached[cached.len() - 1]);
        tokens.push(token);
        cached.push(engine.process(&[token])?.to_vec());
    }
    let executed = engine.steps().runs().into_iter().map(|(g, n)| (g.to_owned(), n)).collect();

    let reference = match naive {
        Some(_) => Reference::Naive,
        None if has_whole_graph(engine, length + n - 1) => Reference::Graph,
        None => Reference::Replay,
    };
    let mut outcome = Verification::none((length, n), reference, executed);
    for (i, row) in cached.iter().enumerate() {
        let reference = match naive.as_deref_mut() {
            Some(naive) => naive,
            None => &mut *engine,
        };
        outcome.compare(row, reference.recompute(&tokens[..length + i])?, tolerance);
        progress();
    }
    Ok(outcome.done(tolerance))
}

impl Verification {
    fn none((prompt_tokens, generated): (usize, usize), reference: Reference, executed: Vec<(String, usize)>) -> Self {
        let (wrong_tokens, ties, max_relative_difference) = (0, 0, 0.0);
        Self { prompt_tokens, generated, wrong_tokens, ties, max_relative_difference, executed, reference, ok: true }
    }

    fn compare(&mut self, row: &[f32], whole: &[f32], tolerance: f32) {
        let largest = whole.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
        let difference = row.iter().zip(whole).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / largest;
        self.max_relative_difference = self.max_relative_difference.max(difference);
        let (ours, theirs) = (most_likely(row), most_likely(whole));
        if ours != theirs {
            let margin = (whole[theirs.0 as usize] - whole[ours.0 as usize]) / largest;
            if margin <= tolerance {
                self.ties += 1;
            } else {
                self.wrong_tokens += 1;
            }
        }
    }

    fn done(mut self, tolerance: f32) -> Self {
        self.ok = self.wrong_tokens == 0 && self.max_relative_difference <= tolerance;
        self
    }
}

/// Whether a graph without a cache takes that many tokens.
fn has_whole_graph(engine: &Engine, tokens: usize) -> bool {
    let evicts = engine.variants().groups().iter().any(|group| group.evicts());
    !evicts && engine.layout().variants.iter().any(|v| v.is_full_context() && v.ar().get() >= tokens)
}

/// A pseudo-random prompt, the same in each run.
fn pseudo_random(length: usize, vocab: usize) -> Vec<TokenId> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        TokenId((state % vocab as u64) as u32)
    };
    (0..length).map(|_| next()).collect()
}

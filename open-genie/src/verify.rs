//! Compares generation with the KV cache against full recomputation.
//!
//! For each prompt length the model generates greedily with its cache. Then, for each generated token, all tokens before it
//! are run again with an empty cache, and the two rows of logits and their most likely tokens are compared.

use engine::{Engine, TokenModel};
use genie_types::{Dtype, TokenId};
use serde::Serialize;

use crate::{Error, Model};

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
    /// No wrong token, and no difference above the tolerance.
    pub ok: bool,
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
        self.check_prompt_length(length)?;
        if n == 0 {
            return Err(Error::NothingToVerify);
        }
        if !(tolerance.is_finite() && tolerance >= 0.0) {
            return Err(Error::Tolerance { found: tolerance });
        }
        self.check_weights_in_full()?;
        verify(self.engine_mut(), length, n, tolerance, progress)
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
        if is_f32 { 1e-4 } else { 2e-2 }
    }

    /// The edges of chunks of the largest AR that fit, then the longest prompts.
    pub fn default_prompt_lengths(&self) -> Vec<usize> {
        let engine = self.engine();
        let limit = engine.context_size();
        let ar = engine.layout().variants.iter().map(|v| v.ar().get()).max().unwrap_or(1);
        let mut lengths =
            vec![1, ar.saturating_sub(1), ar, ar + 1, 2 * ar + 3, limit - limit.min(20), limit - 1, limit];
        lengths.retain(|&n| n > 0 && n <= limit);
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }
}

fn verify(
    engine: &mut Engine,
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
        let token = argmax(&cached[cached.len() - 1]);
        tokens.push(token);
        cached.push(engine.process(&[token])?.to_vec());
    }
    let executed = engine.steps().runs().into_iter().map(|(g, n)| (g.to_owned(), n)).collect();

    let mut outcome = Verification {
        prompt_tokens: length,
        generated: n,
        wrong_tokens: 0,
        ties: 0,
        max_relative_difference: 0.0,
        executed,
        ok: true,
    };
    for (i, row) in cached.iter().enumerate() {
        let whole = engine.recompute(&tokens[..length + i])?;
        let largest = whole.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
        let difference = row.iter().zip(whole).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / largest;
        outcome.max_relative_difference = outcome.max_relative_difference.max(difference);
        let (ours, theirs) = (argmax(row), argmax(whole));
        if ours != theirs {
            let margin = (whole[theirs.0 as usize] - whole[ours.0 as usize]) / largest;
            if margin <= tolerance {
                outcome.ties += 1;
            } else {
                outcome.wrong_tokens += 1;
            }
        }
        progress();
    }
    outcome.ok = outcome.wrong_tokens == 0 && outcome.max_relative_difference <= tolerance;
    Ok(outcome)
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

/// The most likely token; the lowest id if several are.
fn argmax(logits: &[f32]) -> TokenId {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    TokenId(best as u32)
}

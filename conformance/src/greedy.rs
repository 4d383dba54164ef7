//! Greedy generation with its logits, and a second model held to the first one's tokens.
//!
//! Two sequences that differ in one token tell nothing more after it. So the second model is fed the first one's tokens
//! ("forced"): every step is compared, and a choice that differs is reported with both margins.

use engine::{Engine, TokenModel};
use genie_types::TokenId;

/// Tokens, and the logits that each was taken from.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In order of generation.
    pub tokens: Vec<TokenId>,
    /// `[tokens.len()][vocab]`.
    pub logits: Vec<Vec<f32>>,
}

/// How a trace differs from a reference over the same tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Largest difference of a logit.
    pub worst: f32,
    /// The reference's largest logit, to which `worst` relates.
    pub scale: f32,
    /// Smallest margin of the reference over all steps.
    pub least_margin: f32,
    /// Steps at which the reference prefers another token, with the reference's margin there.
    pub flips: Vec<(usize, f32)>,
}

/// Generates `n` tokens after `input`, always the most likely one; does not stop at any.
///
/// # Panics
/// The engine fails.
pub fn generate(engine: &mut Engine, input: &[TokenId], n: usize) -> Trace {
    run(engine, input, n, |_, logits| TokenId(best(logits).0 as u32))
}

/// The logits of the same steps when the tokens are given.
///
/// # Panics
/// The engine fails.
pub fn forced(engine: &mut Engine, input: &[TokenId], tokens: &[TokenId]) -> Trace {
    run(engine, input, tokens.len(), |i, _| tokens[i])
}

fn run(engine: &mut Engine, input: &[TokenId], n: usize, pick: impl Fn(usize, &[f32]) -> TokenId) -> Trace {
    let mut trace = Trace::default();
    let mut next = input.to_vec();
    for i in 0..n {
        let logits = engine.process(&next).expect("the engine runs");
        trace.tokens.push(pick(i, logits));
        trace.logits.push(logits.to_vec());
        next = vec![trace.tokens[i]];
    }
    trace
}

impl Trace {
    /// Against a reference over the same tokens.
    pub fn against(&self, reference: &[Vec<f32>]) -> Comparison {
        assert_eq!(self.logits.len(), reference.len());
        let mut found = Comparison { least_margin: f32::INFINITY, ..Comparison::default() };
        for (i, (ours, theirs)) in self.logits.iter().zip(reference).enumerate() {
            assert_eq!(ours.len(), theirs.len());
            for (a, b) in ours.iter().zip(theirs) {
                // A NaN is as wrong as can be, and no maximum would show it.
                let off = (a - b).abs();
                found.worst = if off.is_nan() { f32::INFINITY } else { found.worst.max(off) };
                found.scale = found.scale.max(b.abs());
            }
            let (token, margin) = best(theirs);
            found.least_margin = found.least_margin.min(margin);
            if token != best(ours).0 {
                found.flips.push((i, margin));
            }
        }
        found
    }
}

impl Comparison {
    /// `worst` over `scale`.
    pub fn relative(&self) -> f32 {
        self.worst / self.scale
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "logits within {:.4} of {:.2}, least margin {:.3}, ", self.worst, self.scale, self.least_margin)?;
        match self.flips.as_slice() {
            [] => write!(f, "no flip"),
            [(at, margin), ..] => {
                write!(f, "{} flips, the first at token {at} with margin {margin:.4}", self.flips.len())
            }
        }
    }
}

/// The most likely token, and how far the next one is below it.
pub fn best(logits: &[f32]) -> (usize, f32) {
    let mut best = (0, f32::NEG_INFINITY);
    let mut second = f32::NEG_INFINITY;
    for (i, &value) in logits.iter().enumerate() {
        if value > best.1 {
            second = best.1;
            best = (i, value);
        } else {
            second = second.max(value);
        }
    }
    (best.0, best.1 - second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flips_and_distances_are_seen() {
        assert_eq!(best(&[1.0, 3.0, 2.5]), (1, 0.5));
        let trace = Trace { tokens: vec![TokenId(1); 2], logits: vec![vec![1.0, 3.0], vec![0.5, 0.4]] };
        let found = trace.against(&[vec![1.0, 3.0], vec![0.4, 0.5]]);
        assert_eq!(found.flips, [(1, 0.5 - 0.4)]);
        assert!((found.worst - 0.1).abs() < 1e-6 && found.scale == 3.0);
        let broken = Trace { tokens: vec![TokenId(0)], logits: vec![vec![f32::NAN, 0.0]] };
        assert_eq!(broken.against(&[vec![1.0, 0.0]]).worst, f32::INFINITY);
    }
}

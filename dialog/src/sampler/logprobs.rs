//! Logarithms of the probabilities that the model gives to a drawn token and to the likeliest ones.
//!
//! *Units*: natural logarithms of the softmax of the model's logits at temperature 1, before bias, penalties and filters; tokens
//! that a grammar forbids have none.

use genie_types::TokenId;

/// A token of a reply and how likely it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token.
    pub token: TokenId,
    /// Its logarithm; `None` for a token that was not drawn, since the grammar left no choice.
    pub logprob: Option<f32>,
    /// The likeliest tokens, the likeliest first, as many as were asked for.
    pub top: Vec<(TokenId, f32)>,
}

impl Logprobs {
    /// Of a token that was drawn from these logits, with the `n` likeliest.
    pub fn of(logits: &[f32], token: TokenId, n: usize) -> Self {
        let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let total: f64 = logits.iter().map(|l| (f64::from(*l) - max).exp()).sum();
        let of = |logit: f32| (f64::from(logit) - max - total.ln()) as f32;
        let mut top: Vec<(TokenId, f32)> = Vec::with_capacity(n + 1);
        for (id, &logit) in (0..).map(TokenId).zip(logits) {
            if logit == f32::NEG_INFINITY || (top.len() == n && top.last().is_none_or(|(_, least)| logit <= *least)) {
                continue;
            }
            let at = top.partition_point(|(_, other)| *other >= logit);
            top.insert(at, (id, logit));
            top.truncate(n);
        }
        top.iter_mut().for_each(|(_, logit)| *logit = of(*logit));
        Self { token, logprob: logits.get(token.0 as usize).map(|l| of(*l)), top }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_logarithms_of_the_softmax() {
        // Probabilities 0.1, 0.2, 0.7, and one that is forbidden.
        let logits = [0.0, 2f32.ln(), 7f32.ln(), f32::NEG_INFINITY];
        let found = Logprobs::of(&logits, TokenId(1), 2);
        assert!((found.logprob.unwrap() - 0.2f32.ln()).abs() < 1e-6);
        assert_eq!(found.top.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [2, 1]);
        assert!((found.top[0].1 - 0.7f32.ln()).abs() < 1e-6);
        assert_eq!(Logprobs::of(&logits, TokenId(0), 9).top.len(), 3);
        assert_eq!(Logprobs::of(&logits, TokenId(0), 0).top, []);
        // Ties go to the lower id.
        assert_eq!(Logprobs::of(&[1.0, 1.0, 1.0], TokenId(2), 2).top.iter().map(|t| t.0.0).collect::<Vec<_>>(), [0, 1]);
    }
}

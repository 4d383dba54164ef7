//! What a request beside others may ask for, and what it gets piece by piece.

use genie_types::TokenId;
use grammar::Grammar;

use super::error::DialogError;
use crate::kinds::LookupSettings;
use crate::sampler::{Chain, Logprobs, SamplerSettings};

/// How one request is answered.
#[derive(Clone, Debug)]
pub struct RequestSettings {
    /// How tokens are drawn; with a seed of its own a request has the same reply alone and in company.
    pub sampler: SamplerSettings,
    /// Texts that end the reply.
    pub stop_sequences: Vec<String>,
    /// Most tokens of the reply.
    pub max_tokens: Option<usize>,
    /// What the reply must follow.
    pub grammar: Option<Grammar>,
    /// Drafts by prompt lookup, verified as rows of the request.
    pub lookup: Option<LookupSettings>,
    /// What is added to the logits of these tokens before one is drawn; minus infinity forbids a token. It is the first stage of
    /// the sampler's chain, behind the bias that the chain has already; a token that is named twice has the sum.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Give each token's log-probability, with those of the `n` likeliest tokens.
    pub logprobs: Option<usize>,
    /// The model's end tokens are tokens like others: only a limit, a stop text or the grammar ends the reply.
    pub ignore_end_tokens: bool,
}

/// A part of a reply that was not given out before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyPiece {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Their text, as far as it is certain.
    pub text: String,
    /// What the model thought meanwhile, apart from the text: of channel `analysis` where replies are in the `harmony` format.
    pub reasoning: String,
    /// How likely each of the tokens was, if the request wants to know; else empty.
    pub logprobs: Vec<Logprobs>,
}

impl RequestSettings {
    /// Draws like this, with nothing that ends the reply but the model.
    pub fn new(sampler: SamplerSettings) -> Self {
        Self {
            sampler,
            stop_sequences: Vec::new(),
            max_tokens: None,
            grammar: None,
            lookup: None,
            logit_bias: Vec::new(),
            logprobs: None,
            ignore_end_tokens: false,
        }
    }

    /// The sampler's settings with the bias in their chain.
    ///
    /// # Errors
    /// A token beyond the vocabulary, a number that is none.
    pub(super) fn biased_sampler(&self, n_vocab: usize) -> Result<SamplerSettings, DialogError> {
        for &(token, bias) in &self.logit_bias {
            if token.0 as usize >= n_vocab {
                return Err(DialogError::BiasToken { token, n_vocab });
            }
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(DialogError::BiasNumber { token, found: bias });
            }
        }
        let sampler = self.sampler.clone();
        if self.logit_bias.is_empty() {
            return Ok(sampler);
        }
        let own = sampler.chain().clone();
        let logit_bias = [&own.logit_bias[..], &self.logit_bias].concat();
        Ok(sampler.with_chain(Chain { logit_bias, ..own }).expect("chain and bias were checked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Sampler;

    #[test]
    fn the_bias_is_the_first_stage_of_the_chain() {
        let settings = |bias: &[(u32, f32)]| RequestSettings {
            logit_bias: bias.iter().map(|(token, by)| (TokenId(*token), *by)).collect(),
            ..RequestSettings::new(SamplerSettings::default().with_greedy(true))
        };
        let drawn = |bias| {
            let sampler = settings(bias).biased_sampler(4).expect("it is good");
            Sampler::new(sampler).sample(&[1.0, 1.0, 5.0, 2.0]).expect("one is left").0
        };
        assert_eq!(drawn(&[]), 2);
        assert_eq!(drawn(&[(2, f32::NEG_INFINITY)]), 3);
        assert_eq!(drawn(&[(1, 2.5), (1, 2.0)]), 1, "the sum counts");
        // A bias that the chain has is kept.
        let chain = Chain { logit_bias: vec![(TokenId(2), f32::NEG_INFINITY)], ..Chain::default() };
        let mut both = settings(&[(3, f32::NEG_INFINITY)]);
        both.sampler = both.sampler.with_chain(chain).expect("it is good");
        let sampler = both.biased_sampler(4).expect("it is good");
        assert_eq!(Sampler::new(sampler).sample(&[1.0, 1.5, 5.0, 2.0]).expect("one is left"), TokenId(1));
        let error = |token, by| settings(&[(token, by)]).biased_sampler(4).expect_err("it is refused").to_string();
        assert_eq!(error(4, 1.0), "a bias for token 4: expected a token below 4");
        assert_eq!(error(3, f32::NAN), "a bias of NaN for token 3: expected a number, or -inf");
    }
}

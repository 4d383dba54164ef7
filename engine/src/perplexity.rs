//! Negative log-likelihood (NLL) and perplexity of tokens under a model: `-ln p(token | the tokens before it)`.
//!
//! A text is cut into windows, each of them a dialog of its own. With a BOS token before it a window's first token is
//! predicted as well, without one it is context only. Perplexity is e to the mean NLL.
//!
//! *Units*: nats; sums in double.

use genie_types::TokenId;

use crate::{EngineError, TokenModel};

/// Sums over the predicted tokens of one or more windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NllStats {
    /// Tokens predicted.
    pub tokens: usize,
    /// Sum of their NLL, in nats.
    pub nll: f64,
    /// Sum of the squares of their NLL.
    pub nll_squares: f64,
}

impl NllStats {
    /// Mean NLL: nats per token.
    pub fn mean(&self) -> f64 {
        self.nll / self.tokens as f64
    }

    /// e to the mean.
    pub fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Standard error of the mean, as if all tokens were independent.
    pub fn standard_error(&self) -> f64 {
        let n = self.tokens as f64;
        ((self.nll_squares / n - self.mean().powi(2)).max(0.0) / n).sqrt()
    }

    /// Adds the sums of other tokens.
    pub fn join(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.nll += other.nll;
        self.nll_squares += other.nll_squares;
    }

    fn add(&mut self, nll: f64) {
        self.join(Self { tokens: 1, nll, nll_squares: nll * nll });
    }
}

/// The NLL of one window, from an empty context: the model is reset first.
///
/// # Errors
///
/// Those of [`TokenModel::process`]: more tokens than a context holds, tokens that are not in the vocabulary.
pub fn of_window(
    model: &mut dyn TokenModel,
    bos: Option<TokenId>,
    window: &[TokenId],
) -> Result<NllStats, EngineError> {
    let mut found = NllStats::default();
    let predicted = if bos.is_some() { window } else { window.get(1..).unwrap_or_default() };
    let Some((last, _)) = window.split_last().filter(|_| !predicted.is_empty()) else { return Ok(found) };
    if last.0 as usize >= model.vocab_size() {
        // The last token is never fed, so the model does not check it.
        let vocab_size = model.vocab_size();
        return Err(EngineError::TokenOutOfRange { token: *last, place: window.len() - 1, vocab_size });
    }
    let fed: Vec<TokenId> = bos.into_iter().chain(window[..window.len() - 1].iter().copied()).collect();
    model.reset()?;
    model.process_rows(&fed, &mut |place, logits| found.add(nll(logits, predicted[place])))?;
    Ok(found)
}

/// The NLL of the second half of a chunk, from an empty context: as llama.cpp's perplexity tool counts. With a BOS token that one
/// stands in the place of the chunk's first. A chunk of fewer than three tokens has no second half.
///
/// # Errors
///
/// As [`of_window`].
pub fn of_chunk(model: &mut dyn TokenModel, bos: Option<TokenId>, chunk: &[TokenId]) -> Result<NllStats, EngineError> {
    let (mut found, first) = (NllStats::default(), chunk.len() / 2);
    let mut fed = chunk.to_vec();
    let Some(last) = fed.pop().filter(|_| first < chunk.len() - 1) else { return Ok(found) };
    if last.0 as usize >= model.vocab_size() {
        let vocab_size = model.vocab_size();
        return Err(EngineError::TokenOutOfRange { token: last, place: chunk.len() - 1, vocab_size });
    }
    if let Some(bos) = bos {
        fed[0] = bos;
    }
    model.reset()?;
    model.process_rows(&fed, &mut |place, logits| {
        if place >= first {
            found.add(nll(logits, chunk[place + 1]));
        }
    })?;
    Ok(found)
}

/// NLL of one token.
fn nll(logits: &[f32], token: TokenId) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
    largest + sum.ln() - f64::from(logits[token.0 as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StepLog, Transcript};

    /// Predicts that every token follows the one below it, with odds of e to 1; notes what it is fed.
    struct Counting {
        fed: Transcript,
        log: StepLog,
        logits: [f32; 8],
    }

    impl TokenModel for Counting {
        fn vocab_size(&self) -> usize {
            self.logits.len()
        }

        fn context_size(&self) -> usize {
            8
        }

        fn n_past(&self) -> usize {
            self.fed.len()
        }

        fn transcript(&self) -> &Transcript {
            &self.fed
        }

        fn mark_generated(&mut self, index: usize) {
            self.fed.mark_generated(index);
        }

        fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
            self.fed.extend(tokens, self.fed.len());
            self.logits = [0.0; 8];
            let last = tokens.last().ok_or(EngineError::NoTokens)?.0 as usize;
            self.logits[(last + 1) % 8] = 1.0;
            Ok(&self.logits)
        }

        fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
            self.process(tokens).map(drop)
        }

        fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
            self.fed.truncate(n_past);
            Ok(())
        }

        fn reset(&mut self) -> Result<(), EngineError> {
            self.rewind(0)
        }

        fn steps(&self) -> &StepLog {
            &self.log
        }
    }

    #[test]
    fn a_chunk_counts_its_second_half() {
        let mut model = Counting { fed: Transcript::default(), log: StepLog::default(), logits: [0.0; 8] };
        let chunk: Vec<TokenId> = [5, 1, 2, 3, 4, 6].map(TokenId).to_vec();
        // Predicted from places 3 and 4: 4 behind 3 as the model says, 6 behind 4 not.
        let found = of_chunk(&mut model, Some(TokenId(0)), &chunk).unwrap();
        let total = (7.0 + 1f64.exp()).ln();
        assert_eq!(found.tokens, 2);
        assert!((found.nll - (total - 1.0 + total)).abs() < 1e-6, "{}", found.nll);
        assert_eq!(model.fed.len(), 5, "the last token is predicted, not fed");
        assert_eq!(model.fed.tokens()[0], TokenId(0), "BOS stands in the place of the first");
        assert_eq!(of_chunk(&mut model, None, &chunk[..2]).unwrap().tokens, 0);
    }

    #[test]
    fn windows_begin_empty_and_cost_what_the_logits_give() {
        let e = std::f64::consts::E;
        let (right, wrong) = ((7.0 + e).ln() - 1.0, (7.0 + e).ln());
        struct Case {
            bos: Option<u32>,
            window: &'static [u32],
            fed: &'static [u32],
            hits: &'static [bool],
        }
        let cases = [
            Case { bos: Some(0), window: &[1, 2, 5], fed: &[0, 1, 2], hits: &[true, true, false] },
            Case { bos: None, window: &[1, 2, 5], fed: &[1, 2], hits: &[true, false] },
            Case { bos: Some(0), window: &[2], fed: &[0], hits: &[false] },
            Case { bos: None, window: &[2], fed: &[], hits: &[] },
            Case { bos: Some(0), window: &[], fed: &[], hits: &[] },
        ];
        let ids = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<_>>();
        for Case { bos, window, fed, hits } in cases {
            let mut model = Counting { fed: Transcript::default(), log: StepLog::new(vec![], 0), logits: [0.0; 8] };
            let mut expected = NllStats::default();
            hits.iter().for_each(|hit| expected.add(if *hit { right } else { wrong }));
            let found = of_window(&mut model, bos.map(TokenId), &ids(window)).unwrap();
            assert_eq!((found.tokens, model.fed.tokens()), (hits.len(), &ids(fed)[..]));
            assert!(
                (found.nll - expected.nll).abs() < 1e-12 && (found.nll_squares - expected.nll_squares).abs() < 1e-12
            );
        }
    }

    #[test]
    fn mean_error_and_perplexity() {
        let mut all = NllStats::default();
        [1.0, 3.0].into_iter().for_each(|nll| all.add(nll));
        assert_eq!((all.mean(), all.standard_error()), (2.0, 0.5f64.sqrt()));
        assert_eq!(all.perplexity(), 2f64.exp());
    }

    #[test]
    fn a_last_token_out_of_the_vocabulary_is_refused() {
        let mut model = Counting { fed: Transcript::default(), log: StepLog::new(vec![], 0), logits: [0.0; 8] };
        let error = of_window(&mut model, None, &[TokenId(1), TokenId(8)]).unwrap_err();
        assert!(matches!(error, EngineError::TokenOutOfRange { place: 1, vocab_size: 8, .. }), "{error}");
    }
}

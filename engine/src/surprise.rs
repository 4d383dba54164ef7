//! How well a model foretells a text: the nats that each token costs it, `-ln p(token | what stands before it)`.
//!
//! A text is cut into windows, each begun afresh. With a BOS token before it a window's first token is foretold as well,
//! without one it is only read. Perplexity is e to the mean.
//!
//! *Units*: nats; sums in double.

use genie_types::TokenId;

use crate::{EngineError, TokenModel};

/// What some tokens cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Surprise {
    /// Tokens foretold.
    pub tokens: usize,
    /// Their costs added up.
    pub nats: f64,
    /// The squares of their costs added up.
    pub squares: f64,
}

impl Surprise {
    /// Nats a token.
    pub fn mean(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// e to the mean.
    pub fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Of the mean, were all tokens independent.
    pub fn standard_error(&self) -> f64 {
        let n = self.tokens as f64;
        ((self.squares / n - self.mean().powi(2)).max(0.0) / n).sqrt()
    }

    /// Adds what other tokens cost.
    pub fn join(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.nats += other.nats;
        self.squares += other.squares;
    }

    fn add(&mut self, nats: f64) {
        self.join(Self { tokens: 1, nats, squares: nats * nats });
    }
}

/// What one window costs a model, which forgets all before it.
///
/// # Errors
///
/// Those of [`TokenModel::process`]: more tokens than a context holds, tokens that are not in the vocabulary.
pub fn of_window(
    model: &mut dyn TokenModel,
    bos: Option<TokenId>,
    window: &[TokenId],
) -> Result<Surprise, EngineError> {
    let mut found = Surprise::default();
    let foretold = if bos.is_some() { window } else { window.get(1..).unwrap_or_default() };
    let Some((last, _)) = window.split_last().filter(|_| !foretold.is_empty()) else { return Ok(found) };
    if last.0 as usize >= model.vocab_size() {
        // The last token is never fed, so nobody else would look at it.
        let vocab_size = model.vocab_size();
        return Err(EngineError::TokenOutOfRange { token: *last, place: window.len() - 1, vocab_size });
    }
    let fed: Vec<TokenId> = bos.into_iter().chain(window[..window.len() - 1].iter().copied()).collect();
    model.reset()?;
    model.process_rows(&fed, &mut |place, logits| found.add(cost(logits, foretold[place])))?;
    Ok(found)
}

/// Nats of one token.
fn cost(logits: &[f32], token: TokenId) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
    largest + sum.ln() - f64::from(logits[token.0 as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StepLog, Transcript};

    /// Foretells that every token follows the one below it, with odds of e to 1; notes what it is fed.
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
    fn windows_begin_afresh_and_cost_what_the_logits_say() {
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
            let mut expected = Surprise::default();
            hits.iter().for_each(|hit| expected.add(if *hit { right } else { wrong }));
            let found = of_window(&mut model, bos.map(TokenId), &ids(window)).unwrap();
            assert_eq!((found.tokens, model.fed.tokens()), (hits.len(), &ids(fed)[..]));
            assert!((found.nats - expected.nats).abs() < 1e-12 && (found.squares - expected.squares).abs() < 1e-12);
        }
    }

    #[test]
    fn mean_error_and_perplexity() {
        let mut all = Surprise::default();
        [1.0, 3.0].into_iter().for_each(|nats| all.add(nats));
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

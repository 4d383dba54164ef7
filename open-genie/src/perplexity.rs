//! The perplexity of a text: NLL per token over windows that each start with an empty cache.
//!
//! *Units*: nats; tokens.

use engine::perplexity::{NllStats, of_window};
use engine::{EngineError, TokenModel};
use genie_types::TokenId;

use crate::{Error, Model};

/// How well a model predicts a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// Tokens per window, at most.
    pub window: usize,
    /// Windows.
    pub windows: usize,
    /// Tokens predicted.
    pub tokens: usize,
    /// Mean NLL, in nats per token.
    pub nll: f64,
    /// Standard error of that mean, as if tokens were independent.
    pub standard_error: f64,
    /// e to the mean NLL.
    pub perplexity: f64,
}

impl Model {
    /// The window where none is given: the context, but no longer than what the model was trained for.
    pub fn default_window(&self) -> usize {
        let limit = self.engine().context_size();
        self.bundle().trained_positions().map_or(limit, |trained| trained.clamp(1, limit).max(2.min(limit)))
    }

    /// Windows that a text of these tokens is cut into; without a size, [`Self::default_window`]. Each starts with an empty
    /// cache, and with the BOS token if the config names one.
    ///
    /// # Errors
    /// [`Error::Window`] for a size that the context cannot take.
    pub fn windows<'t>(
        &self,
        tokens: &'t [TokenId],
        size: Option<usize>,
    ) -> Result<std::slice::Chunks<'t, TokenId>, Error> {
        let limit = self.engine().context_size();
        let window = size.unwrap_or_else(|| self.default_window());
        let least = if self.bundle().config().context().bos.is_some() { 1 } else { 2 };
        if window < least || window > limit {
            return Err(Error::Window { window, least, limit });
        }
        Ok(tokens.chunks(window))
    }

    /// The perplexity over the first `max_windows` windows of [`Self::windows`]; calls `progress` after each. The cache is
    /// arbitrary afterwards. Stopped by [`Self::stop_flag`], it is that of the windows before, as long as there is one.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`], [`Error::Window`], [`Error::NothingToPredict`], a token outside the vocabulary, a graph that fails.
    pub fn perplexity(
        &mut self,
        tokens: &[TokenId],
        size: Option<usize>,
        max_windows: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Perplexity, Error> {
        self.check_weights()?;
        let bos = self.bundle().config().context().bos;
        let window = size.unwrap_or_else(|| self.default_window());
        let (mut all, mut windows) = (NllStats::default(), 0);
        for window in self.windows(tokens, size)?.take(max_windows) {
            match of_window(self.engine_mut(), bos, window) {
                Err(EngineError::Stopped { .. }) if windows > 0 => break,
                found => all.join(found?),
            }
            windows += 1;
            progress();
        }
        if all.tokens == 0 {
            return Err(Error::NothingToPredict { tokens: tokens.len() });
        }
        Ok(Perplexity {
            window,
            windows,
            tokens: all.tokens,
            nll: all.mean(),
            standard_error: all.standard_error(),
            perplexity: all.perplexity(),
        })
    }
}

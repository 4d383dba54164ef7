//! The perplexity of a text: NLL per token over windows that each start with an empty cache.
//!
//! *Units*: nats; tokens.

use engine::perplexity::{NllStats, of_chunk, of_window};
use engine::{EngineError, TokenModel};
use genie_types::TokenId;

use crate::{Bundle, Error, Model, PairModel};

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

impl Bundle {
    /// The window where none is given: the context, but no longer than what the model was trained for.
    pub(crate) fn window_within(&self, limit: usize) -> usize {
        self.trained_positions().map_or(limit, |trained| trained.clamp(1, limit).max(2.min(limit)))
    }

    /// Windows that a text of these tokens is cut into in a context of `limit` tokens.
    pub(crate) fn windows_within<'t>(
        &self,
        limit: usize,
        tokens: &'t [TokenId],
        size: Option<usize>,
    ) -> Result<std::slice::Chunks<'t, TokenId>, Error> {
        let window = size.unwrap_or_else(|| self.window_within(limit));
        let least = if self.config().context().bos.is_some() { 1 } else { 2 };
        if window < least || window > limit {
            return Err(Error::Window { window, least, limit });
        }
        Ok(tokens.chunks(window))
    }
}

impl Model {
    /// The window where none is given: the context, but no longer than what the model was trained for.
    pub fn default_window(&self) -> usize {
        self.bundle().window_within(self.engine().context_size())
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
        self.bundle().windows_within(self.engine().context_size(), tokens, size)
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
        let bundle = self.bundle().clone();
        of_windows(self.engine_mut(), &bundle, (tokens, size, max_windows), progress)
    }

    /// As [`Self::perplexity`], as llama.cpp's tool measures it, so that both figures can be compared: the text, with the BOS token
    /// before it if the config names one, is cut into chunks of `size` tokens, what is left over does not count; each starts with an
    /// empty cache, BOS takes the place of its first token, and its second half is predicted.
    ///
    /// # Errors
    /// As [`Self::perplexity`].
    pub fn perplexity_by_chunks(
        &mut self,
        tokens: &[TokenId],
        size: usize,
        max_chunks: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Perplexity, Error> {
        self.check_weights()?;
        let bos = self.bundle().config().context().bos;
        of_chunks(self.engine_mut(), bos, (tokens, size, max_chunks), progress)
    }
}

impl PairModel {
    /// As [`Model::perplexity`]: each token of a window in turn, as the graphs give no other rows of logits.
    ///
    /// # Errors
    /// As there.
    pub fn perplexity(
        &mut self,
        tokens: &[TokenId],
        size: Option<usize>,
        max_windows: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Perplexity, Error> {
        self.check_weights()?;
        let bundle = self.bundle().clone();
        of_windows(self.runner_mut(), &bundle, (tokens, size, max_windows), progress)
    }

    /// As [`Self::perplexity`], as llama.cpp's tool measures it, so that both figures can be compared: the text, with the BOS token
    /// before it if the config names one, is cut into chunks of `size` tokens, what is left over does not count; each starts with an
    /// empty cache, BOS takes the place of its first token, and its second half is predicted.
    ///
    /// # Errors
    /// As [`Self::perplexity`].
    pub fn perplexity_by_chunks(
        &mut self,
        tokens: &[TokenId],
        size: usize,
        max_chunks: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Perplexity, Error> {
        self.check_weights()?;
        let bos = self.bundle().config().context().bos;
        of_chunks(self.runner_mut(), bos, (tokens, size, max_chunks), progress)
    }
}

fn of_windows(
    model: &mut dyn TokenModel,
    bundle: &Bundle,
    (tokens, size, max_windows): (&[TokenId], Option<usize>, usize),
    progress: &mut dyn FnMut(),
) -> Result<Perplexity, Error> {
    let (bos, limit) = (bundle.config().context().bos, model.context_size());
    let window = size.unwrap_or_else(|| bundle.window_within(limit));
    let (mut all, mut windows) = (NllStats::default(), 0);
    for window in bundle.windows_within(limit, tokens, size)?.take(max_windows) {
        match of_window(model, bos, window) {
            Err(EngineError::Stopped { .. }) if windows > 0 => break,
            found => all.join(found?),
        }
        windows += 1;
        progress();
    }
    figures(all, window, windows, tokens.len())
}

fn of_chunks(
    model: &mut dyn TokenModel,
    bos: Option<TokenId>,
    (tokens, size, max_chunks): (&[TokenId], usize, usize),
    progress: &mut dyn FnMut(),
) -> Result<Perplexity, Error> {
    let limit = model.context_size();
    if size < 4 || size > limit {
        return Err(Error::Window { window: size, least: 4, limit });
    }
    let tokens: Vec<TokenId> = bos.into_iter().chain(tokens.iter().copied()).collect();
    let (mut all, mut n) = (NllStats::default(), 0);
    for chunk in tokens.chunks_exact(size).take(max_chunks) {
        match of_chunk(model, bos, chunk) {
            Err(EngineError::Stopped { .. }) if n > 0 => break,
            found => all.join(found?),
        }
        n += 1;
        progress();
    }
    figures(all, size, n, tokens.len())
}

fn figures(all: NllStats, window: usize, windows: usize, n_tokens: usize) -> Result<Perplexity, Error> {
    if all.tokens == 0 {
        return Err(Error::NothingToPredict { tokens: n_tokens });
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

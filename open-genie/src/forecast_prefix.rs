//! Forecast prefixes of `ssd-q1` dialogs: rows of the cache that only forecast tokens see, made from tokens.

use std::path::Path;

use engine::TokenModel;
use genie_types::TokenId;
use session_store::ForecastPrefix;

use crate::{Error, Model};

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadePrefix {
    /// Rows: the config's `forecast-prefix`.
    pub n_rows: usize,
}

impl Model {
    /// Processes tokens from an empty context and writes their rows into a folder, in the form that libGenie reads. Which
    /// tokens make a good prefix comes out of the model's training; the engine is empty afterwards.
    ///
    /// # Errors
    /// No tokens, tokens that the vocabulary lacks or the context does not hold; rows that libGenie's file cannot hold
    /// (windows, KeyDiff); the file system refuses.
    pub fn make_forecast_prefix(&mut self, tokens: &[TokenId], folder: &Path) -> Result<MadePrefix, Error> {
        let engine = self.engine_mut();
        engine.reset()?;
        // The logits are not wanted, but that there are tokens is.
        engine.process(tokens)?;
        let snapshot = engine.snapshot()?;
        engine.reset()?;
        ForecastPrefix::write(folder, &snapshot.image, tokens).map_err(Error::Store)?;
        Ok(MadePrefix { n_rows: tokens.len() })
    }
}

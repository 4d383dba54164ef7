//! A program's own rule for the end of a reply, asked after each token: for queries of text, tokens and embeddings, for each
//! stream and each prompt of a batch.

use std::sync::{Arc, Mutex, PoisonError};

use genie_types::TokenId;

type Stops = dyn FnMut(&str, &[TokenId]) -> bool + Send;

/// A function that is given a reply so far, text and tokens, and says whether it ends here. Clones call the same function.
#[derive(Clone)]
pub struct StopCallback(Arc<Mutex<Stops>>);

impl StopCallback {
    /// Wraps a function.
    pub fn new(stops: impl FnMut(&str, &[TokenId]) -> bool + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(stops)))
    }

    pub(super) fn stops(&self, text: &str, tokens: &[TokenId]) -> bool {
        // A function that panicked before is called again: what it makes of its own state is its affair.
        (self.0.lock().unwrap_or_else(PoisonError::into_inner))(text, tokens)
    }
}

impl std::fmt::Debug for StopCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StopCallback")
    }
}

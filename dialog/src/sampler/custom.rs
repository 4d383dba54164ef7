//! A program's own way to choose a token from a row of logits: Genie's sampler type `custom`.

use std::sync::{Arc, Mutex, PoisonError};

use genie_types::TokenId;

type Choose = dyn FnMut(&[f32]) -> TokenId + Send;

/// A function that is given the logits, penalties applied, and returns a token. Clones call the same function.
#[derive(Clone)]
pub struct SamplerCallback(Arc<Mutex<Choose>>);

impl SamplerCallback {
    /// Wraps a function.
    pub fn new(choose: impl FnMut(&[f32]) -> TokenId + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(choose)))
    }

    pub(super) fn choose(&self, logits: &[f32]) -> TokenId {
        // A function that panicked before is called again: what it makes of its own state is its affair.
        (self.0.lock().unwrap_or_else(PoisonError::into_inner))(logits)
    }
}

impl std::fmt::Debug for SamplerCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SamplerCallback")
    }
}

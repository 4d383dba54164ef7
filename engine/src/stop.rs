//! Stopping a model that runs: a flag that its run loop looks at before each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops the steps of one model, also from another thread. Clones are the same flag.
///
/// While it is set, every call that runs graphs ends before its next step with
/// [`EngineError::Stopped`](crate::EngineError::Stopped); the tokens of the steps before stay processed.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Sets it, until [`clear`](Self::clear).
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Lets the model run again.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

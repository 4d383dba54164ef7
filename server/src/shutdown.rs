//! How a server is asked to end, from any thread.

use tokio::sync::watch;

/// Asks a server to end: no connection is accepted any more, replies in the making are finished. Clones ask the same server.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Asks for it; more than once does no harm.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was asked for.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Until it was asked for.
    pub(crate) async fn begun(&self) {
        let mut seen = self.0.subscribe();
        // The sender lives in `self`.
        let _ = seen.wait_for(|begun| *begun).await;
    }
}

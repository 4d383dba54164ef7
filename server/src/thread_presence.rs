//! Whether the thread of a model still runs: a value that this thread owns, and that everyone else can see go.
//!
//! *Trap*: the thread's channels close a little before the value goes, so a request may find the thread gone first.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use open_genie::serving::{ServeError, Server};

thread_local! {
    /// Dropped when its thread ends, also after a panic.
    static MARK: Cell<Option<Arc<()>>> = const { Cell::new(None) };
}

/// Shows whether one thread still runs. Asking costs nothing, and waits for no step.
#[derive(Clone, Debug)]
pub(crate) struct ThreadPresence(Weak<()>);

impl ThreadPresence {
    /// Of the server's thread.
    ///
    /// # Errors
    /// [`ServeError::ShutDown`]: it has ended already.
    pub(crate) fn of(server: &Server) -> Result<Self, ServeError> {
        let mark = Arc::new(());
        let seen = Arc::downgrade(&mark);
        server.between_steps(move |_| MARK.set(Some(mark)))?;
        Ok(Self(seen))
    }

    /// Whether it runs.
    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_gone() {
        let mark = Arc::new(());
        let presence = ThreadPresence(Arc::downgrade(&mark));
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            MARK.set(Some(mark));
            ended.recv().expect("the test is there");
            panic!("as a model's thread might");
        });
        assert!(presence.is_there());
        end.send(()).expect("the thread is there");
        assert!(thread.join().is_err());
        assert!(!presence.is_there());
    }
}

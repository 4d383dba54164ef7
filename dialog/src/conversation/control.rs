//! A handle to a running query: stop it, pause it, change its limit, from a callback or another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// What to do with a running query. The numbers are Genie's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    /// Stop after the current token; the dialog can go on with another query.
    Abort = 1,
    /// Stop after the current token; `RESUME` continues the reply.
    Pause = 2,
}

/// No limit on generated tokens.
const UNLIMITED: usize = usize::MAX;

#[derive(Debug)]
struct Shared {
    signal: AtomicU8,
    max_num_tokens: AtomicUsize,
}

/// Controls one dialog. Clones control the same one.
///
/// ```
/// use dialog::{Chunk, Dialog, DialogError, Reply, SentenceCode, Signal};
/// use std::time::Duration;
///
/// /// Asks, and stops the reply after a second or at its hundredth token.
/// fn ask_briefly(dialog: &mut Dialog, prompt: &str) -> Result<Reply, DialogError> {
///     let control = dialog.control();
///     control.set_max_num_tokens(Some(100));
///     let timer = std::thread::spawn(move || {
///         std::thread::sleep(Duration::from_secs(1));
///         control.signal(Signal::Abort);
///     });
///     let reply = dialog.query(prompt, SentenceCode::Complete, |chunk: Chunk<'_>| print!("{}", chunk.text));
///     timer.join().expect("it does not panic");
///     reply
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

impl Control {
    pub(super) fn new(max_num_tokens: Option<usize>) -> Self {
        Self(Arc::new(Shared {
            signal: AtomicU8::new(0),
            max_num_tokens: AtomicUsize::new(max_num_tokens.unwrap_or(UNLIMITED)),
        }))
    }

    /// Acts at the next token of the running query; without effect if none runs. A prompt that is being processed is not
    /// interrupted: the engine processes it in one call.
    pub fn signal(&self, signal: Signal) {
        self.0.signal.store(signal as u8, Ordering::Release);
    }

    /// Limits the tokens of a reply, also of the one that is being generated. 0: process the prompt only.
    pub fn set_max_num_tokens(&self, limit: Option<usize>) {
        self.0.max_num_tokens.store(limit.unwrap_or(UNLIMITED), Ordering::Release);
    }

    /// The limit in force; `usize::MAX` is none.
    pub(super) fn max_num_tokens(&self) -> usize {
        self.0.max_num_tokens.load(Ordering::Acquire)
    }

    /// Takes the pending signal.
    pub(super) fn take(&self) -> Option<Signal> {
        match self.0.signal.swap(0, Ordering::AcqRel) {
            1 => Some(Signal::Abort),
            2 => Some(Signal::Pause),
            _ => None,
        }
    }
}

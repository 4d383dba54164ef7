//! A handle to a running query: stop it, pause it, change its limit, from a callback or another thread.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use engine::StopFlag;

/// What to do with a running query. The numbers are Genie's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    /// Stop after the current step, also within a prompt; the dialog can go on with another query.
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
    /// The model's: an abort also ends a prompt between two steps.
    stop: StopFlag,
    /// That of the other model of two.
    second: OnceLock<StopFlag>,
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
    pub(super) fn new(max_num_tokens: Option<usize>, stop: StopFlag) -> Self {
        Self(Arc::new(Shared {
            signal: AtomicU8::new(0),
            max_num_tokens: AtomicUsize::new(max_num_tokens.unwrap_or(UNLIMITED)),
            stop,
            second: OnceLock::new(),
        }))
    }

    /// An abort stops this model as well.
    pub(super) fn also_stops(&self, stop: StopFlag) {
        // A dialog takes its second model once, as it is made.
        let _ = self.0.second.set(stop);
    }

    /// Acts on the running query; without effect if none runs. An abort ends it at its next token, or within its prompt
    /// before the next step: what was processed by then stays in the dialog. A pause waits for the next token.
    pub fn signal(&self, signal: Signal) {
        self.0.signal.store(signal as u8, Ordering::Release);
        if signal == Signal::Abort {
            self.0.stop.set();
            self.0.second.get().into_iter().for_each(StopFlag::set);
        }
    }

    /// Limits the tokens of a reply, also of the one that is being generated. 0: process the prompt only.
    pub fn set_max_num_tokens(&self, limit: Option<usize>) {
        self.0.max_num_tokens.store(limit.unwrap_or(UNLIMITED), Ordering::Release);
    }

    /// The limit in force; `usize::MAX` is none.
    pub(super) fn max_num_tokens(&self) -> usize {
        self.0.max_num_tokens.load(Ordering::Acquire)
    }

    /// Takes the pending signal; the model may run again.
    pub(super) fn take(&self) -> Option<Signal> {
        self.0.stop.clear();
        self.0.second.get().into_iter().for_each(StopFlag::clear);
        match self.0.signal.swap(0, Ordering::AcqRel) {
            1 => Some(Signal::Abort),
            2 => Some(Signal::Pause),
            _ => None,
        }
    }
}

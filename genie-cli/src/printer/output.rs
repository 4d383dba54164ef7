//! This program's stdout: whether there is still a reader.

use std::io::{self, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// stdout, written whole or given up: once its reader has left, nothing is written any more.
#[derive(Default)]
pub struct Output {
    /// The reader has closed the pipe.
    left: AtomicBool,
    /// Held while something is written.
    writing: Mutex<()>,
}

/// stdout takes no more data, for another reason than a reader that left.
#[derive(Debug)]
pub struct OutputError {
    source: io::Error,
}

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot write to stdout")
    }
}

impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl Output {
    /// Writes and flushes. A reader that has left is no failure: see [`Self::has_reader`].
    pub fn write(&self, bytes: &[u8]) -> Result<(), OutputError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_now(bytes)
    }

    /// As [`Self::write`], unless another thread is writing.
    pub fn write_if_free(&self, bytes: &[u8]) -> Result<(), OutputError> {
        match self.writing.try_lock() {
            Ok(_) | Err(TryLockError::Poisoned(_)) => self.write_now(bytes),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    fn write_now(&self, bytes: &[u8]) -> Result<(), OutputError> {
        if !self.has_reader() {
            return Ok(());
        }
        let mut out = stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.left.store(true, Ordering::Relaxed);
                Ok(())
            }
            done => done.map_err(|source| OutputError { source }),
        }
    }

    /// False once a write has found the pipe closed.
    pub fn has_reader(&self) -> bool {
        !self.left.load(Ordering::Relaxed)
    }
}

//! A tokenizer that is read in a thread while the graphs load: the config's `allow-async-init`.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use dialog::{Tokenizer, TokenizerError};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct TokenizerJob {
    path: PathBuf,
    /// None where the system started no thread.
    thread: Option<JoinHandle<Result<Tokenizer, TokenizerError>>>,
}

impl TokenizerJob {
    /// Begins to read.
    pub(crate) fn begin(path: &Path) -> Self {
        let own = path.to_owned();
        let read = move || {
            let read = Tokenizer::from_file(&own);
            tracing::debug!(path = %own.display(), "tokenizer read beside the graphs");
            read
        };
        let thread = std::thread::Builder::new().name("tokenizer".into()).spawn(read);
        let path = path.to_owned();
        Self { path, thread: thread.inspect_err(|error| tracing::debug!("no thread for the tokenizer: {error}")).ok() }
    }

    /// The tokenizer, once it is read.
    pub(crate) fn finish(self) -> Result<Tokenizer, TokenizerError> {
        // A reader that panicked panics again here, where a caller sees it.
        match self.thread.map(JoinHandle::join) {
            Some(Ok(read)) => read,
            _ => Tokenizer::from_file(&self.path),
        }
    }
}

//! Checks that a tokenizer fits the model before it is copied.

use crate::Result;
use crate::model_files::ModelFiles;
use genie_bundle::TOKENIZER_FILE;
use genie_tokenizer::{Oddity, Tokenizer};

/// Loads the tokenizer as a dialog will, and proves it against the rows of the embedding. Returns what is odd about it.
///
/// # Errors
/// A file that is missing, or a tokenizer that cannot be used with this model.
pub(crate) fn check(files: &ModelFiles, vocab: usize) -> Result<Vec<Oddity>> {
    let tokenizer = match files {
        ModelFiles::Folder(dir) => Tokenizer::from_file(dir.join(TOKENIZER_FILE))?,
        ModelFiles::Made { of, .. } => {
            Tokenizer::parse(&files.read(TOKENIZER_FILE)?, &format!("the tokenizer of {}", of.display()))?
        }
    };
    Ok(tokenizer.prove(vocab)?)
}

//! Checks that a `tokenizer.json` fits the model before it is copied.

use crate::model_files::ModelFiles;
use crate::{CompileError, Result, fs};
use genie_bundle::TOKENIZER_FILE;
use serde_json::Value;

/// Every id the tokenizer can give must have a row in the embedding.
///
/// # Errors
/// A file that is missing, not JSON, without a vocabulary, or with an id past the model's.
pub(crate) fn check(files: &ModelFiles, vocab: usize) -> Result<()> {
    let path = files.path(TOKENIZER_FILE);
    let tokenizer: Value = fs::from_json(&path, &files.read(TOKENIZER_FILE)?)?;
    let bad = |detail: &str| CompileError::BadTokenizer { path: path.clone(), detail: detail.into() };
    let listed = tokenizer.pointer("/model/vocab").ok_or_else(|| bad("it has no `model.vocab`"))?;
    let largest = match listed {
        // BPE and WordPiece map texts to ids.
        Value::Object(map) => map.iter().filter_map(|(token, id)| Some((id.as_u64()?, token.clone()))).max(),
        // Unigram lists pairs of text and score; the id is the place.
        Value::Array(list) => list.last().map(|last| (list.len() as u64 - 1, last[0].to_string())),
        _ => return Err(bad("its `model.vocab` is neither an object nor a list")),
    };
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten();
    let added = added.filter_map(|t| Some((t["id"].as_u64()?, t["content"].as_str()?.to_string())));
    match largest.into_iter().chain(added).max() {
        None => Err(bad("its vocabulary is empty")),
        Some((id, token)) if id >= vocab as u64 => Err(CompileError::TokenizerTooLarge { token, id, vocab }),
        Some(_) => Ok(()),
    }
}

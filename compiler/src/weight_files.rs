//! Weights that a bundle has as files beside its binaries, since its graphs take them as inputs: the LM head's, the embeddings.
//!
//! *Layout*: row-major, little-endian, no header. The head is `[vocab, hidden]` in the graphs' float type; embeddings are
//! `[vocab, hidden]` in float32, with the family's factor on them.

use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use crate::lower;
use crate::options::GraphKinds;
use crate::{Precision, Result, fs};
use genie_bundle::{EMBEDDINGS_FILE, HEAD_WEIGHT_FILE};
use std::path::{Path, PathBuf};

/// Writes those that the kinds ask for; returns their names.
pub(crate) fn write(
    spec: &ModelSpec,
    checkpoint: &Checkpoint,
    kinds: &GraphKinds,
    precision: Precision,
    path: impl Fn(&str) -> PathBuf,
) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut put = |name: &str, bytes: &[u8]| {
        names.push(name.to_owned());
        fs::write(Path::new(&path(name)), bytes)
    };
    if kinds.head_weight_input {
        put(HEAD_WEIGHT_FILE, &lower::head_weight_bytes(spec, checkpoint, precision)?)?;
    }
    if kinds.embeddings_input {
        put(EMBEDDINGS_FILE, &lower::embedding_bytes(spec, checkpoint)?)?;
    }
    Ok(names)
}

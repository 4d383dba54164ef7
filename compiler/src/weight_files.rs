//! Weights that a bundle has as files beside its binaries, since its graphs take them as inputs: the LM head's, the embeddings.
//!
//! *Layout*: row-major, little-endian, no header. The head is `[vocab, hidden]` in the graphs' float type; embeddings are
//! `[vocab, hidden]` in float32, with the family's factor on them.

use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use crate::lower::InputFile;
use crate::options::GraphKinds;
use crate::progress::{Amount, Progress, Stage, advance};
use crate::{Precision, Result, fs};
use genie_bundle::{EMBEDDINGS_FILE, HEAD_WEIGHT_FILE};
use std::path::PathBuf;

/// Writes those that the kinds ask for; returns their names.
///
/// # Errors
/// Weights that cannot be read, files that cannot be written, a cancelled compilation.
pub(crate) fn write(
    spec: &ModelSpec,
    checkpoint: &Checkpoint,
    kinds: &GraphKinds,
    precision: Precision,
    path: impl Fn(&str) -> PathBuf,
    progress: &mut dyn Progress,
) -> Result<Vec<String>> {
    let head = (HEAD_WEIGHT_FILE, InputFile::Head(precision));
    let all = [(kinds.head_weight_input, head), (kinds.embeddings_input, (EMBEDDINGS_FILE, InputFile::Embeddings))];
    let asked: Vec<_> = all.into_iter().filter(|(asked, _)| *asked).map(|(_, file)| file).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = asked.iter().map(|(_, file)| file.amount(spec, checkpoint)).sum();
    progress.begin(&Stage::WeightFiles, Amount { items: asked.len() as u64, bytes });
    for (name, file) in &asked {
        let weights = file.read(spec, checkpoint, &mut |n| advance(progress, n))?;
        fs::write_in_parts(&path(name), &weights, &mut |n| advance(progress, n))?;
        progress.item(name, file.amount(spec, checkpoint));
    }
    progress.end(&Stage::WeightFiles);
    Ok(asked.into_iter().map(|(name, _)| name.to_owned()).collect())
}

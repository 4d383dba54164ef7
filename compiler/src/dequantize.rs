//! A model's weights, quantised and dequantised, as a float32 checkpoint.
//!
//! It isolates the error of weight quantisation from all others: a float32 bundle of this checkpoint is the exact graph of the
//! rounded weights, and other programs can run it too.
//! *Trap*: a factor that is folded into a weight is divided out after rounding, which may change the last bit.

use crate::checkpoint::{SINGLE_FILE, file_header};
use crate::family::NormKind;
use crate::lower::{Format, check_weights, rounded_weights};
use crate::model::Model;
use crate::{Precision, Result, Weights, fs};
use genie_bundle::TOKENIZER_FILE;
use genie_bundle::files::OPTIONAL_FILES;
use serde_json::{Value, json};
use std::path::Path;

/// A tensor of the family's checkpoints, made of one or more of the compiler's.
struct Stored {
    name: String,
    /// As the compiler sees it.
    dims: Vec<usize>,
    /// It is written the other way round.
    turned: bool,
    parts: Vec<usize>,
}

/// Writes the checkpoint to the folder `to`, which is created if missing. `precision` is that of the bundle.
///
/// A tied LM head that a bundle stores in another format than the embedding becomes a tensor of its own.
///
/// # Errors
/// Those of [`crate::compile()`] up to the graphs; files that cannot be written.
pub fn dequantize(model: &Path, precision: Precision, weights: Weights, to: &Path) -> Result<()> {
    let source = Model::open(model)?;
    check_weights(&source.spec, &source.checkpoint, &mut |_| Ok(()))?;
    let format = Format::rounded(precision, weights);
    // GGUF files have norms with the one added that these families' checkpoints leave out.
    let is_added = source.spec.norm == NormKind::Rms && source.spec.family.info().norm == NormKind::RmsPlusOne;
    let folded = if is_added { 1.0 } else { 0.0 };
    let all = rounded_weights(&source.spec, format);

    // Projections that share a tensor in the family's checkpoints lie one behind the other there.
    let mut stored: Vec<Stored> = Vec::new();
    for (i, weight) in all.iter().enumerate() {
        let (name, turned) = source.spec.family.stored(&weight.name);
        match stored.iter_mut().find(|stored| stored.name == name) {
            Some(stored) => {
                stored.dims[0] += weight.dims()[0];
                stored.parts.push(i);
            }
            None => stored.push(Stored { name, dims: weight.dims().to_vec(), turned, parts: vec![i] }),
        }
    }
    let dims: Vec<Vec<usize>> = stored
        .iter()
        .map(|stored| if stored.turned { stored.dims.iter().rev().copied().collect() } else { stored.dims.clone() })
        .collect();

    std::fs::create_dir_all(to).map_err(fs::io_err("create", to))?;
    let mut unread = None;
    let written = file_io::write(&to.join(SINGLE_FILE), |out| {
        out.write_all(&file_header(
            "F32",
            4,
            stored.iter().zip(&dims).map(|(s, dims)| (s.name.as_str(), dims.as_slice())),
        ))?;
        for stored in &stored {
            let mut values = Vec::new();
            for &part in &stored.parts {
                let read = all[part].read(&source.checkpoint, format).map_err(|error| {
                    unread = Some(error);
                    std::io::Error::other("the model cannot be read")
                })?;
                let less = if all[part].is_norm() { folded } else { 0.0 };
                values.extend(read.into_iter().map(|value| value - less));
            }
            let (inner, n_rows) = (stored.dims.last().copied().unwrap_or(1), stored.dims[0]);
            let order = |at: usize| if stored.turned { at % n_rows * inner + at / n_rows } else { at };
            (0..values.len()).try_for_each(|at| out.write_all(&values[order(at)].to_le_bytes()))?;
        }
        Ok(())
    });
    if let Some(error) = unread {
        return Err(error);
    }
    written?;

    let config = source.files.path("config.json");
    let mut json: Value = fs::from_json(&config, &source.files.read("config.json")?)?;
    json["torch_dtype"] = json!("float32");
    json["tie_word_embeddings"] = json!(!all.iter().any(|weight| weight.name == "lm_head.weight"));
    fs::write(&to.join("config.json"), json.to_string().as_bytes())?;
    for name in ["generation_config.json", TOKENIZER_FILE].iter().chain(&OPTIONAL_FILES) {
        if source.files.has(name)? {
            source.files.copy(name, &to.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Checkpoint, for_each_chunk};
    use crate::family::Family;
    use crate::testmodel::{Matrices, TestModel};

    /// llama.cpp's converter adds one to the norms of these families.
    #[test]
    fn norms_of_a_gguf_file_are_those_of_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let model = TestModel::tiny(Family::Gemma2);
        model.write(&at("folder")).unwrap();
        std::fs::write(at("model.gguf"), model.gguf(Matrices::F32).unwrap().bytes()).unwrap();
        for (from, to) in [("folder", "of_folder"), ("model.gguf", "of_file")] {
            dequantize(&at(from), Precision::F32, Weights::Float, &at(to)).unwrap();
        }
        let values = |name: &str| {
            let checkpoint = Checkpoint::open(&at(name)).unwrap();
            let mut found = Vec::new();
            for (name, entry) in checkpoint.tensors().iter().filter(|(name, _)| name.ends_with("norm.weight")) {
                for_each_chunk(&checkpoint, name, entry, &mut |_| Ok(()), |values| {
                    found.extend_from_slice(values);
                    Ok(())
                })
                .unwrap();
            }
            found
        };
        let (expected, found) = (values("of_folder"), values("of_file"));
        assert!(!expected.is_empty() && expected.len() == found.len());
        assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-6), "{expected:?} {found:?}");
    }
}

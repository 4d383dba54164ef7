//! Hashes of what a bundle is made from, and of what was written.
//!
//! *Units*: progress is in bytes, a megabyte at a time, and so is a stop.

use crate::bundle::Staging;
use crate::compile::directory_name;
use crate::model::Model;
use crate::progress::{Amount, Progress, Stage, advance};
use crate::{Result, fs};
use genie_bundle::TOKENIZER_FILE;
use genie_bundle::files::OPTIONAL_FILES;
use genie_bundle::hash::hex;
use genie_bundle::manifest::FileEntry;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Hash of a model, a directory or a GGUF file: everything `compile` reads, by name, length and content. Manifests hold it as
/// [`Source::sha256`](genie_bundle::manifest::Source::sha256); a bundle with another hash is out of date.
///
/// # Errors
/// Files that cannot be read, a directory without a checkpoint.
pub fn model_hash(path: &Path) -> Result<String> {
    hash_model(&Model::open(path)?, &mut crate::Silent)
}

/// As [`model_hash`], of an open model.
///
/// # Errors
/// Files that cannot be read, a cancelled compilation.
pub(crate) fn hash_model(model: &Model, progress: &mut dyn Progress) -> Result<String> {
    let small = ["config.json", "generation_config.json", TOKENIZER_FILE].iter().chain(&OPTIONAL_FILES);
    let paths = model.hashed_files(small.copied());
    let lengths = paths.iter().map(|path| fs::length(path)).collect::<Result<Vec<u64>>>()?;

    progress.begin(&Stage::Hash, Amount { items: paths.len() as u64, bytes: lengths.iter().sum() });
    let mut hasher = Sha256::new();
    for (path, length) in paths.iter().zip(lengths) {
        let name = directory_name(path);
        hasher.update(name.as_bytes());
        hasher.update([0]);
        hasher.update(length.to_le_bytes());
        let bytes = fs::hash_into(&mut hasher, path, &mut |n| advance(progress, n))?;
        progress.item(&name, bytes);
    }
    progress.end(&Stage::Hash);
    Ok(hex(&hasher.finalize()))
}

/// Hashes the written files.
///
/// # Errors
/// Files that cannot be read, a cancelled compilation.
pub(crate) fn seal(staging: &Staging, files: &[String], progress: &mut dyn Progress) -> Result<Vec<FileEntry>> {
    let lengths = files.iter().map(|name| fs::length(&staging.path(name))).collect::<Result<Vec<u64>>>()?;
    progress.begin(&Stage::Seal, Amount { items: files.len() as u64, bytes: lengths.iter().sum() });
    let mut entries = Vec::with_capacity(files.len());
    for name in files {
        let mut hasher = Sha256::new();
        let bytes = fs::hash_into(&mut hasher, &staging.path(name), &mut |n| advance(progress, n))?;
        let sha256 = hex(&hasher.finalize());
        progress.item(name, bytes);
        entries.push(FileEntry { path: name.clone(), bytes, sha256 });
    }
    progress.end(&Stage::Seal);
    Ok(entries)
}

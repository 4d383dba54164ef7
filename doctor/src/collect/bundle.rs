//! Reads a folder, a config or a binary into a [`Bundle`].

use std::path::{Path, PathBuf};

use file_io::{FileKind, JsonKind};
use genie_bundle::{BundleError, CONFIG_FILE, FileCheck, MANIFEST_FILE, manifest};
use genie_tokenizer::{Tokenizer, TokenizerError};
use genie_types::TokenId;
use nsp_graph::names::LOGITS;
use qnn_api::{BinaryInfo, SystemLibrary};
use serde_json::Value;

use super::files;
use crate::facts::{
    Binary, Bundle, ConfigFile, Content, EmbeddingFile, Extension, FileState, Manifest, ManifestFile, Rejection,
    TokenizerFile, Vocabulary, WeightFile,
};

/// A system interface that may be able to read a binary.
pub(super) struct Reader<'r> {
    pub(super) name: &'r str,
    pub(super) library: &'r SystemLibrary,
    pub(super) reads_htp: bool,
}

/// Reads the subject and the files that its config names.
pub(super) fn read(subject: &Path, cwd: &Path, readers: &[Reader<'_>], skip_hashes: bool) -> Bundle {
    let kind = FileKind::of(subject);
    let is_folder = matches!(kind, FileKind::Folder(_));
    let is_config = match kind {
        FileKind::Json(of) => matches!(of, JsonKind::GenieConfig | JsonKind::Other),
        FileKind::Text | FileKind::Empty => subject.extension().is_some_and(|extension| extension == "json"),
        _ => false,
    };
    let kind = Some(kind);
    if !is_folder && !is_config {
        let written = subject.file_name().unwrap_or(subject.as_os_str()).to_string_lossy();
        let binary = binary(&written, subject.to_owned(), cwd, readers, false);
        return Bundle { path: subject.to_owned(), kind, binaries: vec![binary], ..Bundle::default() };
    }
    let path = if is_folder { subject.join(CONFIG_FILE) } else { subject.to_owned() };
    let base = path.parent().unwrap_or(Path::new("/")).to_owned();
    let (manifest, made_by) = manifest(&base, skip_hashes);
    // A binary of the embedded backend that it rejects is damaged; others may be for another backend.
    let by_host = made_by.is_some_and(|name| name.starts_with("HOST"));
    if !path.is_file() {
        return Bundle { path: base, kind, is_folder, manifest, ..Bundle::default() };
    }
    let config = ConfigFile { document: files::json(&path), path, base: base.clone() };
    // Relative paths start at the config's folder.
    let resolve = |written: &str| base.join(written.trim());
    let state = |written: &str| files::state(&resolve(written), written, cwd);
    let texts = |value: Option<&Value>| -> Vec<String> {
        let one_or_many = value.map(|v| v.as_array().map_or(std::slice::from_ref(v), Vec::as_slice));
        let texts = one_or_many.into_iter().flatten().filter_map(Value::as_str);
        texts.filter(|text| !text.trim().is_empty()).map(str::to_owned).collect()
    };
    let bins = config.engine("/model/binary/ctx-bins").or_else(|| config.engine("/model/binary/fcb"));
    let binaries: Vec<Binary> = texts(bins).iter().map(|w| binary(w, resolve(w), cwd, readers, by_host)).collect();
    let tokenizer = config.dialog("/tokenizer/path").and_then(Value::as_str).map(|written| {
        let (path, file) = (resolve(written), state(written));
        let wanted: Vec<u32> = config.special_tokens().into_iter().map(|(_, id)| id).collect();
        let n_vocab =
            || config.dialog("/context/n-vocab").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let rows = logits_width(&binaries).or_else(n_vocab);
        let vocabulary = matches!(file, FileState::Present { bytes: 1.. }).then(|| vocabulary(&path, &wanted, rows));
        TokenizerFile { written: written.to_owned(), path, file, vocabulary }
    });
    let extension = |written: String| {
        let (path, file) = (resolve(&written), state(&written));
        let document = matches!(file, FileState::Present { bytes: 1.. }).then(|| files::json(&path));
        Extension { written, path, file, document }
    };
    let extensions = texts(config.engine("/backend/extensions")).into_iter().map(extension).collect();
    let embedding = config.dialog("/embedding/lut-path").and_then(Value::as_str).map(|written| EmbeddingFile {
        written: written.to_owned(),
        path: resolve(written),
        file: state(written),
    });
    Bundle { path: base, kind, config: Some(config), is_folder, binaries, tokenizer, extensions, embedding, manifest }
}

/// The width of the logits, which a wrong `n-vocab` does not change; `None` where no readable graph gives them.
fn logits_width(binaries: &[Binary]) -> Option<usize> {
    let graphs = binaries.iter().filter_map(Binary::info).flat_map(|info| &info.graphs);
    graphs.flat_map(|graph| &graph.outputs).find(|tensor| tensor.name == LOGITS)?.dims.last().copied()
}

fn binary(written: &str, path: PathBuf, cwd: &Path, readers: &[Reader<'_>], by_host: bool) -> Binary {
    let file = files::state(&path, written, cwd);
    let content = match file {
        FileState::Present { bytes } if bytes > 0 => describe(&path, readers, by_host),
        _ => Content::Unexamined("the file is missing or empty".into()),
    };
    let weights = match &content {
        Content::Described(info) => weights(info, &path, cwd),
        _ => Vec::new(),
    };
    Binary { written: written.to_owned(), path, file, content, weights }
}

/// The files of weights that graphs take as inputs: beside the binary, named as the engine names them.
fn weights(info: &BinaryInfo, binary: &Path, cwd: &Path) -> Vec<WeightFile> {
    let inputs = info.graphs.iter().flat_map(|graph| &graph.inputs).map(|tensor| tensor.name.as_str());
    let mut names: Vec<&str> = inputs.filter(|name| nsp_graph::names::is_weight(name)).collect();
    names.sort_unstable();
    names.dedup();
    let file = |name: &str| {
        let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let written = format!("{}.raw", name.chars().map(kept).collect::<String>());
        let path = binary.with_file_name(&written);
        WeightFile { tensor: name.to_owned(), file: files::state(&path, &written, cwd), path }
    };
    names.into_iter().map(file).collect()
}

/// Tries one system library after the other, unless the first bytes show another kind of file.
fn describe(path: &Path, readers: &[Reader<'_>], by_host: bool) -> Content {
    let kind = FileKind::of(path);
    if kind.is_no_context_binary() {
        return Content::Foreign(kind);
    }
    let mut rejections = Vec::new();
    for reader in readers {
        match reader.library.binary_info_of(path) {
            Ok(info) => return Content::Described(Box::new(info)),
            Err(error) => {
                let message = error.qnn().map_or_else(|| error.to_string(), ToString::to_string);
                rejections.push(Rejection { library: reader.name.to_owned(), reads_htp: reader.reads_htp, message });
            }
        }
    }
    if matches!(kind, FileKind::Unknown { .. }) {
        return Content::Foreign(kind);
    }
    let ours = by_host || matches!(kind, FileKind::HostBinary { .. });
    if ours || rejections.iter().any(|rejection| rejection.reads_htp) {
        return Content::Rejected(rejections);
    }
    // A binary for a device, which the embedded backend does not read.
    let messages: Vec<_> = rejections.iter().map(|r| format!("{}: {}", r.library, r.message)).collect();
    let messages = if messages.is_empty() { String::new() } else { format!(" ({})", messages.join("; ")) };
    Content::Unexamined(format!("no `libQnnSystem.so` was found to read it{messages}"))
}

/// Loads the tokenizer as a dialog does, and proves it as the compiler does: what fails here fails there.
fn vocabulary(path: &Path, wanted: &[u32], rows: Option<usize>) -> Result<Vocabulary, String> {
    let tokenizer = Tokenizer::from_file(path).map_err(|error| error.to_string())?;
    let entries = wanted.iter().map(|&id| (id, tokenizer.id_to_token(TokenId(id)))).collect();
    let unfit = rows.and_then(|rows| tokenizer.prove(rows).err()).map(|error| match error {
        TokenizerError::Parse { fault, .. } => fault.to_string(),
        other => other.to_string(),
    });
    Ok(Vocabulary { n_entries: tokenizer.vocab_size(), entries, unfit })
}

/// The manifest, and the provider of the library that made the bundle.
fn manifest(base: &Path, skip_hashes: bool) -> (Option<Manifest>, Option<String>) {
    if !base.join(MANIFEST_FILE).exists() {
        return (None, None);
    }
    let read = match genie_bundle::Manifest::read(base) {
        Ok(read) => read,
        Err(error) => {
            let fault = match error {
                BundleError::Io { source, .. } => source.to_string(),
                BundleError::Json { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            return (Some(Manifest { fault: Some(fault), ..Manifest::default() }), None);
        }
    };
    let file = |listed: manifest::FileEntry| {
        let path = base.join(&listed.path);
        let found_bytes = std::fs::metadata(&path).ok().map(|meta| meta.len());
        let compare = !skip_hashes && found_bytes == Some(listed.bytes);
        let same_hash = if compare { same_content(&path, &listed) } else { None };
        ManifestFile { path: listed.path, bytes: listed.bytes, found_bytes, same_hash }
    };
    let files = read.files.into_iter().map(file).collect();
    let manifest::Options { target, shared_weights, .. } = read.options;
    let manifest::Source { encoding, windows, .. } = read.source;
    let manifest = Manifest {
        fault: None,
        build_id: Some(read.backend.build_id),
        target,
        shared_weights,
        encoding,
        windows: windows.into_iter().collect(),
        files,
    };
    (Some(manifest), Some(read.backend.name))
}

/// Whether a file has the manifest's hash, all of it read now; `None` if it cannot be read.
fn same_content(path: &Path, listed: &manifest::FileEntry) -> Option<bool> {
    match FileCheck::open(path, listed.clone(), None).and_then(FileCheck::finish) {
        Ok(()) => Some(true),
        Err(BundleError::FileChanged { .. }) => Some(false),
        Err(_) => None,
    }
}

//! A folder, a config or a binary to a [`Bundle`].

use std::path::{Path, PathBuf};

use dialog::Tokenizer;
use genie_types::TokenId;
use qnn_api::SystemLibrary;
use serde::Deserialize;
use serde_json::Value;

use super::files;
use crate::case::{
    Binary, Bundle, ConfigFile, Content, EmbeddingFile, Extension, FileState, Manifest, ManifestFile, Refusal,
    TokenizerFile, Vocabulary,
};

const CONFIG: &str = "genie_config.json";
const MANIFEST: &str = "manifest.json";

/// A system interface that may know how to read a binary.
pub(super) struct Reader<'r> {
    pub(super) name: &'r str,
    pub(super) library: &'r SystemLibrary,
    pub(super) reads_htp: bool,
}

/// Reads all that the subject leads to.
pub(super) fn read(subject: &Path, cwd: &Path, readers: &[Reader<'_>], quick: bool) -> Bundle {
    let is_folder = subject.is_dir();
    let is_config = !is_folder && subject.extension().is_some_and(|extension| extension == "json");
    if !is_folder && !is_config {
        let written = subject.file_name().unwrap_or(subject.as_os_str()).to_string_lossy();
        let binary = binary(&written, subject.to_owned(), cwd, readers, false);
        return Bundle { path: subject.to_owned(), binaries: vec![binary], ..Bundle::default() };
    }
    let path = if is_folder { subject.join(CONFIG) } else { subject.to_owned() };
    let base = path.parent().unwrap_or(Path::new("/")).to_owned();
    let (manifest, made_by) = manifest(&base, quick);
    // Then what the embedded backend refuses is damaged, and not a binary for others.
    let by_host = made_by.is_some_and(|name| name.starts_with("HOST"));
    if !path.is_file() {
        return Bundle { path: base, is_folder, manifest, ..Bundle::default() };
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
    let binaries = texts(bins).iter().map(|w| binary(w, resolve(w), cwd, readers, by_host)).collect();
    let tokenizer = config.dialog("/tokenizer/path").and_then(Value::as_str).map(|written| {
        let (path, file) = (resolve(written), state(written));
        let wanted: Vec<u32> = config.special_tokens().into_iter().map(|(_, id)| id).collect();
        let vocabulary = matches!(file, FileState::Present { bytes: 1.. }).then(|| vocabulary(&path, &wanted));
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
    Bundle { path: base, config: Some(config), is_folder, binaries, tokenizer, extensions, embedding, manifest }
}

fn binary(written: &str, path: PathBuf, cwd: &Path, readers: &[Reader<'_>], by_host: bool) -> Binary {
    let file = files::state(&path, written, cwd);
    let content = match file {
        FileState::Present { bytes } if bytes > 0 => describe(&path, readers, by_host),
        _ => Content::Unexamined("there is nothing to read".into()),
    };
    Binary { written: written.to_owned(), path, file, content }
}

/// Asks one system library after the other.
fn describe(path: &Path, readers: &[Reader<'_>], by_host: bool) -> Content {
    let mut refusals = Vec::new();
    for reader in readers {
        match reader.library.binary_info_of(path) {
            Ok(info) => return Content::Described(Box::new(info)),
            Err(error) => {
                let words = error.qnn().map_or_else(|| error.to_string(), ToString::to_string);
                refusals.push(Refusal { library: reader.name.to_owned(), reads_htp: reader.reads_htp, words });
            }
        }
    }
    if by_host || refusals.iter().any(|refusal| refusal.reads_htp) {
        return Content::Refused(refusals);
    }
    // What only the embedded backend refuses may be a sound binary for a device.
    let words: Vec<_> = refusals.iter().map(|r| format!("{}: {}", r.library, r.words)).collect();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join("; ")) };
    Content::Unexamined(format!("no `libQnnSystem.so` was found to read it with{words}"))
}

fn vocabulary(path: &Path, wanted: &[u32]) -> Result<Vocabulary, String> {
    let tokenizer = Tokenizer::from_file(path).map_err(|error| error.to_string())?;
    let entries = wanted.iter().map(|&id| (id, tokenizer.id_to_token(TokenId(id)))).collect();
    Ok(Vocabulary { n_entries: tokenizer.vocab_size(), entries })
}

/// The parts of `manifest.json` that are looked at.
#[derive(Deserialize)]
struct RawManifest {
    backend: Option<RawBackend>,
    #[serde(default)]
    options: RawOptions,
    #[serde(default)]
    files: Vec<RawFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawBackend {
    name: Option<String>,
    build_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawOptions {
    target: Option<String>,
    #[serde(default)]
    shared_weights: bool,
}

#[derive(Deserialize)]
struct RawFile {
    path: String,
    bytes: u64,
    sha256: String,
}

/// The manifest, and the provider that made the bundle.
fn manifest(base: &Path, quick: bool) -> (Option<Manifest>, Option<String>) {
    let path = base.join(MANIFEST);
    if !path.exists() {
        return (None, None);
    }
    let raw = files::json(&path).and_then(|v| serde_json::from_value::<RawManifest>(v).map_err(|e| e.to_string()));
    let raw = match raw {
        Ok(raw) => raw,
        Err(fault) => return (Some(Manifest { fault: Some(fault), ..Manifest::default() }), None),
    };
    let file = |raw: RawFile| {
        let path = base.join(&raw.path);
        let found_bytes = std::fs::metadata(&path).ok().map(|meta| meta.len());
        let compare = !quick && found_bytes == Some(raw.bytes);
        let same_hash = if compare { files::sha256(&path).map(|found| found == raw.sha256) } else { None };
        ManifestFile { path: raw.path, bytes: raw.bytes, found_bytes, same_hash }
    };
    let (made_by, build_id) = raw.backend.map_or((None, None), |backend| (backend.name, backend.build_id));
    let files = raw.files.into_iter().map(file).collect();
    let RawOptions { target, shared_weights } = raw.options;
    (Some(Manifest { fault: None, build_id, target, shared_weights, files }), made_by)
}

//! What a word stands for.

use std::fs;
use std::path::{Path, PathBuf};

use file_io::{FileKind, FolderKind, JsonKind};

use super::compiled::CompiledModels;
use super::error::{ModelsError, Result};
use super::source::name_of;

/// The word of the built-in model.
const DEMO: &str = "demo";
/// The words of all built-in models.
const BUILT_IN: &[&str] = &[
    DEMO,
    #[cfg(feature = "demo")]
    super::fox::WORD,
];
/// Letters that may differ in a word for it to be suggested.
const NEAR: usize = 3;

/// What a word stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelWord {
    /// The built-in model.
    Demo,
    /// A bundle, by its folder or its config.
    Bundle(PathBuf),
    /// What is to be compiled: a GGUF file or a Hugging Face folder.
    Source(PathBuf),
}

/// A model of the [`models_folder`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The word for it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is compiled already.
    pub is_bundle: bool,
}

/// The folder whose models are found by name: `GENIE_MODELS`, else `open-genie/models` below `XDG_DATA_HOME` or `~/.local/share`.
pub fn models_folder() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("GENIE_MODELS")
        .or_else(|| Some(var("XDG_DATA_HOME")?.join("open-genie/models")))
        .or_else(|| Some(var("LOCALAPPDATA")?.join("open-genie/models")))
        .or_else(|| Some(var("HOME")?.join(".local/share/open-genie/models")))
}

/// The models of the [`models_folder`], by name.
///
/// # Errors
/// The folder is there, but cannot be listed.
pub fn listed() -> Result<Vec<Listed>> {
    let Some(folder) = models_folder().filter(|folder| folder.is_dir()) else { return Ok(Vec::new()) };
    models_in(&folder)
}

/// The models of a folder, by name: bundles, GGUF files, folders of checkpoints. Anything else is left out.
///
/// # Errors
/// The folder cannot be listed.
pub fn models_in(folder: &Path) -> Result<Vec<Listed>> {
    let entries = fs::read_dir(folder).map_err(|source| ModelsError::Io { path: folder.to_owned(), source })?;
    let mut found: Vec<Listed> = entries.filter_map(|entry| model_at(entry.ok()?.path())).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn model_at(path: PathBuf) -> Option<Listed> {
    // A name that is not UTF-8 is no word.
    path.file_name()?.to_str()?;
    let name = name_of(&path);
    match at(&path) {
        Ok(ModelWord::Bundle(_)) => Some(Listed { name, path, is_bundle: true }),
        Ok(ModelWord::Source(_)) => Some(Listed { name, path, is_bundle: false }),
        _ => None,
    }
}

/// What a word stands for: a path that exists first, then a name of the [`models_folder`], then one of `compiled`.
///
/// # Errors
/// [`ModelsError::Unknown`] with the nearest name; [`ModelsError::NoModel`] for a path to something else.
pub fn find(word: &str, compiled: Option<&CompiledModels>) -> Result<ModelWord> {
    let path = Path::new(word);
    if !FileKind::of(path).is_missing() {
        return at(path);
    }
    if word == DEMO {
        return Ok(ModelWord::Demo);
    }
    #[cfg(feature = "demo")]
    if word == super::fox::WORD {
        return at(&super::fox::checkpoint()?);
    }
    if looks_like_path(word) {
        return Err(ModelsError::NoFile { path: path.to_owned() });
    }
    let listed = listed()?;
    if let Some(model) = listed.iter().find(|model| model.name == word) {
        return at(&model.path);
    }
    let compiled = compiled.map_or(Ok(Vec::new()), CompiledModels::list)?;
    let places: Vec<PathBuf> =
        compiled.iter().filter(|model| model.name == word).map(|model| model.source.clone()).collect();
    match &*places {
        [] => {
            let names = listed.iter().map(|model| &*model.name).chain(compiled.iter().map(|model| &*model.name));
            let distance = |name: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &word.to_lowercase());
            let near = names.chain(BUILT_IN.iter().copied()).map(|name| (distance(name), name)).min();
            let similar = near.filter(|&(distance, _)| distance <= NEAR.min(word.len() / 2));
            let similar = similar.map(|(_, name)| name.to_owned());
            Err(ModelsError::Unknown { word: word.to_owned(), folder: models_folder(), similar })
        }
        [place] => at(place),
        _ => Err(ModelsError::Ambiguous { word: word.to_owned(), places }),
    }
}

/// What a path leads to.
fn at(path: &Path) -> Result<ModelWord> {
    let owned = || path.to_owned();
    match FileKind::of(path) {
        FileKind::Folder(FolderKind::Bundle) | FileKind::Json(JsonKind::GenieConfig | JsonKind::Other) => {
            Ok(ModelWord::Bundle(owned()))
        }
        FileKind::Missing => Err(ModelsError::NoFile { path: owned() }),
        kind if kind.is_checkpoint() => Ok(ModelWord::Source(owned())),
        FileKind::Folder(kind) => one_gguf_of(path, kind),
        // The file that names a folder's model stands for the folder.
        FileKind::Json(JsonKind::ModelConfig | JsonKind::SafetensorsIndex) | FileKind::Safetensors
            if path.parent().is_some_and(|folder| FileKind::of(folder).is_checkpoint()) =>
        {
            Ok(ModelWord::Source(path.parent().unwrap_or(path).to_owned()))
        }
        found => Err(ModelsError::NoModel { path: owned(), found: Box::new(found) }),
    }
}

/// A folder with one GGUF file, as downloads leave it.
fn one_gguf_of(folder: &Path, kind: FolderKind) -> Result<ModelWord> {
    let entries = fs::read_dir(folder).map_err(|source| ModelsError::Io { path: folder.to_owned(), source })?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.retain(|name| name.ends_with(".gguf"));
    names.sort();
    match &*names {
        [] => Err(ModelsError::NoModel { path: folder.to_owned(), found: Box::new(FileKind::Folder(kind)) }),
        [name] => Ok(ModelWord::Source(folder.join(name))),
        _ => Err(ModelsError::SeveralGguf { folder: folder.to_owned(), names }),
    }
}

/// Whether a word that names nothing was surely meant as a path.
fn looks_like_path(word: &str) -> bool {
    word.contains(['/', '\\']) || [".gguf", ".json", ".bin"].iter().any(|end| word.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_by_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        write("bundle/genie_config.json", b"{\"dialog\": {}}");
        write("hf/config.json", b"{\"model_type\": \"llama\"}");
        write("downloads/one/x.gguf", b"GGUF\x03\0\0\0");
        write("downloads/two/x.gguf", b"GGUF\x03\0\0\0");
        write("downloads/two/y.gguf", b"GGUF\x03\0\0\0");
        write("notes.txt", b"just a text\n");
        let found = |name: &str| find(&at(name), None);
        assert_eq!(found("bundle").unwrap(), ModelWord::Bundle(at("bundle").into()));
        let config = "bundle/genie_config.json";
        assert_eq!(found(config).unwrap(), ModelWord::Bundle(at(config).into()));
        for name in ["hf", "hf/config.json"] {
            assert_eq!(found(name).unwrap(), ModelWord::Source(at("hf").into()), "{name}");
        }
        for name in ["downloads/one", "downloads/one/x.gguf"] {
            assert_eq!(found(name).unwrap(), ModelWord::Source(at("downloads/one/x.gguf").into()), "{name}");
        }
        assert!(matches!(found("downloads/two"), Err(ModelsError::SeveralGguf { names, .. }) if names.len() == 2));
        assert!(matches!(found("downloads"), Err(ModelsError::NoModel { .. })));
        assert!(matches!(found("notes.txt"), Err(ModelsError::NoModel { .. })));
        assert!(matches!(found("none.gguf"), Err(ModelsError::NoFile { .. })));
    }
}

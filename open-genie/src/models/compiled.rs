//! Models that were compiled for this machine, in the cache folder.
//!
//! Each has a folder `NAME-KEY` with the bundle and, written last, `source.json`: the files it was made of, and by which version.
//! A folder without it, or with another version's, is compiled again.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use compiler::{CompileOptions, ModelSummary, Precision, Progress, Splits};
use file_io::NewFolder;
use genie_bundle::CONFIG_FILE;
use serde::{Deserialize, Serialize};

use super::error::{ModelsError, Result};
use super::lock;
use super::source::{ModelSource, name_of};
use super::variants::{context_lengths, memory_bytes};
use crate::backend::open_backend;
use crate::options::Options;

const RECORD: &str = "source.json";
const BUNDLE: &str = "bundle";
/// Longest record that is read: paths have some thousand bytes.
const MOST_RECORD_BYTES: u64 = 1 << 20;
/// Most bytes of a source's name in that of its folder.
const LONGEST_NAME: usize = 200;
const WIDTHS: [u32; 3] = [1, 32, 128];

/// The compiled models of a folder.
#[derive(Clone, Debug)]
pub struct CompiledModels {
    folder: PathBuf,
}

/// A model that was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompiledModel {
    /// The word for it: its source's file name without `.gguf`.
    pub name: String,
    /// What it was compiled from.
    pub source: PathBuf,
    /// Its folder, with the bundle in it.
    pub folder: PathBuf,
    /// Longest context, in tokens.
    pub context: usize,
    /// Whether it would be used.
    pub state: ModelState,
}

/// Whether a compiled model is that of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelState {
    /// It is.
    Ready,
    /// The source's files have changed since.
    Changed,
    /// The source is no longer there.
    Gone,
    /// Another version of this program compiled it.
    OtherVersion,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Record {
    source: PathBuf,
    stamp: String,
    context: usize,
    made_by: String,
}

impl CompiledModels {
    /// Those of the cache folder.
    ///
    /// # Errors
    /// [`ModelsError::NoCacheFolder`].
    pub fn open() -> Result<Self> {
        let cache = genie_bundle::cache_folder().ok_or(ModelsError::NoCacheFolder)?;
        Ok(Self::at(&cache.join("models")))
    }

    /// Those of another folder, which need not exist.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The bundle of a source, if it is compiled, unchanged, by this version, and for at least the context that is asked for.
    pub fn bundle_of(&self, source: &ModelSource, context: Option<usize>) -> Option<PathBuf> {
        let folder = self.place(source);
        let record = Record::read(&folder)?;
        let fits = record.stamp == source.stamp() && record.made_by == version();
        let is_long = context.is_none_or(|context| context <= record.context);
        let bundle = folder.join(BUNDLE);
        (fits && is_long && bundle.join(CONFIG_FILE).exists()).then_some(bundle)
    }

    /// Compiles a source for this machine's CPU and returns the bundle: weights as the file has them, widths 1, 32 and 128, and
    /// the context lengths of [`context_lengths`]. While another process compiles it, that one's bundle is waited for, and taken if it
    /// fits.
    ///
    /// # Errors
    /// The model cannot be compiled, or the folder not be written; [`CompileError::Cancelled`](compiler::CompileError::Cancelled), while waiting too.
    pub fn compile(
        &self,
        source: &ModelSource,
        context: Option<usize>,
        options: &Options,
        progress: &mut dyn Progress,
    ) -> std::result::Result<PathBuf, crate::Error> {
        let summary = ModelSummary::read(source.path()).map_err(ModelsError::from)?;
        let row = summary.cache_bytes_per_token(Precision::F16);
        let cls = context_lengths(context, summary.spec.max_positions, row, memory_bytes());
        let folder = self.place(source);
        let bundle = folder.join(BUNDLE);
        let (_lock, waited) = lock::take(&folder, progress)?;
        if waited && let Some(bundle) = self.bundle_of(source, context) {
            return Ok(bundle);
        }
        let context = cls.last().map_or(0, |&cl| cl as usize);
        let compile = CompileOptions {
            ars: WIDTHS.into_iter().filter(|&ar| ar as usize <= context).collect(),
            cls,
            splits: Splits::DecoderLmhead,
            one_file: true,
            force: bundle.exists(),
            ..CompileOptions::new(source.path(), &bundle)
        };
        compile.check()?;
        crate::compile(&compile, &open_backend(options)?, options, progress)?;
        // JSON holds no other text; the folder's name and the stamp say which source it is.
        let shown = PathBuf::from(source.path().to_string_lossy().into_owned());
        let record = Record { source: shown, stamp: source.stamp().to_owned(), context, made_by: version() };
        let text = serde_json::to_vec_pretty(&record).unwrap_or_default();
        file_io::write_bytes(&folder.join(RECORD), &text).map_err(ModelsError::from)?;
        Ok(bundle)
    }

    /// All that are kept, by name.
    ///
    /// # Errors
    /// The folder is there, but cannot be listed.
    pub fn list(&self) -> Result<Vec<CompiledModel>> {
        if !self.folder.is_dir() {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&self.folder);
        let entries = entries.map_err(|source| ModelsError::Io { path: self.folder.clone(), source })?;
        let mut models: Vec<CompiledModel> = entries.filter_map(|entry| model_in(entry.ok()?.path())).collect();
        models.sort_by(|a, b| (&a.name, &a.source).cmp(&(&b.name, &b.source)));
        Ok(models)
    }

    /// Removes a compiled model; the source stays. It is moved out of the way whole first, so that a kill leaves no half.
    ///
    /// # Errors
    /// The folder cannot be moved or removed.
    pub fn remove(&self, model: &CompiledModel) -> Result<()> {
        let removed = NewFolder::temporary(&self.folder, "removed")?;
        removed.move_in(&model.folder)?;
        Ok(())
    }

    fn place(&self, source: &ModelSource) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        source.path().hash(&mut hasher);
        let fit = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let mut name: String = source.name().chars().map(fit).collect();
        // A file's name has 255 bytes at the most; the key tells models apart.
        name.truncate(name.floor_char_boundary(LONGEST_NAME));
        self.folder.join(format!("{name}-{:016x}", hasher.finish()))
    }
}

impl CompiledModel {
    /// The bundle's folder.
    pub fn bundle(&self) -> PathBuf {
        self.folder.join(BUNDLE)
    }

    /// Bytes on the disk.
    pub fn bytes(&self) -> u64 {
        let files = fs::read_dir(self.bundle()).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|meta| meta.len()).sum()
    }
}

impl ModelState {
    /// A word for lists and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Changed => "source-changed",
            Self::Gone => "source-gone",
            Self::OtherVersion => "other-version",
        }
    }
}

impl Record {
    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&file_io::read_file_up_to(&folder.join(RECORD), MOST_RECORD_BYTES).ok()?).ok()
    }
}

fn model_in(folder: PathBuf) -> Option<CompiledModel> {
    let record = Record::read(&folder)?;
    let source = ModelSource::of(&record.source);
    let state = match &source {
        Err(_) => ModelState::Gone,
        Ok(source) if source.stamp() != record.stamp => ModelState::Changed,
        Ok(_) if record.made_by != version() => ModelState::OtherVersion,
        Ok(_) => ModelState::Ready,
    };
    let name = name_of(&record.source);
    Some(CompiledModel { name, source: record.source, folder, context: record.context, state })
}

/// What another version may do otherwise: this crate, and the host backend's binary format.
fn version() -> String {
    format!("{}, format {}", env!("CARGO_PKG_VERSION"), qnn_host::container::FORMAT_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::testmodel::TestModel;
    use compiler::{Family, Silent};

    #[test]
    fn a_model_is_compiled_once_and_again_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("tiny");
        TestModel::tiny(Family::Llama).write(&model).unwrap();
        let store = CompiledModels::at(&dir.path().join("cache"));
        let source = || ModelSource::of(&model).unwrap();
        assert_eq!(store.bundle_of(&source(), None), None);
        let bundle = store.compile(&source(), None, &Options::new(), &mut Silent).unwrap();
        assert_eq!(store.bundle_of(&source(), None), Some(bundle.clone()));
        let [listed] = &store.list().unwrap()[..] else { panic!("one model") };
        assert_eq!((&*listed.name, listed.state, listed.bundle()), ("tiny", ModelState::Ready, bundle.clone()));
        assert!(listed.bytes() > 1000);
        // A longer context than it was compiled for.
        let longer = listed.context + 1;
        assert_eq!(store.bundle_of(&source(), Some(listed.context)), Some(bundle.clone()));
        assert_eq!(store.bundle_of(&source(), Some(longer)), None);
        store.compile(&source(), Some(longer), &Options::new(), &mut Silent).unwrap();
        assert!(store.bundle_of(&source(), Some(longer)).is_some());
        // The source changes, then goes.
        TestModel::tiny(Family::Qwen3).write(&model).unwrap();
        assert_eq!(store.bundle_of(&source(), None), None);
        assert_eq!(store.list().unwrap()[0].state, ModelState::Changed);
        fs::remove_dir_all(&model).unwrap();
        assert_eq!(store.list().unwrap()[0].state, ModelState::Gone);
        store.remove(&store.list().unwrap()[0]).unwrap();
        assert_eq!(store.list().unwrap(), []);
        assert_eq!(fs::read_dir(store.folder()).unwrap().count(), 0);
    }

    #[test]
    fn a_record_that_is_too_long_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record { source: "m".into(), stamp: "s".into(), context: 8, made_by: version() };
        let mut text = serde_json::to_vec(&record).unwrap();
        fs::create_dir(dir.path().join("m-0")).unwrap();
        let place = dir.path().join("m-0").join(RECORD);
        fs::write(&place, &text).unwrap();
        let store = CompiledModels::at(dir.path());
        assert_eq!(store.list().unwrap().len(), 1);
        text.resize(2 << 20, b' ');
        fs::write(&place, &text).unwrap();
        assert_eq!(store.list().unwrap(), []);
    }
}

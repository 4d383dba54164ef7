//! The reference without a cache: graphs that take a whole dialog at once (AR == CL), compiled from the checkpoint that a bundle was made
//! of and kept in the cache folder.
//!
//! Precision and weights are those of the bundle, so that results differ by rounding alone. The checkpoint is looked for where it
//! may lie, and taken only if its hash is that in the bundle's manifest.

use std::path::{Path, PathBuf};

use compiler::{CompileError, CompileOptions, ModelSpec, ModelSummary, Progress, Splits, model_hash};
use engine::{EngineError, TokenModel};
use file_io::NewFolder;
use genie_bundle::{CONFIG_FILE, Manifest};
use genie_types::TokenId;
use serde::{Deserialize, Serialize};

use crate::backend::open_backend;
use crate::{Bundle, Error, Model, Options, demo};

/// Graphs without a cache.
#[derive(Debug)]
pub struct Naive {
    model: Model,
    source: NaiveSource,
}

impl Naive {
    /// Compiles graphs of these widths (all of which see their whole context) like those of `bundle`, or opens them where they are
    /// compiled already. `checkpoint` is the model; without it, it is looked for: the built-in demo, what a compiled model in the
    /// cache was made of, a folder or file of the manifest's name beside the bundle or here.
    ///
    /// # Errors
    /// No checkpoint of the bundle's hash; adapters merged into the bundle's weights; no cache folder; what compiling and opening
    /// may fail with.
    pub fn open(
        bundle: &Bundle,
        checkpoint: Option<&Path>,
        widths: &[u32],
        options: &Options,
        progress: &mut dyn Progress,
    ) -> Result<Self, Error> {
        let base = bundle.config().base();
        let manifest = Manifest::read(base)?;
        if !manifest.options.merged.is_empty() {
            return Err(Error::NaiveOfMerged { bundle: base.to_owned() });
        }
        let place = genie_bundle::cache_folder().ok_or(Error::NoCacheFolder)?.join(NAIVE);
        let folder = place.join(key(&manifest, widths));
        let record = folder.join(SOURCE);
        if NaiveSource::read(&record).is_none() || checkpoint.is_some() {
            let is_it = |path: &Path| model_hash(path).is_ok_and(|hash| hash == manifest.source.sha256);
            let mut unpacked = None;
            let source = match checkpoint {
                Some(path) if is_it(path) => path.to_owned(),
                Some(path) => {
                    // What is wrong with a path that is no model is said in the compiler's words.
                    model_hash(path)?;
                    let name = manifest.source.name.clone();
                    return Err(Error::OtherCheckpoint { path: path.to_owned(), name });
                }
                None => match candidates(base, &manifest).into_iter().find(|path| is_it(path)) {
                    Some(path) => path,
                    None => {
                        std::fs::create_dir_all(&place)
                            .map_err(|source| Error::DemoFile { path: place.clone(), source })?;
                        let model = NewFolder::temporary(&place, "model")?;
                        demo::write_checkpoint(model.path())?;
                        if !is_it(model.path()) {
                            return Err(Error::NoCheckpoint { name: manifest.source.name.clone() });
                        }
                        let path = model.path().to_owned();
                        unpacked = Some(model);
                        path
                    }
                },
            };
            if !folder.join(CONFIG_FILE).exists() {
                compile(&source, &folder, (&manifest, widths), options, progress)?;
            }
            let spec = ModelSummary::read(&source)?.spec;
            let shown = if unpacked.is_some() { PathBuf::from(BUILT_IN) } else { source };
            let text = serde_json::to_vec_pretty(&NaiveSource::of(shown, &spec)).unwrap_or_default();
            file_io::write_bytes(&record, &text).map_err(file_io::FolderError::from)?;
        }
        let Some(source) = NaiveSource::read(&record) else {
            return Err(Error::NoCheckpoint { name: manifest.source.name });
        };
        let mut model = Bundle::read(&folder)?.open(options)?;
        if model.engine_mut().variants().groups().iter().any(|group| group.evicts()) {
            return Err(Error::NaiveWindow);
        }
        Ok(Self { model, source })
    }

    /// Those that were compiled into this cache folder: their folders, and what they were compiled from.
    pub fn kept(cache: &Path) -> Vec<(PathBuf, NaiveSource)> {
        let folders = std::fs::read_dir(cache.join(NAIVE)).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut kept: Vec<_> =
            folders.filter_map(|folder| Some((folder.clone(), NaiveSource::read(&folder.join(SOURCE))?))).collect();
        kept.sort_by(|(a, _), (b, _)| a.cmp(b));
        kept
    }

    /// Logits behind the last token: all tokens go through one graph, none of which was kept.
    ///
    /// # Errors
    /// More tokens than the widest graph takes; a graph that fails.
    pub fn logits(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        self.model.engine_mut().recompute(tokens)
    }

    /// Most tokens that it takes.
    pub fn limit(&self) -> usize {
        self.model.engine().context_size()
    }

    /// The graph's width for that many tokens: what it computes, padding included.
    pub fn width_for(&self, tokens: usize) -> Option<usize> {
        let widths = self.model.engine().layout().variants.iter().filter(|v| v.is_full_context());
        widths.map(|variant| variant.ar().get()).filter(|&ar| ar >= tokens).min()
    }

    /// The model, for its graphs and their profile.
    pub fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    /// The checkpoint that it was compiled from.
    pub fn source(&self) -> &NaiveSource {
        &self.source
    }
}

/// Their folder in the cache folder.
const NAIVE: &str = "naive";
/// What stands for the built-in demo's path.
const BUILT_IN: &str = "the built-in demo";
/// The file that says what it was compiled from.
const SOURCE: &str = "checkpoint.json";

/// What graphs without a cache were compiled from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NaiveSource {
    /// The checkpoint's path, or a word for the built-in one.
    pub checkpoint: PathBuf,
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward part.
    pub ffn: usize,
    /// The feed-forward part has a gate.
    pub gated: bool,
    /// Rows of the LM head.
    pub vocab: usize,
}

impl NaiveSource {
    /// Whether the checkpoint is still where it was; the built-in one is.
    pub fn is_there(&self) -> bool {
        self.checkpoint == Path::new(BUILT_IN) || self.checkpoint.exists()
    }

    fn of(checkpoint: PathBuf, spec: &ModelSpec) -> Self {
        let &ModelSpec { n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, gated, vocab, .. } = spec;
        Self { checkpoint, layers: n_layers, hidden, heads: n_heads, kv_heads: n_kv_heads, head_dim, ffn, gated, vocab }
    }

    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

fn compile(
    source: &Path,
    folder: &Path,
    (manifest, widths): (&Manifest, &[u32]),
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let parent = folder.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent).map_err(|source| Error::DemoFile { path: parent.to_owned(), source })?;
    let compile = CompileOptions {
        ars: widths.to_vec(),
        cls: widths.to_vec(),
        splits: Splits::DecoderLmhead,
        one_file: true,
        precision: manifest.options.precision,
        // The file's own formats are chosen as they were before.
        weights: (!has_own_formats(manifest)).then_some(manifest.options.weights),
        force: folder.exists(),
        ..CompileOptions::new(source, folder)
    };
    compile.check()?;
    match crate::compile(&compile, &open_backend(options)?, options, progress) {
        // Another process has put the same there meanwhile.
        Err(Error::Compile(CompileError::OutputIsBundle { .. })) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Places where the checkpoint of a bundle may be.
fn candidates(base: &Path, manifest: &Manifest) -> Vec<PathBuf> {
    let mut places = Vec::new();
    // A model of the cache has a note of its source beside the bundle.
    let note = base.parent().map(|parent| parent.join("source.json"));
    let note = note.and_then(|path| serde_json::from_slice::<serde_json::Value>(&std::fs::read(path).ok()?).ok());
    places.extend(note.and_then(|note| Some(PathBuf::from(note["source"].as_str()?))));
    let name = &manifest.source.name;
    // A name out of a file is no path.
    if Path::new(name).components().count() == 1 {
        places.extend(base.parent().map(|parent| parent.join(name)));
        places.push(PathBuf::from(name));
    }
    places.retain(|path| path.exists());
    places
}

/// Whether weights are in other formats than the manifest's one besides, as the file has them.
fn has_own_formats(manifest: &Manifest) -> bool {
    manifest.options.keeps_eight_bits || manifest.options.keeps_floats
}

/// Changes with the model, how it is compiled, this version, and the form of the backend's binaries.
fn key(manifest: &Manifest, widths: &[u32]) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    manifest.source.sha256.hash(&mut hasher);
    (manifest.options.precision.to_string(), manifest.options.weights.to_string()).hash(&mut hasher);
    has_own_formats(manifest).hash(&mut hasher);
    widths.hash(&mut hasher);
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    qnn_host::container::FORMAT_VERSION.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

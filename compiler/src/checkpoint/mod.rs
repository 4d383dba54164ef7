//! Reads checkpoints, each tensor streamed as f32: Hugging Face's (one or many safetensors files), or a GGUF file under
//! Hugging Face's names.
//!
//! Files are read, not mapped: a tensor passes through a small buffer, so a file that shrinks meanwhile gives an error where a
//! mapping would give a signal, and this crate stays free of `unsafe`.
//!
//! *Source*: the safetensors format as published by Hugging Face (8-byte length, JSON header, dense data).

mod conv1d;
mod fused;
mod harmless;
mod header;
mod index;
mod joined;
mod overlay;
mod read;
#[cfg(test)]
mod tests;

use crate::family::{Family, Fused, fused_name, gpt2};
use crate::gguf::{GgmlType, Gguf, GgufError, gguf_name, hugging_face_name, in_stored_words};
use crate::json::shown_key;
use crate::near::nearest;
use crate::{CompileError, Result, fs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use crate::gguf::BlockFormat;
pub use conv1d::Columns;
pub(crate) use harmless::is_harmless;
pub(crate) use header::file_header;
pub(crate) use overlay::{Deltas, Overlay};
pub(crate) use read::{FiniteCheck, for_each_chunk, for_each_raw};

/// The weights, where they are in one file.
pub(crate) const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";
const ADAPTER: &str = "adapter_config.json";

/// An opened checkpoint: which tensors there are and where their bytes lie.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    shards: Vec<PathBuf>,
    tensors: BTreeMap<String, TensorEntry>,
    names: Names,
    /// Some tensors are views of one that holds several.
    fused: &'static [Fused],
    /// What is added to the weights as these are read.
    overlays: Vec<Box<dyn Overlay>>,
    notes: Vec<String>,
}

/// How tensors are called in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    HuggingFace,
    Gguf(Family),
    /// Those of GPT-2, which have this before them.
    Gpt2 {
        prefix: &'static str,
    },
}

/// Where one tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Index into [`Checkpoint::shards`].
    pub shard: usize,
    /// Element type in the file.
    pub dtype: SourceDtype,
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// First byte, counted from the file's start.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Width of the heads whose rows lie in pairs `(0, d/2), (1, d/2 + 1), ...`, as llama.cpp stores Q and K of `llama` models;
    /// they are read in Hugging Face's order.
    pub paired_heads: Option<usize>,
    /// The tensor's rows are columns of a stored matrix, which begins at `offset`; `bytes` are the tensor's own.
    pub columns: Option<Columns>,
}

/// Element types that weights are read from, and the name of any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceDtype {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// Upper half of an IEEE single.
    Bf16,
    /// Quantised values in blocks, of a GGUF file.
    Blocks(BlockFormat),
    /// Any other type, by its name in the file.
    Other(String),
}

impl TensorEntry {
    /// Refuses numbers in blocks without rows: parts of a list need not begin where blocks do.
    fn check_is_no_list_of_blocks(&self, name: &str) -> Result<()> {
        match self.dtype {
            SourceDtype::Blocks(_) if self.dims.len() < 2 => {
                Err(CompileError::ListInBlocks { name: name.into(), found: self.dtype.name() })
            }
            _ => Ok(()),
        }
    }
}

impl SourceDtype {
    /// The type's name in files.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::F32 => "F32".into(),
            Self::F16 => "F16".into(),
            Self::Bf16 => "BF16".into(),
            Self::Blocks(format) => format.name().into(),
            Self::Other(name) => name.clone(),
        }
    }

    fn parse(name: &str) -> Self {
        match name {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            other => Self::Other(other.into()),
        }
    }

    /// Elements and bytes of a block, for the types that are read; plain numbers are blocks of one.
    pub const fn block(&self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => Some((1, 4)),
            Self::F16 | Self::Bf16 => Some((1, 2)),
            Self::Blocks(format) => Some((format.elems(), format.bytes())),
            Self::Other(_) => None,
        }
    }
}

impl Checkpoint {
    /// Reads the headers of `model.safetensors`, or of all shards that `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// No checkpoint, damaged or foreign files, an index with missing shards or tensors.
    pub fn open(dir: &Path) -> Result<Self> {
        let (single, index) = (dir.join(SINGLE_FILE), dir.join(INDEX_FILE));
        let (has_single, has_index) = (fs::is_there(&single)?, fs::is_there(&index)?);
        let (shards, tensors) = match (has_single, has_index) {
            (true, _) => (vec![single.clone()], header::read(&single, 0)?),
            (false, true) => index::read(dir, &index)?,
            (false, false) => return Err(none_in(dir)),
        };
        let mut notes = Vec::new();
        if has_single && has_index {
            notes.push(format!("{INDEX_FILE} is not read: {SINGLE_FILE} holds the weights"));
        }
        note_other_files(dir, &shards, &mut notes);
        Ok(Self {
            dir: dir.into(),
            shards,
            tensors,
            names: Names::HuggingFace,
            fused: &[],
            overlays: Vec::new(),
            notes,
        })
    }

    /// The tensors of one safetensors file of any name.
    ///
    /// # Errors
    /// A damaged or foreign file.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        let tensors = header::read(path, 0)?;
        let (dir, shards) = (path.parent().unwrap_or(Path::new("")).into(), vec![path.to_owned()]);
        Ok(Self {
            dir,
            shards,
            tensors,
            names: Names::HuggingFace,
            fused: &[],
            overlays: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Adds something to the weights from now on.
    pub(crate) fn overlay(&mut self, overlay: Box<dyn Overlay>) {
        self.overlays.push(overlay);
    }

    /// True where the values of a tensor are not those of the file.
    pub(crate) fn is_changed(&self, name: &str) -> bool {
        self.overlays.iter().any(|overlay| overlay.concerns(name))
    }

    /// The tensors of a GGUF file, by Hugging Face's names where they have one. `head_dim` as the model has it.
    pub(crate) fn of_gguf(gguf: &Gguf, head_dim: usize) -> Result<Self> {
        let family = gguf.family()?;
        let pairs = family.info().gguf_paired_heads;
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &gguf.tensors {
            let turned = pairs && ["attn_q.", "attn_k."].iter().any(|part| name.contains(part));
            let dtype = match tensor.ty {
                GgmlType::F32 => SourceDtype::F32,
                GgmlType::F16 => SourceDtype::F16,
                GgmlType::Bf16 => SourceDtype::Bf16,
                GgmlType::Blocks(format) => SourceDtype::Blocks(format),
                GgmlType::Other(_) => SourceDtype::Other(tensor.ty.to_string()),
            };
            let entry = TensorEntry {
                shard: 0,
                dtype,
                dims: tensor.dims.clone(),
                offset: tensor.offset,
                bytes: tensor.bytes,
                paired_heads: turned.then_some(head_dim),
                columns: None,
            };
            // A name that no supported model has is kept: it will be left over. One of Hugging Face's is not such a name.
            let known = hugging_face_name(name, family);
            if known.is_none() && gguf_name(name, family).is_some() {
                let (family, names) = (family.name(), vec![name.clone()]);
                return Err(GgufError::UnreadTensors { path: gguf.path.clone(), family, names, n_others: 0 }.into());
            }
            tensors.insert(known.unwrap_or_else(|| name.clone()), entry);
        }
        let dir = gguf.path.parent().unwrap_or(Path::new("")).into();
        let names = Names::Gguf(family);
        Ok(Self {
            dir,
            shards: vec![gguf.path.clone()],
            tensors,
            names,
            fused: &[],
            overlays: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// The directory it was opened from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The files that hold the tensors.
    pub fn shards(&self) -> &[PathBuf] {
        &self.shards
    }

    /// Files beside the weights that are not read.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// All tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorEntry> {
        &self.tensors
    }

    /// What a tensor is called in the files.
    pub(crate) fn stored_name(&self, name: &str) -> String {
        let whole = fused_name(name, self.fused);
        let name = whole.as_deref().unwrap_or(name);
        match self.names {
            Names::HuggingFace => name.into(),
            Names::Gguf(family) => gguf_name(name, family).unwrap_or_else(|| name.into()),
            Names::Gpt2 { prefix } => gpt2::stored_name(name, prefix).unwrap_or_else(|| name.into()),
        }
    }

    /// The key of the configuration that has the number of layers.
    pub(crate) fn layers_key(&self, family: Family) -> String {
        match self.names {
            Names::HuggingFace => "num_hidden_layers".into(),
            Names::Gpt2 { .. } => "n_layer".into(),
            Names::Gguf(_) => format!("{}.block_count", family.gguf_name()),
        }
    }

    /// The tensor of that name, if it has those extents and a type that is read.
    ///
    /// # Errors
    /// A missing tensor (with the nearest names), another shape, an unsupported element type.
    pub fn expect(&self, name: &str, dims: &[usize]) -> Result<&TensorEntry> {
        self.find(name, dims).map_err(|error| self.in_stored_words(error))
    }

    /// An error about tensors, under the names that they have in the files.
    pub(crate) fn in_stored_words(&self, error: CompileError) -> CompileError {
        match self.names {
            Names::HuggingFace => error,
            Names::Gpt2 { prefix } => gpt2_words(error, prefix, self.fused),
            Names::Gguf(family) => in_stored_words(&self.shards[0], family, error),
        }
    }

    fn find(&self, name: &str, dims: &[usize]) -> Result<&TensorEntry> {
        let Some(entry) = self.tensors.get(name) else {
            let near = nearest(name, self.tensors.keys().map(String::as_str));
            return Err(CompileError::MissingTensor { name: name.into(), n_tensors: self.tensors.len(), near });
        };
        if let SourceDtype::Other(dtype) = &entry.dtype {
            return Err(CompileError::UnsupportedDtype { name: name.into(), found: dtype.clone() });
        }
        if entry.dims != dims || entry.paired_heads.is_some_and(|d| d == 0 || !dims[0].is_multiple_of(d)) {
            return Err(CompileError::WrongShape {
                name: name.into(),
                expected: dims.into(),
                found: entry.dims.clone(),
            });
        }
        Ok(entry)
    }
}

/// An error about a tensor, under the name that it has in a checkpoint of GPT-2.
fn gpt2_words(error: CompileError, prefix: &str, fused: &[Fused]) -> CompileError {
    use CompileError::{
        F16Overflow, ListInBlocks, MissingTensor, NoBlocks, NotFinite, ScaleOverflow, UnsupportedDtype, WrongShape,
    };
    let stored = |name: String| {
        let whole = fused_name(&name, fused).unwrap_or(name);
        gpt2::stored_name(&whole, prefix).unwrap_or(whole)
    };
    match error {
        MissingTensor { name, n_tensors, near } => {
            MissingTensor { name: stored(name), n_tensors, near: near.into_iter().map(stored).collect() }
        }
        WrongShape { name, mut expected, mut found } => {
            let name = stored(name);
            if gpt2::is_conv1d(&name) {
                expected.reverse();
                found.reverse();
            }
            WrongShape { name, expected, found }
        }
        UnsupportedDtype { name, found } => UnsupportedDtype { name: stored(name), found },
        ListInBlocks { name, found } => ListInBlocks { name: stored(name), found },
        NotFinite { name, index, value } => NotFinite { name: stored(name), index, value },
        NoBlocks { name, dims, block } => NoBlocks { name: stored(name), dims, block },
        ScaleOverflow { name, value } => ScaleOverflow { name: stored(name), value },
        F16Overflow { name, index, value } => F16Overflow { name: stored(name), index, value },
        other => other,
    }
}

/// The error of a folder without weights, with what else is there.
fn none_in(dir: &Path) -> CompileError {
    let pickled = names_in(dir).into_iter().find(|n| [".bin", ".pth", ".gguf"].iter().any(|end| n.ends_with(end)));
    CompileError::NoCheckpoint { dir: dir.into(), pickled }
}

/// Notes safetensors files that are no part of the checkpoint, and an adapter.
fn note_other_files(dir: &Path, shards: &[PathBuf], notes: &mut Vec<String>) {
    let read = |name: &String| shards.iter().any(|shard| shard.file_name().is_some_and(|n| n == name.as_str()));
    let others: Vec<String> = names_in(dir)
        .into_iter()
        .filter(|name| name.ends_with(".safetensors") && !read(name))
        .map(|n| shown_key(&n))
        .collect();
    if !others.is_empty() {
        notes.push(format!("not read, as they are no part of the checkpoint: {}", others.join(", ")));
    }
    if dir.join(ADAPTER).exists() {
        notes.push(format!("the adapter of {ADAPTER} is not applied"));
    }
}

/// Names of a folder's entries, in order.
fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

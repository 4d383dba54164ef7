//! LoRA adapters as PEFT writes them: a folder with `adapter_config.json` and `adapter_model.safetensors`.
//!
//! An adapter adds `s B (A x)` to what a projection gives. *Shapes*: A `[r, in]`, B `[out, r]`, as stored. `s` is `lora_alpha / r`, or
//! `lora_alpha / sqrt(r)`.
//! *Source*: the files and the scaling of PEFT 0.17.

mod config;
mod merge;
mod tensors;

use std::path::PathBuf;

use genie_bundle::hash::hex;
use nsp_graph::names;
use sha2::{Digest, Sha256};

use crate::checkpoint::{Checkpoint, for_each_chunk};
use crate::family::ModelSpec;
use crate::progress::go_on;
use crate::{AdapterSource, CompileError, Progress, Result, fs};

pub(crate) use tensors::MODULES;
use tensors::Parts;
pub(crate) use tensors::Target;

/// The small file.
const CONFIG: &str = "adapter_config.json";
/// The weights.
const WEIGHTS: &str = "adapter_model.safetensors";
/// Most bytes of the small file.
const LONGEST_CONFIG: u64 = 1 << 20;
/// Most characters of an adapter's name.
const LONGEST_NAME: usize = 64;

/// One opened adapter.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) name: String,
    pub(crate) rank: usize,
    dir: PathBuf,
    weights: Checkpoint,
    parts: Parts,
}

/// The matrices of one projection, in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LowRank {
    pub(crate) rank: usize,
    /// `[rank, in]`.
    pub(crate) down: Vec<f32>,
    /// `[out, rank]`, times the adapter's scaling.
    pub(crate) up: Vec<f32>,
}

impl Adapter {
    /// Opens a folder and holds it against the model: every tensor must be a part of it.
    ///
    /// # Errors
    /// Missing files; settings that ask for more than low rank matrices; tensors that the model does not have.
    pub(crate) fn open(source: &AdapterSource, spec: &ModelSpec) -> Result<Self> {
        let dir = &source.dir;
        for missing in [CONFIG, WEIGHTS] {
            if !fs::is_there(&dir.join(missing))? {
                return Err(CompileError::NoAdapter { dir: dir.clone(), missing });
            }
        }
        let path = dir.join(CONFIG);
        let document = crate::json::parse(&path, &fs::read(&path, LONGEST_CONFIG)?)?;
        let config = config::read(&path, &document, spec)?;
        let weights = Checkpoint::of_file(&dir.join(WEIGHTS))?;
        let parts = tensors::read(&weights, &config, spec)?;
        let rank = parts.values().map(|part| part.rank).max().unwrap_or(0);
        let name = match &source.name {
            Some(name) => name.clone(),
            None => {
                let full = dir.canonicalize().unwrap_or_else(|_| dir.clone());
                full.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
        };
        check_name(&name)?;
        Ok(Self { name, rank, dir: dir.clone(), weights, parts })
    }

    /// The input of the graphs that holds its strength.
    pub(crate) fn alpha(&self) -> String {
        let plain: String = self.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        format!("{}_{plain}", names::LORA_ALPHA)
    }

    /// The rank of its matrices for a projection; `None` where it has none.
    pub(crate) fn rank_at(&self, layer: usize, target: Target) -> Option<usize> {
        self.parts.get(&(layer, target)).map(|part| part.rank)
    }

    /// Its matrices for a projection.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn matrices(&self, layer: usize, target: Target) -> Result<Option<LowRank>> {
        let Some(part) = self.parts.get(&(layer, target)) else { return Ok(None) };
        let down = self.values(&part.down)?;
        let all = self.values(&part.up)?;
        let rows = part.rows.start * part.rank..part.rows.end * part.rank;
        let up = all[rows].iter().map(|v| (f64::from(*v) * part.scaling) as f32).collect();
        Ok(Some(LowRank { rank: part.rank, down, up }))
    }

    fn values(&self, name: &str) -> Result<Vec<f32>> {
        let entry = &self.weights.tensors()[name];
        let mut values = Vec::with_capacity(entry.dims.iter().product());
        for_each_chunk(&self.weights, name, entry, &mut |_| Ok(()), |chunk| {
            values.extend_from_slice(chunk);
            Ok(())
        })?;
        Ok(values)
    }

    /// Hash of its two files.
    ///
    /// # Errors
    /// Those of reading, and a cancelled compilation.
    pub(crate) fn hash(&self, progress: &dyn Progress) -> Result<String> {
        let mut hasher = Sha256::new();
        for name in [CONFIG, WEIGHTS] {
            let path = self.dir.join(name);
            hasher.update(fs::length(&path)?.to_le_bytes());
            fs::hash_into(&mut hasher, &path, &mut |_| go_on(progress))?;
        }
        Ok(hex(&hasher.finalize()))
    }

    /// The projections that it changes, by their names, each once.
    pub(crate) fn targets(&self) -> Vec<String> {
        let targets = Target::ALL.iter().filter(|target| self.parts.keys().any(|(_, t)| t == *target));
        targets.map(|target| target.name().to_owned()).collect()
    }

    /// Numbers of its matrices in one layer, at most.
    pub(crate) fn n_elems_of_layer(&self, spec: &ModelSpec) -> u64 {
        let one = |layer: usize| {
            let of = |target: &Target| {
                let (out, inner) = target.dims(spec);
                self.rank_at(layer, *target).map_or(0, |rank| (rank * (out + inner)) as u64)
            };
            Target::ALL.iter().map(of).sum()
        };
        (0..spec.n_layers).map(one).max().unwrap_or(0)
    }
}

/// Opens adapters that switch at run time: names and inputs must differ.
///
/// # Errors
/// Those of [`Adapter::open`]; two of the same name or input.
pub(crate) fn open_all(sources: &[AdapterSource], spec: &ModelSpec) -> Result<Vec<Adapter>> {
    let mut adapters: Vec<Adapter> = Vec::with_capacity(sources.len());
    for source in sources {
        let adapter = Adapter::open(source, spec)?;
        if let Some(other) = adapters.iter().find(|other| other.alpha() == adapter.alpha()) {
            return Err(CompileError::AdapterTwice { name: adapter.name, other: other.name.clone() });
        }
        adapters.push(adapter);
    }
    Ok(adapters)
}

/// Names go into a config, a flag `NAME:STRENGTH` and tensor names.
fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits) {
        return Ok(());
    }
    Err(CompileError::AdapterName { name: name.into() })
}

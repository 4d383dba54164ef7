//! `model.safetensors.index.json`: which shard holds which tensor.

use super::{TensorEntry, header};
use crate::{CompileError, Result, fs};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct RawIndex {
    weight_map: BTreeMap<String, String>,
}

/// The shards in name order, and the tensors the index names.
pub(super) fn read(dir: &Path, path: &Path) -> Result<(Vec<PathBuf>, BTreeMap<String, TensorEntry>)> {
    let index: RawIndex = fs::from_json(path, &fs::read(path)?)?;
    if index.weight_map.is_empty() {
        return Err(CompileError::EmptyIndex { path: path.into() });
    }
    let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    if let Some(outside) = names.iter().find(|name| name.contains(['/', '\\'])) {
        return Err(CompileError::ShardOutside { path: path.into(), shard: (*outside).into() });
    }
    let shards: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
    let missing: Vec<String> =
        names.iter().zip(&shards).filter(|(_, file)| !file.is_file()).map(|(name, _)| name.to_string()).collect();
    if !missing.is_empty() {
        return Err(CompileError::MissingShards { path: path.into(), missing, n_shards: shards.len() });
    }

    let mut tensors = BTreeMap::new();
    for (shard, (name, file)) in names.iter().zip(&shards).enumerate() {
        let mut held = header::read(file, shard)?;
        for (tensor, _) in index.weight_map.iter().filter(|(_, s)| s == name) {
            let entry = held.remove(tensor).ok_or_else(|| CompileError::NotInShard {
                path: path.into(),
                name: tensor.clone(),
                shard: name.to_string(),
            })?;
            tensors.insert(tensor.clone(), entry);
        }
    }
    Ok((shards, tensors))
}

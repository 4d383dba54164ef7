//! `model.safetensors.index.json`: which shard holds which tensor.

use super::{TensorEntry, header, is_harmless};
use crate::json::{self, Object, shown, shown_key};
use crate::{CompileError, Result, fs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Far above any real index.
const MAX_BYTES: u64 = 64 << 20;

/// The shards in name order, and the tensors the index names.
pub(super) fn read(dir: &Path, path: &Path) -> Result<(Vec<PathBuf>, BTreeMap<String, TensorEntry>)> {
    let document = json::parse(path, &fs::read(path, MAX_BYTES)?)?;
    let document = Object::document(path, &document)?;
    let map = document.object("weight_map")?.ok_or_else(|| document.missing("weight_map", "an object"))?;
    let mut weight_map = BTreeMap::new();
    for (tensor, shard) in map.unread() {
        let name = shard.as_str().filter(|name| !["", ".", ".."].contains(name));
        let shard = name.ok_or_else(|| map.bad(tensor, shown(shard), "the name of a file"))?;
        weight_map.insert(tensor, shard);
    }
    if weight_map.is_empty() {
        return Err(CompileError::EmptyIndex { path: path.into() });
    }
    let names: BTreeSet<&str> = weight_map.values().copied().collect();
    if let Some(outside) = names.iter().find(|name| name.contains(['/', '\\'])) {
        return Err(CompileError::ShardOutside { path: path.into(), shard: (*outside).into() });
    }
    let shards: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
    let mut missing = Vec::new();
    for (name, file) in names.iter().zip(&shards) {
        if !fs::is_there(file)? {
            missing.push(shown_key(name));
        }
    }
    if !missing.is_empty() {
        return Err(CompileError::MissingShards { path: path.into(), missing, n_shards: shards.len() });
    }

    let mut tensors = BTreeMap::new();
    for (shard, (name, file)) in names.iter().zip(&shards).enumerate() {
        let mut held = header::read(file, shard)?;
        for (tensor, _) in weight_map.iter().filter(|(_, s)| *s == name) {
            let entry = held.remove(*tensor).ok_or_else(|| CompileError::NotInShard {
                path: path.into(),
                name: shown_key(tensor),
                shard: name.to_string(),
            })?;
            tensors.insert(tensor.to_string(), entry);
        }
        if let Some(extra) = held.into_keys().find(|tensor| !is_harmless(tensor)) {
            let (path, shard) = (path.into(), name.to_string());
            return Err(CompileError::NotInIndex { path, name: shown_key(&extra), shard });
        }
    }
    Ok((shards, tensors))
}

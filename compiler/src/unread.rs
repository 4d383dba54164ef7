//! Nothing unread: which tensors the model takes from a checkpoint, and what is left over, which is an error by name.
//!
//! A tensor that no part of the model takes means that the configuration and the weights are of different models, or that the
//! model computes something that this compiler does not know. Either way its text would be wrong without a word.
//! Harmless are tables that can be computed from the configuration, and the copy of a tied head.

use crate::checkpoint::{Checkpoint, TensorEntry, for_each_chunk, is_harmless};
use crate::family::ModelSpec;
use crate::fs::OnBytes;
use crate::{CompileError, Result};
use genie_bundle::hash::hex;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// Names that an error lists.
const N_LISTED: usize = 3;

const HEAD: &str = "lm_head.weight";
const TABLE: &str = "model.embed_tokens.weight";

/// The tensors that the model has taken so far.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    checkpoint: &'a Checkpoint,
    names: BTreeSet<String>,
}

impl<'a> Taken<'a> {
    /// None of them.
    pub(crate) fn none_of(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, names: BTreeSet::new() }
    }

    /// Takes one.
    ///
    /// # Errors
    /// Those of [`Checkpoint::expect`].
    pub(crate) fn take(&mut self, name: &str, dims: &[usize]) -> Result<()> {
        self.checkpoint.expect(name, dims)?;
        self.names.insert(name.into());
        Ok(())
    }

    /// Checks that nothing is left over.
    ///
    /// # Errors
    /// Tensors that the model did not take and that are not known to be harmless; a tied head that is not the embedding; those of
    /// `on_read`.
    pub(crate) fn check_rest(&self, spec: &ModelSpec, on_read: &mut OnBytes<'_>) -> Result<()> {
        let mut unread: Vec<&String> =
            self.checkpoint.tensors().keys().filter(|name| !self.names.contains(*name) && !is_harmless(name)).collect();
        if spec.tied && unread.iter().any(|name| *name == HEAD) {
            if !same_values(self.checkpoint, HEAD, TABLE, on_read)? {
                let shown = |name| self.checkpoint.stored_name(name);
                return Err(CompileError::TiedHeadDiffers { head: shown(HEAD), table: shown(TABLE) });
            }
            unread.retain(|name| *name != HEAD);
        }
        if unread.is_empty() {
            return Ok(());
        }
        Err(CompileError::UnreadTensors {
            family: spec.family.name(),
            bias_key: unread.iter().find_map(|name| spec.family.info().bias_key(name)),
            n_others: unread.len().saturating_sub(N_LISTED),
            names: unread.into_iter().take(N_LISTED).map(|name| self.checkpoint.stored_name(name)).collect(),
        })
    }
}

/// Compares the layers that the configuration asks for with those that have tensors.
///
/// # Errors
/// More or fewer layers than the configuration has.
pub(crate) fn check_layers(spec: &ModelSpec, checkpoint: &Checkpoint) -> Result<()> {
    let names = || checkpoint.tensors().keys().filter_map(|name| layer_and_part(name));
    let parts: BTreeSet<&str> = names().filter(|(layer, _)| *layer == 0).map(|(_, part)| part).collect();
    let layers: BTreeSet<usize> = names().filter(|(_, part)| parts.contains(part)).map(|(layer, _)| layer).collect();
    let found = layers.len();
    // Where numbers are left out, a name says more than a count.
    let all = layers.last().is_some_and(|&last| last.checked_add(1) == Some(found));
    if all && found != spec.n_layers {
        return Err(CompileError::LayerCount {
            key: checkpoint.layers_key(spec.family),
            configured: spec.n_layers,
            found,
        });
    }
    Ok(())
}

/// `model.layers.7.mlp.up_proj.weight` to 7 and the rest.
fn layer_and_part(name: &str) -> Option<(usize, &str)> {
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

/// True when two tensors have the same shape and the same numbers.
fn same_values(checkpoint: &Checkpoint, one: &str, other: &str, on_read: &mut OnBytes<'_>) -> Result<bool> {
    let (Some(a), Some(b)) = (checkpoint.tensors().get(one), checkpoint.tensors().get(other)) else {
        return Ok(false);
    };
    if a.dims != b.dims {
        return Ok(false);
    }
    Ok(digest(checkpoint, one, a, on_read)? == digest(checkpoint, other, b, on_read)?)
}

fn digest(checkpoint: &Checkpoint, name: &str, entry: &TensorEntry, on_read: &mut OnBytes<'_>) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut bytes = Vec::new();
    for_each_chunk(checkpoint, name, entry, on_read, |values| {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        hasher.update(&bytes);
        Ok(())
    })?;
    Ok(hex(&hasher.finalize()))
}

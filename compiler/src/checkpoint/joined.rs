//! A checkpoint with tensors of another one.

use std::collections::btree_map::Entry;

use super::{Checkpoint, TensorEntry};
use crate::{CompileError, Result};

impl Checkpoint {
    /// Gives tensors another name, where the function has one.
    ///
    /// # Errors
    /// Two tensors of one name.
    pub(crate) fn rename(&mut self, name: impl Fn(&str) -> Option<String>) -> Result<()> {
        for (stored, entry) in std::mem::take(&mut self.tensors) {
            let own = name(&stored).unwrap_or_else(|| stored.clone());
            self.put(&stored, own, entry)?;
        }
        Ok(())
    }

    /// Takes the tensor that is called `stored` in the file under the name `own`.
    ///
    /// # Errors
    /// There is one of that name.
    pub(super) fn put(&mut self, stored: &str, own: String, entry: TensorEntry) -> Result<()> {
        match self.tensors.entry(own) {
            Entry::Vacant(place) => drop(place.insert(entry)),
            Entry::Occupied(place) => {
                return Err(CompileError::TensorTwice { stored: stored.into(), other: place.key().clone() });
            }
        }
        Ok(())
    }

    /// Takes a tensor of another checkpoint under a name of its own.
    ///
    /// # Errors
    /// The other has none of that name.
    pub(crate) fn take_from(&mut self, other: &Self, from: &str, name: &str) -> Result<()> {
        let dims = other.tensors.get(from).map_or_else(Vec::new, |entry| entry.dims.clone());
        let mut entry = other.expect(from, &dims)?.clone();
        let path = &other.shards[entry.shard];
        entry.shard = self.shards.iter().position(|shard| shard == path).unwrap_or(self.shards.len());
        if entry.shard == self.shards.len() {
            self.shards.push(path.clone());
        }
        self.tensors.insert(name.into(), entry);
        Ok(())
    }
}

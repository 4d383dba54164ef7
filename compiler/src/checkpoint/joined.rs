//! A checkpoint with tensors of another one.

use super::Checkpoint;
use crate::Result;

impl Checkpoint {
    /// Gives tensors another name, where the function has one.
    pub(crate) fn rename(&mut self, name: impl Fn(&str) -> Option<String>) {
        let tensors = std::mem::take(&mut self.tensors);
        self.tensors = tensors.into_iter().map(|(old, entry)| (name(&old).unwrap_or(old), entry)).collect();
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

//! Forecast prefixes: rows that only the forecast rows of an `ssd-q1` dialog see, in libGenie's cache file.
//!
//! | file | holds |
//! |---|---|
//! | `kv-cache.primary.qnn-htp` | the rows, as a saved dialog of that many tokens has them |
//! | `token-history` | u32 tokens that they were computed from; libGenie does not need it |
//!
//! In a live cache the rows are a sequence of their own, [`ForecastPrefix::SEQ`], in front of the dialog's.
//!
//! *Source*: libGenie 1.21; its own files are a saved basic dialog with the cache file renamed.

use std::path::Path;

use genie_types::TokenId;
use kvmanager::{Cell, GroupImage, KvImage, KvTensor, SeqId};

use crate::genie_folder::GenieFolder;
use crate::handed_cache::{HISTORY, write_handed_cache};
use crate::names;
use crate::{SavedSequence, SavedToken, Snapshot, StoreError};

/// A forecast prefix for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastPrefix {
    /// All rows, owned by [`Self::SEQ`].
    image: KvImage,
    tokens: Vec<TokenId>,
}

impl ForecastPrefix {
    /// The sequence that its rows are.
    pub const SEQ: SeqId = SeqId(SeqId::COUNT as u8 - 1);

    /// Reads one for a model with these tensors. A saved dialog of libGenie's, its cache file not renamed, is one too.
    ///
    /// # Errors
    /// [`StoreError::Io`] if there is none; [`StoreError::Torn`], [`StoreError::Folder`] for a file of another model.
    pub fn read(dir: &Path, tensors: &[KvTensor]) -> Result<Self, StoreError> {
        let folder = GenieFolder::new(dir);
        let (named, saved) =
            (dir.join(names::old_cache(folder.role)), dir.join(names::cache(folder.slot, folder.role)));
        let path = if saved.exists() && !named.exists() { saved } else { named };
        let mut image = folder.read_rows(tensors, &path)?;
        let cells = image.groups.iter_mut().flat_map(|group| &mut group.cells);
        cells.for_each(|cell| cell.seqs = 1 << Self::SEQ.0);
        image.next = image.next.iter().map(|&(_, next)| (Self::SEQ, next)).collect();
        let n_rows = image.groups.first().map_or(0, |group| group.cells.len());
        // The tokens are there for the record only; those of another length are of something else.
        let bytes = std::fs::read(dir.join(HISTORY)).unwrap_or_default();
        let tokens = bytes.chunks_exact(4).map(|b| TokenId(u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        let mut tokens: Vec<_> = tokens.take(n_rows).collect();
        tokens.resize(n_rows, TokenId(0));
        Ok(Self { image, tokens })
    }

    /// Writes the rows of a cache that holds one dialog as a prefix; the folder is made if there is none.
    ///
    /// # Errors
    /// [`StoreError::NoGenieForm`] for rows that libGenie's file cannot hold; [`StoreError::File`].
    pub fn write(dir: &Path, image: &KvImage, tokens: &[TokenId]) -> Result<(), StoreError> {
        write_handed_cache(dir, image, tokens)
    }

    /// Rows.
    pub fn n_rows(&self) -> usize {
        self.tokens.len()
    }

    /// A snapshot of a cache with these rows in front of its own.
    #[must_use]
    pub fn before(&self, snapshot: Snapshot) -> Snapshot {
        let Snapshot { image, mut sequences, .. } = snapshot;
        let groups = image.groups.iter().enumerate().map(|(i, group)| {
            let prefix = self.image.groups.get(i).map_or(&[][..], |group| &group.cells);
            let cells: Vec<Cell> = prefix.iter().chain(&group.cells).copied().collect();
            GroupImage { cells, ..group.clone() }
        });
        let rows = |image: &KvImage, tensor: &KvTensor| image.groups.get(tensor.group).map_or(0, |g| g.cells.len());
        let data = image.tensors.iter().enumerate().map(|(i, tensor)| {
            let own = (image.data[i].as_slice(), rows(&image, tensor));
            let same =
                |other: &KvTensor| (other.kind, other.layer, other.head) == (tensor.kind, tensor.layer, tensor.head);
            let ahead = self.image.tensors.iter().position(same).map_or(&[][..], |at| &self.image.data[at]);
            join(tensor.unit_bytes(), (ahead, rows(&self.image, tensor)), own)
        });
        let (groups, data) = (groups.collect(), data.collect());
        let next = image.next.iter().chain(&self.image.next).copied().collect();
        sequences.retain(|saved| saved.seq != Self::SEQ);
        sequences.push(SavedSequence { seq: Self::SEQ, tokens: SavedToken::prompt(&self.tokens) });
        let image = KvImage { groups, next, data, ..image };
        Snapshot { image, sequences, ..snapshot }
    }
}

/// Each line's rows of the first, then those of the second. A line is a head, or a dimension of it.
fn join(unit: usize, (first, n_first): (&[u8], usize), (second, n_second): (&[u8], usize)) -> Vec<u8> {
    let (a, b) = (unit * n_first, unit * n_second);
    let lines = |rows: &[u8], line: usize| rows.len().checked_div(line);
    let n_lines = lines(first, a).or(lines(second, b)).unwrap_or(0);
    let mut joined = Vec::with_capacity(first.len() + second.len());
    for line in 0..n_lines {
        joined.extend_from_slice(&first[line * a..(line + 1) * a]);
        joined.extend_from_slice(&second[line * b..(line + 1) * b]);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_joined_line_by_line() {
        assert_eq!(join(1, (&[1, 2, 3, 4], 2), (&[5, 6], 1)), [1, 2, 5, 3, 4, 6]);
        assert_eq!(join(2, (&[1, 2, 3, 4], 1), (&[], 0)), [1, 2, 3, 4]);
        assert_eq!(join(1, (&[], 0), (&[7, 8], 1)), [7, 8]);
    }
}

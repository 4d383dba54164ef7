//! What a folder's session was restored from, where it holds the dialog twice: in our snapshot and in libGenie's files.
//!
//! libGenie's files have no checksums. Files that hold other tokens than the snapshot were written later, by libGenie, or
//! are damaged. *How to tell*: the row of a token is computed from it. Where the two lists of tokens first
//! differ, a dialog that libGenie went on with has another row; the same row under another token is a damaged list.

use genie_types::TokenId;
use kvmanager::KvImage;

use crate::{Snapshot, StoreError, names};

/// Which files a session came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveFormat {
    /// The checked snapshot.
    OpenGenie,
    /// libGenie's own files.
    Genie,
}

/// A session that was read.
#[derive(Debug)]
pub struct Restored {
    /// The session.
    pub snapshot: Snapshot,
    /// The files that it came from.
    pub format: SaveFormat,
    /// How the folder's other files differ, if they do.
    pub note: Option<RestoreNote>,
}

/// How the snapshot and libGenie's files of one folder differ.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreNote {
    /// libGenie's files are damaged or of another model: the snapshot is restored.
    #[error("Genie's own files cannot be used and are left aside: {0}")]
    GenieUnusable(#[source] StoreError),
    /// libGenie's token history was changed: the snapshot is restored.
    #[error(
        "`{file}` is damaged and left aside: it has token {found} at place {place}, the snapshot {expected}, and the cache \
         row is that of the snapshot"
    )]
    HistoryDamaged {
        /// The history's file name.
        file: String,
        /// The first token that differs, from 0.
        place: usize,
        /// The snapshot's token.
        expected: TokenId,
        /// The history's token.
        found: TokenId,
    },
    /// libGenie went on with the dialog: its files are restored.
    #[error(
        "Genie's own files have another dialog than the snapshot from token {n_common} on ({n_genie} tokens, the snapshot \
         {n_snapshot}): they are taken as saved later by Genie, without a check, since they have no checksums"
    )]
    GenieWentOn {
        /// Tokens that both share at the beginning.
        n_common: usize,
        /// Tokens of libGenie's files.
        n_genie: usize,
        /// Tokens of the snapshot.
        n_snapshot: usize,
    },
}

/// Chooses between a snapshot and a dialog of libGenie's that are both whole in themselves.
pub(crate) fn choose(ours: Snapshot, theirs: Snapshot) -> Restored {
    let (expected, found) = (ours.history().0, theirs.history().0);
    if expected == found {
        return Restored { snapshot: ours, format: SaveFormat::OpenGenie, note: None };
    }
    let place = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    if let (Some(&expected), Some(&found)) = (expected.get(place), found.get(place))
        && row(&ours.image, place).is_some_and(|own| row(&theirs.image, place) == Some(own))
    {
        let note = RestoreNote::HistoryDamaged { file: names::history(0), place, expected, found };
        return Restored { snapshot: ours, format: SaveFormat::OpenGenie, note: Some(note) };
    }
    let note = RestoreNote::GenieWentOn { n_common: place, n_genie: found.len(), n_snapshot: expected.len() };
    Restored { snapshot: theirs, format: SaveFormat::Genie, note: Some(note) }
}

/// The first tensor's row of a position, line by line.
fn row(image: &KvImage, position: usize) -> Option<Vec<&[u8]>> {
    let (tensor, data) = (image.tensors.first()?, image.data.first()?);
    let cells = &image.groups.get(tensor.group)?.cells;
    let at = cells.iter().position(|cell| cell.pos == position)? * tensor.unit_bytes();
    Some(data.chunks_exact(tensor.unit_bytes() * cells.len()).map(|line| &line[at..at + tensor.unit_bytes()]).collect())
}

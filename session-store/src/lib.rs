//! Saved dialogs: checked snapshots of a cache, libGenie's own folder, and a store of prompt prefixes on disk.
//!
//! ```
//! use genie_types::TokenId;
//! use kvmanager::{Cell, GroupImage, KvDtype, KvImage, KvKind, KvTensor, SeqId};
//! use session_store::{CacheSchema, DialogState, ModelHash, SavedSequence, SavedToken, Snapshot};
//! use session_store::{SaveFormat, read_session, save_session};
//!
//! // What `KvCache::export` gives for two tokens of a model with one layer: a row of keys and of values for each.
//! let tensors = vec![KvTensor::new(KvKind::Key, 0, 1, 4, KvDtype::U8), KvTensor::new(KvKind::Value, 0, 1, 4, KvDtype::U8)];
//! let cells = (0..2).map(|pos| Cell { pos, rotated_pos: pos, seqs: 1 }).collect();
//! let image = KvImage {
//!     groups: vec![GroupImage::of_cells(cells)],
//!     next: vec![(SeqId(0), 2)],
//!     tensors: tensors.clone(),
//!     data: vec![vec![7; 8]; 2],
//!     ..KvImage::default()
//! };
//! let tokens = SavedToken::prompt(&[TokenId(256), TokenId(90)]);
//! let snapshot = Snapshot {
//!     model: ModelHash([1; 32]),
//!     image,
//!     sequences: vec![SavedSequence { seq: SeqId(0), tokens }],
//!     dialog: Some(DialogState { unprocessed: Some(TokenId(403)), ..DialogState::default() }),
//!     ..Snapshot::default()
//! };
//!
//! let folder = std::env::temp_dir().join(format!("session-{}", std::process::id()));
//! let report = save_session(&folder, &snapshot)?;
//! assert_eq!(report.without_genie, None); // libGenie's own files are there as well
//! let schema = CacheSchema { model: snapshot.model, tensors };
//! let restored = read_session(&folder, &schema, &[])?;
//! assert_eq!((restored.snapshot, restored.format), (snapshot, SaveFormat::OpenGenie));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in here
//!
//! | type | what |
//! |---|---|
//! | [`save_session`], [`read_session`] | a folder with all six files of a dialog; [`Restored`]: which of them count, and what differs |
//! | [`save_session_of_two`], [`read_second`] | the same with the cache of a second model beside it |
//! | [`Snapshot`] | cache, sequences and dialog as plain values; one file with checksums |
//! | [`GenieFolder`] | the folder that libGenie saves a dialog in |
//! | [`ForecastPrefix`] | the rows that forecast tokens see beside a dialog, from and to libGenie's cache file |
//! | [`write_handed_cache`], [`read_handed_cache`] | a cache left for another engine, in libGenie's file |
//! | [`PrefixStore`] | snapshots of prompt prefixes, found by their tokens, bounded in bytes |
//! | [`ModelHash`], [`CacheSchema`] | what a saved cache must match |
//! | [`StoreError`] | every refusal, with its reason as a value |
//!
//! # What it must never know
//!
//! A live cache, graphs, text, sampling: values in, values out. No `unsafe`.

#![forbid(unsafe_code)]

pub mod error;
mod forecast_prefix;
mod genie_folder;
mod handed_cache;
mod model_hash;
mod names;
mod prefix_store;
mod restored;
mod session;
mod snapshot;

pub use error::{Corruption, FolderFault, NoGenieForm, NotASnapshot, StoreError};
pub use forecast_prefix::ForecastPrefix;
pub use genie_folder::{GenieDialog, GenieFolder};
pub use handed_cache::{read_handed_cache, write_handed_cache};
pub use model_hash::{CacheSchema, ModelHash};
pub use names::{KV_MAGIC, VERSION};
pub use prefix_store::PrefixStore;
pub use restored::{RestoreNote, Restored, SaveFormat};
pub use session::{SaveReport, read_second, read_session, save_session, save_session_of_two};
pub use snapshot::{DialogState, GrammarState, SavedSequence, SavedToken, Snapshot};

//! The planner and the KV cache for graphs of fixed shape: which graph runs next, and where its past lies.
//!
//! ```
//! use genie_types::Variant;
//! use kvmanager::{KvForm, KvState, Policy, Variants, plan};
//!
//! let spec = |ar, cl| Variant::new(ar, cl).unwrap();
//! let variants = Variants::new([spec(1, 512), spec(8, 512), spec(64, 512)], KvForm::Concat, None)?;
//! let strategy = plan(&KvState::default(), &variants, 200, &Policy::Lenient)?;
//! let widths: Vec<_> = strategy.steps().iter().map(|s| (s.ar(), s.n_process)).collect();
//! assert_eq!(widths, [(64, 64), (64, 64), (64, 64), (8, 8)]);
//! # Ok::<(), kvmanager::PlanError>(())
//! ```
//!
//! # What is in here
//!
//! | module | words |
//! |---|---|
//! | [`plan`](mod@plan) | [`KvState`], [`Variants`], [`Policy`], [`plan()`], [`Plan`], [`InferenceStep`]: numbers in, numbers out |
//! | [`geometry`] | [`KvGeometry`], [`KvTensor`]: which cache tensors each split has, as plain data |
//! | [`mode`] | [`CacheMode`](mode::CacheMode), [`ModeKind`], [`Tile`](mode::Tile): where a row's bytes lie |
//! | [`moves`] | [`Copies`](moves::Copies): what moves, as data, before it does |
//! | [`manager`] | [`KvCache`], [`SplitGuard`]: the buffers, their jobs on worker threads, commit and rewind |
//! | [`cells`] | [`CellTable`], [`SeqId`]: which row holds which position of which sequences |
//! | [`group`] | [`CacheGroup`], [`LongContext`]: windows, rings, eviction by score, by group of layers |
//! | [`rope`] | [`RopeSpec`], [`ShiftLoss`]: moving keys to other positions, and what it costs |
//! | [`keydiff`] | [`KeyScorer`], [`KeyDiff`]: which keys are worth keeping |
//! | [`error`] | [`KvError`]; the planner's own is [`PlanError`] |
//!
//! # The life of a step
//!
//! ```
//! # use genie_types::{SplitIdx, Variant};
//! # use kvmanager::{KvDtype, KvForm, KvGeometry, KvCache, KvOptions, ModeKind, Policy, Variants};
//! # let spec = |ar, cl| Variant::new(ar, cl).unwrap();
//! let geometry = KvGeometry::uniform(2, 4, 32, KvDtype::U8); // 2 layers, 4 heads of 32
//! let variants = Variants::new([spec(1, 64), spec(8, 64), spec(1, 128), spec(8, 128)], KvForm::Concat, None)?;
//! let options = KvOptions { mode: ModeKind::SMART_MASK, n_threads: 2 };
//! let mut kv = KvCache::new(&geometry, variants, options)?;
//! for step in kv.plan(60, &Policy::Lenient)?.steps() {
//!     kv.prepare(step)?; // the shape of the step; rows move to its stride
//!     for split in (0..kv.n_splits()).map(SplitIdx) {
//!         for view in kv.split(split)?.views() {
//!             view.new.fill(7); // a graph reads `view.past` and writes `view.new`
//!         }
//!         kv.commit(split, step)?; // workers keep the new rows, while the next split runs
//!     }
//!     kv.advance(step)?;
//! }
//! kv.rewind(40)?;
//! assert_eq!((kv.state().n_past, kv.state().n_valid_kv), (40, 40));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Layouts, modes, costs, operations, file formats and errors are written down in `docs/kv-cache.md`.
//!
//! # What it must never know
//!
//! QNN, handles, tokens, text, files. It owns bytes and moves them; it never runs a graph. No `unsafe`.

#![forbid(unsafe_code)]

pub mod cells;
pub mod error;
pub mod geometry;
pub mod group;
pub mod keydiff;
pub mod manager;
pub mod mode;
pub mod moves;
pub mod plan;
pub mod rope;

mod buffer;
mod codec;
mod rows;
mod tensor_buf;
mod worker;

pub use cells::{Cell, CellTable, RowMove, SeqId};
pub use error::KvError;
pub use geometry::{KvDtype, KvGeometry, KvKind, KvLayout, KvTensor, SplitGeometry};
pub use group::{CacheGroup, LongContext};
pub use keydiff::{KeyDiff, KeyScorer};
pub use manager::{
    BatchToken, GroupImage, Holes, KvCache, KvImage, KvOptions, MovedBytes, Rebind, SplitGuard, TensorView,
};
pub use mode::ModeKind;
pub use plan::{
    Admission, BatchStep, Bound, CostTable, InferenceStep, KvForm, KvState, MaskCol, Plan, PlanError, Policy, Span,
    Variants, admit, plan, plan_batch,
};
pub use rope::{RopePairs, RopeSpec, ShiftLoss};
pub use worker::{JobEvent, JobWatch};

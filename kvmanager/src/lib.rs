//! The planner and the KV cache for graphs of fixed shape: which graph runs next, and where its past lies.
//!
//! ```
//! use genie_types::{SplitIdx, Variant};
//! use kvmanager::{Keep, KvCache, KvDtype, KvForm, KvGeometry, KvOptions, Policy, SeqId, Variants};
//!
//! let geometry = KvGeometry::uniform(2, 4, 32, KvDtype::U8); // 2 layers, 4 heads of 32
//! let variants = [Variant::new(1, 64)?, Variant::new(8, 64)?, Variant::new(1, 128)?, Variant::new(8, 128)?];
//! let variants = Variants::new(variants, KvForm::Concat, None)?;
//! let mut kv = KvCache::new(&geometry, variants, KvOptions { n_threads: 2, ..KvOptions::default() })?;
//!
//! let chat = SeqId(0);
//! let plan = kv.plan(&[(chat, 60)], &Policy::Lenient)?;
//! print!("{plan}"); // Step 0: AR-8 CL-64 n_past=0 n_kv=0 n_process=8 @ past_idx=0 new_idx=56 ...
//! for planned in plan.steps() {
//!     let mut step = kv.begin(planned)?; // the variant of the step; rows move to its stride
//!     for split in (0..step.n_splits()).map(SplitIdx) {
//!         for view in step.split(split)?.views() {
//!             view.new.fill(7); // a graph reads `view.past` and writes `view.new`
//!         }
//!         step.commit(split, Keep::All)?; // workers keep the new rows, while the next split runs
//!     }
//!     step.finish()?;
//! }
//! kv.rewind(chat, 40)?;
//! assert_eq!((kv.state().n_past, kv.state().n_valid_kv), (40, 40));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types
//!
//! | module | types |
//! |---|---|
//! | [`plan`](mod@plan) | [`Variants`], [`Policy`], [`plan()`], [`Plan`], [`InferenceStep`], [`Columns`]: numbers in, numbers out |
//! | [`geometry`] | [`KvGeometry`], [`KvTensor`], [`KvForm`]: which cache tensors each split has, as plain data |
//! | [`mode`] | [`CacheMode`](mode::CacheMode), [`ModeKind`], [`Tile`](mode::Tile): where a row's bytes lie |
//! | [`copy_plan`] | [`CopyPlan`](copy_plan::CopyPlan): what moves, as data, before it does |
//! | [`cache`] | [`KvCache`], [`Step`], [`SplitGuard`]: rows of sequences, steps, the buffers and their jobs |
//! | [`cells`] | [`CellTable`], [`SeqId`]: which row holds which position of which sequences |
//! | [`group`] | [`CacheGroup`], [`Eviction`]: windows, rings, eviction by score, by group of layers |
//! | [`rope`] | [`RopeSpec`], [`ShiftLoss`]: moving keys to other positions, and what it costs |
//! | [`keydiff`] | [`KeyScorer`], [`KeyDiff`]: which keys are worth keeping |
//! | `row_store` | [`RowStore`]: rows of one sequence in buffers of its own, for graphs that take two caches |
//! | [`memory`] | [`Memory`](memory::Memory), [`MemorySource`](memory::MemorySource): where the cache's blocks come from |
//! | [`error`] | [`KvError`], [`Reason`]; the planner's own is [`PlanError`], and [`Overflow`] what does not fit |
//!
//! # Plans alone
//!
//! ```
//! use genie_types::Variant;
//! use kvmanager::{KvForm, KvState, Policy, Request, Variants, plan};
//!
//! let variants = [Variant::new(1, 512)?, Variant::new(8, 512)?, Variant::new(64, 512)?];
//! let variants = Variants::new(variants, KvForm::Concat, None)?;
//! let request = Request { n_new: 200, ..Request::default() };
//! let plan = plan(&KvState::default(), &[request], &variants, &Policy::Lenient)?;
//! let widths: Vec<_> = plan.steps().iter().map(|s| (s.ar(), s.n_process())).collect();
//! assert_eq!(widths, [(64, 64), (64, 64), (64, 64), (8, 8)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Layouts, modes, costs, operations, file formats and errors are described in `docs/kv-cache.md`; numbered programs are in `examples/`.
//!
//! # What it must never know
//!
//! QNN, handles, tokens, text, files. It owns bytes and moves them; it never runs a graph. No `unsafe`.

#![forbid(unsafe_code)]

pub mod cache;
pub mod cells;
pub mod copy_plan;
pub mod error;
pub mod geometry;
pub mod group;
pub mod keydiff;
pub mod memory;
pub mod mode;
pub mod plan;
pub mod rope;

mod buffer;
mod codec;
mod returns;
mod row_store;
mod rows;
mod seq_id;
mod series;
mod tensor_buf;
mod worker;

pub use cache::{
    GroupImage, HolePolicy, Keep, KvCache, KvImage, KvOptions, MovedBytes, OnRebind, OwnRows, Rebind, ScoredHead,
    ScoredRows, SplitGuard, Step, VisibleColumn, check_shapes,
};
pub use cells::{Cell, CellTable, PAGE, RowMove, SeqId};
pub use error::{KvError, Reason};
pub use geometry::{KvDtype, KvForm, KvGeometry, KvKind, KvLayout, KvTensor, SplitGeometry};
pub use group::{CacheGroup, Eviction};
pub use keydiff::{HeadKeys, KeyDiff, KeyScorer};
pub use mode::ModeKind;
pub use plan::{
    Admission, Column, Columns, ContextLimit, CostTable, FmtWriter, GroupRows, InferenceStep, KvState, LogitsRequest,
    MaskCol, Overflow, Plan, PlanError, Policy, Request, SequenceSlice, Tree, TreeColumn, TreeFault, Variants, admit,
    plan,
};
pub use rope::{RopePairs, RopeSpec, ShiftLoss};
pub use row_store::RowStore;
pub use tensor_buf::TensorView;
pub use worker::{JobEvent, JobWatch};

//! Plain data types that two or more crates share. No dependencies; no logic beyond what a value says of itself.
//!
//! ```
//! use genie_types::Variant;
//!
//! let variant = Variant::new(32, 512).unwrap();
//! assert_eq!(variant.past_capacity(), 480);
//! assert_eq!(variant.to_string(), "ar32_cl512");
//! ```
//!
//! # What is in here
//!
//! | module | types |
//! |---|---|
//! | [`variant`] | [`Ar`], [`Cl`], [`Variant`]: which fixed shape a graph was compiled for |
//! | [`tensor`] | [`TensorInfo`], [`GraphInfo`]: what a context binary says about itself |
//! | [`dtype`] | [`Dtype`]: element types and their widths |
//! | [`quant`] | [`Quant`]: how quantised values become numbers |
//! | [`cache`] | [`KvTensor`], [`KvKind`], [`KvForm`], [`KvLayout`], [`KvDtype`]: cache tensors, and how graphs take their past |
//! | [`rope`] | [`RopeConfig`], [`RopeScaling`]: rotary angles |
//! | [`positions`] | [`PositionKind`]: by which rule positions enter a model |
//! | [`ids`] | [`TokenId`], [`LayerIdx`], [`SplitIdx`], [`GraphIdx`] |
//!
//! # What it must never know
//!
//! Handles, files, execution: a value here could be printed and typed in again.

#![forbid(unsafe_code)]

pub mod cache;
pub mod dtype;
pub mod ids;
pub mod positions;
pub mod quant;
pub mod rope;
pub mod tensor;
pub mod variant;

pub use cache::{KV_BLOCK, KvDtype, KvForm, KvKind, KvLayout, KvTensor};
pub use dtype::Dtype;
pub use ids::{GraphIdx, LayerIdx, SplitIdx, TokenId};
pub use positions::PositionKind;
pub use quant::Quant;
pub use rope::{Llama3Scaling, LongRopeScaling, RopeAngles, RopeConfig, RopeProblem, RopeScaling, YarnScaling};
pub use tensor::{DataFormat, GraphInfo, TensorInfo};
pub use variant::{Ar, Cl, Variant, VariantError};

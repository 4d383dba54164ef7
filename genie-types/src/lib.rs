//! The plain words that two or more of our crates share. No logic, no dependencies.
//!
//! ```
//! use genie_types::{Ar, Cl, VariantSpec};
//!
//! let spec = VariantSpec::new(Ar::new(32).unwrap(), Cl::new(512).unwrap()).unwrap();
//! assert_eq!(spec.past_capacity(), 480);
//! assert_eq!(spec.to_string(), "ar32_cl512");
//! ```
//!
//! # What is in here
//!
//! | module | words |
//! |---|---|
//! | [`variant`] | [`Ar`], [`Cl`], [`VariantSpec`]: which fixed shape a graph was compiled for |
//! | [`tensor`] | [`TensorInfo`], [`GraphInfo`]: what a context binary says about itself |
//! | [`dtype`] | [`Dtype`]: element types and their widths |
//! | [`quant`] | [`Quant`]: how codes become numbers |
//! | [`ids`] | [`TokenId`], [`LayerIdx`], [`SplitIdx`], [`GraphIdx`] |
//!
//! # What it must never know
//!
//! Handles, files, execution: a value here could be printed and typed in again.

#![forbid(unsafe_code)]

pub mod dtype;
pub mod ids;
pub mod quant;
pub mod tensor;
pub mod variant;

pub use dtype::Dtype;
pub use ids::{GraphIdx, LayerIdx, SplitIdx, TokenId};
pub use quant::Quant;
pub use tensor::{DataFormat, GraphInfo, TensorInfo};
pub use variant::{Ar, Cl, VariantError, VariantSpec};

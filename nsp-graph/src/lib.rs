//! From tensor lists to meaning: what each graph of a bundle is for, and which tensor is which.
//!
//! ```
//! use genie_types::{Dtype, GraphInfo, TensorInfo};
//! use nsp_graph::{BinaryGraphs, Options, analyze};
//!
//! let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
//! let graph = GraphInfo {
//!     name: "ar4_cl16_1_of_1".into(),
//!     inputs: vec![
//!         t("input_ids", &[1, 4], Dtype::I32),
//!         t("attention_mask", &[1, 1, 4, 16], Dtype::F16),
//!         t("past_key_0_in", &[2, 1, 8, 12], Dtype::F16),
//!         t("past_value_0_in", &[2, 1, 12, 8], Dtype::F16),
//!     ],
//!     outputs: vec![
//!         t("past_key_0_out", &[2, 1, 8, 4], Dtype::F16),
//!         t("past_value_0_out", &[2, 1, 4, 8], Dtype::F16),
//!         t("logits", &[1, 4, 100], Dtype::F32),
//!     ],
//! };
//! let bundle = [BinaryGraphs { source: "model.bin".into(), graphs: vec![graph] }];
//! let layout = analyze(&bundle, &Options::default())?;
//! assert_eq!((layout.variants[0].to_string(), layout.vocab_size), ("ar4_cl16".into(), 100));
//! # Ok::<(), nsp_graph::LayoutError>(())
//! ```
//!
//! # What is in here, in reading order
//!
//! | module | holds |
//! |---|---|
//! | [`names`] | the tensor names of the contract, and how cache tensors and graphs are named |
//! | [`layout`] | [`ModelLayout`] and its parts: what [`analyze`] returns |
//! | `signature` | one graph: roles of its tensors, kind, AR and CL; `check` holds it against the contract |
//! | `order` | graphs into splits, splits into execution order |
//! | `kv` | cache geometry, the same in all variants; concat or scatter form |
//! | `wiring` | tensors that go from one split to a later one |
//! | `weights` | weights that an LM head takes as inputs |
//! | [`pd`] | graphs that carry a chunk of one prompt and a decode row of another request |
//! | [`error`] | one variant for each way to break the contract |
//!
//! # What it must never know
//!
//! Handles, buffers, execution. It sees [`genie_types::GraphInfo`] values and nothing else.

#![forbid(unsafe_code)]

mod alphas;
mod analyze;
mod binary;
mod check;
pub mod error;
mod kv;
pub mod layout;
pub mod names;
mod order;
pub mod pd;
mod signature;
mod weights;
mod wiring;

#[cfg(test)]
mod tests;

pub use analyze::{GroupOptions, Options, analyze};
pub use binary::BinaryGraphs;
pub use error::{GraphAt, LayoutError, Near};
pub use layout::{
    CacheTensor, GraphKind, GraphLayout, GroupLayout, InputRole, KvIdx, ModelInput, ModelLayout, Note, OutputRole,
    RopeTable, Split, WeightInput, Wire, WireIdx,
};

//! The handles against the recording fake of [`crate::fake`].

mod building;
mod lifetimes;
mod running;

use genie_types::{Dtype, TensorInfo};

use crate::*;

/// The graph name of the fake's binaries.
const GRAPH: &str = "ar4_cl16_1_of_1";

fn f32_tensor(name: &str, dims: impl Into<Vec<usize>>) -> TensorInfo {
    TensorInfo::new(name, dims, Dtype::F32)
}

//! A past in blocks for graphs of tests, its rows as ops read them, and noise for all that such a graph takes.

use proptest::prelude::*;

use crate::ir::{Dtype, Quant, Role, SourceGraph, TensorId};
use crate::testing::{Build, Noise, bytes_of};

/// What a graph computes in.
pub(super) fn float() -> impl Strategy<Value = Dtype> {
    prop_oneof![Just(Dtype::F32), Just(Dtype::F16)]
}

/// Inputs `past_NAME` and `past_NAME_scale` of `past` rows of `kv` heads of `blocks` blocks, and the rows that they stand for,
/// `[kv, 1, past, 32 * blocks]`.
pub(super) fn past_rows(
    b: &mut Build,
    name: &str,
    [kv, past, blocks]: [u32; 3],
    dtype: Dtype,
    offset: i32,
) -> TensorId {
    let (dims, split) = ([kv, 1, past, 32 * blocks], [kv, past, blocks, 32]);
    let quant = Quant::PerTensor { scale: 1.0, offset };
    let numbers = b.tensor(&format!("past_{name}"), &dims, Dtype::UFixed8, quant, Role::Input);
    let scales = b.input(&format!("past_{name}_scale"), &[kv, 1, past, blocks], Dtype::F16);
    let float = b.op("Convert", &[], &[numbers], &dims, dtype);
    let float = b.op("Reshape", &[], &[float], &split, dtype);
    let scales = b.op("Convert", &[], &[scales], &[kv, 1, past, blocks], dtype);
    let scales = b.op("Reshape", &[], &[scales], &[kv, past, blocks, 1], dtype);
    let rows = b.op("ElementWiseMultiply", &[], &[float, scales], &split, dtype);
    b.op("Reshape", &[], &[rows], &dims, dtype)
}

/// Noise for every input: bytes over their whole range, scales from 0 to 0.01, other floats from -1 to 1.
pub(super) fn noise(graph: &SourceGraph, seed: u64) -> Vec<Vec<u8>> {
    let mut values = Noise(seed);
    let mut of = |id| {
        let tensor = graph.tensor(id);
        let numbers = values.floats(tensor.n_elems());
        match tensor.dtype {
            Dtype::UFixed8 => numbers.iter().map(|x| (x * 127.0 + 128.0) as u8).collect(),
            _ if tensor.name.ends_with("_scale") => {
                bytes_of(tensor.dtype, &numbers.iter().map(|x| (x + 1.0) / 200.0).collect::<Vec<f32>>())
            }
            dtype => bytes_of(dtype, &numbers),
        }
    };
    graph.inputs().map(&mut of).collect()
}

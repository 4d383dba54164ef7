//! Op configs that break a rule, with what the host says about each and whether the emulator minds.
//!
//! A table of cases: it has as many lines as it takes.

use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use qnn_api::{Backend, Context, ContextOptions, Error, GraphOptions, HtpGraphOptions, Param, TensorKind};

/// One op config; operands are `x0`, `x1`, ..., outputs `y0`, ..., the node is `node`.
#[derive(Clone, Debug)]
pub struct Bad {
    /// QNN's op.
    pub op: &'static str,
    /// What is wrong.
    pub case: &'static str,
    /// Types and extents of the operands.
    pub inputs: Vec<(Dtype, Vec<usize>)>,
    /// Parameters.
    pub params: Vec<(&'static str, Param)>,
    /// Types and extents of the outputs.
    pub outputs: Vec<(Dtype, Vec<usize>)>,
    /// What the host says, after the node and its op.
    pub says: &'static str,
    /// The emulator takes it all the same.
    pub htp_takes: bool,
}

impl Bad {
    /// Composes and finalises the graph.
    ///
    /// # Errors
    /// What the backend refuses: that is what it is for.
    pub fn compose(&self, backend: &Arc<Backend>) -> Result<(), Error> {
        let context = Context::create(backend, &ContextOptions::default())?;
        let htp = HtpGraphOptions { float16: true, ..Default::default() };
        let mut graph = context.compose("bad", &GraphOptions { htp: Some(htp), ..Default::default() })?;
        let mut declare = |list: &[(Dtype, Vec<usize>)], letter: char, kind: TensorKind| {
            let one = |(i, (dtype, dims)): (usize, &(Dtype, Vec<usize>))| {
                graph.tensor(&TensorInfo::new(format!("{letter}{i}"), dims.clone(), *dtype), kind)
            };
            list.iter().enumerate().map(one).collect::<Result<Vec<_>, Error>>()
        };
        let inputs = declare(&self.inputs, 'x', TensorKind::Input)?;
        let outputs = declare(&self.outputs, 'y', TensorKind::Output)?;
        graph.node("node", self.op, &self.params, &inputs, &outputs)?;
        graph.finalize().map(drop)
    }
}

/// What the emulator takes and finalises all the same.
const HTP_TAKES: &[(&str, &str)] = &[
    ("Concat", "extents"),
    ("ElementWiseAdd", "a parameter of another op"),
    ("ElementWiseAdd", "extents"),
    ("ElementWiseAdd", "types"),
    ("FullyConnected", "bias"),
    ("FullyConnected", "inner extents"),
    ("MatMul", "batches"),
    ("MatMul", "inner extents"),
    ("Quantize", "no encoding"),
    ("ReduceSum", "axis"),
    ("Reshape", "elements"),
    ("RmsNorm", "gamma"),
    ("RotaryEmbedding", "tables of another width"),
    ("ScatterElements", "updates"),
    ("Softmax", "axis is no number"),
    ("Split", "a cut beyond the end"),
    ("StridedSlice", "no ranges for an axis"),
    ("TopK", "more than there are"),
    ("Transpose", "an axis twice"),
];

const F: Dtype = Dtype::F16;
const I: Dtype = Dtype::I32;

fn bad(
    op: &'static str,
    case: &'static str,
    inputs: &[(Dtype, &[usize])],
    params: Vec<(&'static str, Param)>,
    outputs: &[(Dtype, &[usize])],
    says: &'static str,
) -> Bad {
    let owned = |list: &[(Dtype, &[usize])]| list.iter().map(|(dtype, dims)| (*dtype, dims.to_vec())).collect();
    Bad {
        op,
        case,
        inputs: owned(inputs),
        params,
        outputs: owned(outputs),
        says,
        htp_takes: HTP_TAKES.contains(&(op, case)),
    }
}

fn list(data: &[u32]) -> Param {
    Param::U32Tensor { dims: vec![data.len()], data: data.to_vec() }
}

fn no_transpose() -> Vec<(&'static str, Param)> {
    vec![("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(false))]
}

/// All cases.
pub fn all() -> Vec<Bad> {
    let x: &[usize] = &[1, 6, 32];
    vec![
        bad(
            "Silu",
            "no such op",
            &[(F, x)],
            vec![],
            &[(F, x)],
            "op type: expected an op this backend has, found `Silu`",
        ),
        bad(
            "FullyConnected",
            "inner extents",
            &[(F, &[4, 64]), (F, &[40, 48])],
            vec![],
            &[(F, &[4, 40])],
            "input 1 `x1`: expected weights [out, 64], found [40, 48]",
        ),
        bad(
            "FullyConnected",
            "bias",
            &[(F, &[4, 64]), (F, &[40, 64]), (F, &[41])],
            vec![],
            &[(F, &[4, 40])],
            "input 2 `x2`: expected bias [40], found [41]",
        ),
        bad(
            "FullyConnected",
            "output",
            &[(F, &[4, 64]), (F, &[40, 64])],
            vec![],
            &[(F, &[4, 41])],
            "output 0 `y0`: expected dims [4, 40], found [4, 41]",
        ),
        bad(
            "FullyConnected",
            "weights left out",
            &[(F, &[4, 64])],
            vec![],
            &[(F, &[4, 40])],
            "number of inputs: expected 2 to 3, found 1",
        ),
        bad(
            "MatMul",
            "inner extents",
            &[(F, &[4, 32]), (F, &[31, 8])],
            no_transpose(),
            &[(F, &[4, 8])],
            "input 1 `x1`: expected inner extent 32 as input 0 [4, 32], found 31 in [31, 8]",
        ),
        bad(
            "MatMul",
            "batches",
            &[(F, &[3, 4, 32]), (F, &[2, 32, 8])],
            no_transpose(),
            &[(F, &[3, 4, 8])],
            "input 1 `x1`: expected batch dims that broadcast with [3, 4, 32], found [2, 32, 8]",
        ),
        bad(
            "Conv2d",
            "no pads",
            &[(F, &[1, 1, 5, 8]), (F, &[1, 1, 8, 4])],
            vec![("stride", list(&[1, 1]))],
            &[(F, &[1, 1, 5, 4])],
            "parameter `pad_amount`: expected it given, found none",
        ),
        bad(
            "RmsNorm",
            "not the last axis",
            &[(F, x), (F, &[6])],
            vec![("epsilon", Param::F32(1e-6)), ("axes", list(&[1]))],
            &[(F, x)],
            "parameter `axes`: expected [2], the last axis, found [1]",
        ),
        bad(
            "RmsNorm",
            "gamma",
            &[(F, x), (F, &[31])],
            vec![("epsilon", Param::F32(1e-6)), ("axes", list(&[2]))],
            &[(F, x)],
            "input 1 `x1`: expected dims [32], found [31]",
        ),
        bad(
            "ElementWiseAdd",
            "extents",
            &[(F, x), (F, &[5])],
            vec![],
            &[(F, x)],
            "input 1 `x1`: expected dims that broadcast with [1, 6, 32], found [5]",
        ),
        bad(
            "ElementWiseAdd",
            "types",
            &[(F, x), (I, x)],
            vec![],
            &[(F, x)],
            "input 1 `x1`: expected F16 as input 0, found I32",
        ),
        bad(
            "ElementWiseAdd",
            "a parameter of another op",
            &[(F, x), (F, x)],
            vec![("axis", Param::U32(0))],
            &[(F, x)],
            "parameters: expected no parameters, found `axis`",
        ),
        bad(
            "ElementWiseNeuron",
            "operation",
            &[(F, x)],
            vec![("operation", Param::U32(9))],
            &[(F, x)],
            "parameter `operation`: expected 0 to 8, found 9",
        ),
        bad(
            "ElementWiseNeuron",
            "no operation",
            &[(F, x)],
            vec![],
            &[(F, x)],
            "parameter `operation`: expected it given, found none",
        ),
        bad(
            "ElementWiseSelect",
            "condition",
            &[(F, x), (F, x), (F, x)],
            vec![],
            &[(F, x)],
            "input 0 `x0`: expected Bool8, found F16",
        ),
        bad(
            "Softmax",
            "axis",
            &[(F, x)],
            vec![("axis", Param::U32(3))],
            &[(F, x)],
            "parameter `axis`: expected an axis below rank 3, found 3",
        ),
        bad(
            "Softmax",
            "axis is no number",
            &[(F, x)],
            vec![("axis", Param::F32(2.0))],
            &[(F, x)],
            "parameter `axis`: expected an integer scalar of at least 0, found F32(2.0)",
        ),
        bad(
            "Concat",
            "extents",
            &[(F, x), (F, &[1, 5, 32])],
            vec![("axis", Param::U32(2))],
            &[(F, &[1, 6, 64])],
            "input 1 `x1`: expected the dims [1, 6, 32] off axis 2, found [1, 5, 32]",
        ),
        bad(
            "Split",
            "a cut beyond the end",
            &[(F, x)],
            vec![("axis", Param::U32(2)), ("split_index", list(&[40]))],
            &[(F, &[1, 6, 16]), (F, &[1, 6, 16])],
            "parameter `split_index`: expected rising cuts inside 1..32, found [40]",
        ),
        bad(
            "StridedSlice",
            "no ranges for an axis",
            &[(F, x)],
            vec![("ranges", Param::I32Tensor { dims: vec![2, 3], data: vec![0, 1, 1, 0, 6, 1] })],
            &[(F, x)],
            "parameter `ranges`: expected dims [3, 3], found [2, 3]",
        ),
        bad(
            "Reshape",
            "elements",
            &[(F, x)],
            vec![],
            &[(F, &[6, 31])],
            "output 0 `y0`: expected 192 elements as [1, 6, 32] has, found [6, 31]",
        ),
        bad(
            "Transpose",
            "an axis twice",
            &[(F, x)],
            vec![("perm", list(&[0, 2, 2]))],
            &[(F, x)],
            "parameter `perm`: expected distinct axes below rank 3, found [0, 2, 2]",
        ),
        bad(
            "Gather",
            "index of floats",
            &[(F, &[9, 8]), (F, &[4])],
            vec![("axis", Param::I32(0))],
            &[(F, &[4, 8])],
            "input 1 `x1`: expected I32 or U32, found F16",
        ),
        bad(
            "ScatterElements",
            "updates",
            &[(F, &[10, 12]), (I, &[10, 4]), (F, &[10, 5])],
            vec![("axis", Param::U32(1))],
            &[(F, &[10, 12])],
            "input 2 `x2`: expected dims [10, 4] as the index, found [10, 5]",
        ),
        bad(
            "ReduceSum",
            "axis",
            &[(F, x)],
            vec![("axes", list(&[3]))],
            &[(F, &[1, 6])],
            "parameter `axes`: expected distinct axes below rank 3, found [3]",
        ),
        bad(
            "TopK",
            "more than there are",
            &[(F, x)],
            vec![("k", Param::U32(33))],
            &[(F, &[1, 6, 33]), (Dtype::U32, &[1, 6, 33])],
            "parameter `k`: expected 1 to 32, found 33",
        ),
        bad(
            "RotaryEmbedding",
            "tables of another width",
            &[(F, &[1, 4, 5, 32]), (F, &[1, 5, 8]), (F, &[1, 5, 8])],
            vec![("interleaved", Param::Bool(false)), ("rotary_embedding_dim", Param::U32(32))],
            &[(F, &[1, 4, 5, 32])],
            "input 1 `x1`: expected [1, 5, 16], found [1, 5, 8]",
        ),
        bad(
            "Quantize",
            "no encoding",
            &[(Dtype::F32, x)],
            vec![],
            &[(Dtype::UFixed16, x)],
            "output 0 `y0`: expected an encoding for its fixed point, found none",
        ),
    ]
}

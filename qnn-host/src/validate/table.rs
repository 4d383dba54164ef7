//! The ops this backend has, and what each accepts. One row an op, hence so many lines.
//!
//! Invariant: names and operand order are QNN's (package `qti.aisw`). Rows of class `Moved` take every type, since bytes
//! are only carried; the other rows are those documented for the HTP, so a graph that passes here has a chance there.
//! Source: facts/qnn-ops.md.

use super::spec::ParamKind::{Bool, F32 as Float32, Int, Ints, Scalar, UInt};
use super::spec::{OpSpec, ParamKind, ParamSpec, Row};
use super::{index_ops, math_ops, move_ops};

/// Bits of element types, in the order of `Dtype::ALL`.
mod bits {
    pub(super) const INT8: u32 = 1;
    pub(super) const INT16: u32 = 1 << 1;
    pub(super) const INT32: u32 = 1 << 2;
    pub(super) const INT64: u32 = 1 << 3;
    pub(super) const UINT8: u32 = 1 << 4;
    pub(super) const UINT16: u32 = 1 << 5;
    pub(super) const UINT32: u32 = 1 << 6;
    pub(super) const UINT64: u32 = 1 << 7;
    pub(super) const F16: u32 = 1 << 8;
    pub(super) const F32: u32 = 1 << 9;
    pub(super) const SFIX4: u32 = 1 << 10;
    pub(super) const SFIX8: u32 = 1 << 11;
    pub(super) const SFIX16: u32 = 1 << 12;
    pub(super) const SFIX32: u32 = 1 << 13;
    pub(super) const UFIX8: u32 = 1 << 15;
    pub(super) const UFIX16: u32 = 1 << 16;
    pub(super) const UFIX32: u32 = 1 << 17;
    pub(super) const BOOL8: u32 = 1 << 18;
    pub(super) const FLOAT: u32 = F16 | F32;
    pub(super) const INDEX: u32 = INT32 | UINT32;
    /// Whatever has whole bytes.
    pub(super) const ALL: u32 = INT8
        | INT16
        | INT32
        | INT64
        | UINT8
        | UINT16
        | UINT32
        | UINT64
        | FLOAT
        | SFIX8
        | SFIX16
        | SFIX32
        | UFIX8
        | UFIX16
        | UFIX32
        | BOOL8;
}

const MANY: usize = usize::MAX;

const fn req(name: &'static str, kind: ParamKind) -> ParamSpec {
    ParamSpec { name, kind, required: true }
}

const fn opt(name: &'static str, kind: ParamKind) -> ParamSpec {
    ParamSpec { name, kind, required: false }
}

/// `row!(Class: [types of input 0] [input 1] ... => [types of output 0] ...)`.
macro_rules! row {
    ($class:ident: $([$($i:ident)+])+ => $([$($o:ident)+])+) => {
        Row {
            class: super::spec::Class::$class,
            inputs: &[$($(bits::$i)|+),+],
            outputs: &[$($(bits::$o)|+),+],
        }
    };
}

/// Element by element, one input, floats.
const fn float_unary(name: &'static str, params: &'static [ParamSpec]) -> OpSpec {
    OpSpec {
        name,
        inputs: (1, 1),
        outputs: (1, 1),
        params,
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::same,
    }
}

/// Element by element, one input, floats or integers.
const fn number_unary(name: &'static str) -> OpSpec {
    OpSpec {
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] => [INT32]),
        ],
        ..float_unary(name, &[])
    }
}

/// Element by element, two inputs that broadcast, floats or integers.
const fn arithmetic(name: &'static str) -> OpSpec {
    OpSpec {
        name,
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b11,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [UINT32 INT32] [UINT32 INT32] => [UINT32 INT32]),
        ],
        shapes: math_ops::broadcast,
    }
}

/// Element by element, two inputs that broadcast, an answer of yes or no.
const fn comparison(name: &'static str) -> OpSpec {
    OpSpec {
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [BOOL8]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [BOOL8 UFIX8 SFIX8]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [BOOL8 UFIX8 SFIX8]),
            row!(Plain: [BOOL8 UINT32 INT32] [BOOL8 UINT32 INT32] => [BOOL8]),
        ],
        ..arithmetic(name)
    }
}

/// Element by element, booleans.
const fn logic(name: &'static str) -> OpSpec {
    OpSpec { rows: &[row!(Plain: [BOOL8] [BOOL8] => [BOOL8])], ..arithmetic(name) }
}

const REDUCE: &[ParamSpec] = &[req("axes", Ints), opt("keep_dims", Bool)];

/// Over some axes.
const fn reduction(name: &'static str) -> OpSpec {
    OpSpec { params: REDUCE, shapes: math_ops::reduce, ..number_unary(name) }
}

/// Every op, grouped as in the facts; the kin of documented ops come last.
pub static OPS: &[OpSpec] = &[
    OpSpec {
        name: "Gather",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[req("axis", Int)],
        same_in: 0b1,
        // The output's type is `index_ops::gather`'s to check.
        same_out: 0,
        rows: &[row!(Moved: [ALL SFIX4] [INDEX] => [ALL])],
        shapes: index_ops::gather,
    },
    OpSpec {
        name: "FullyConnected",
        inputs: (2, 3),
        outputs: (1, 1),
        params: &[opt("keep_dims", Bool)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [F16 SFIX4 SFIX8 F32] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16] [UFIX8 SFIX32] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] [UFIX8 SFIX32] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::fully_connected,
    },
    OpSpec {
        name: "MatMul",
        inputs: (2, 3),
        outputs: (1, 1),
        params: &[opt("transpose_in0", Bool), opt("transpose_in1", Bool)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [F16 SFIX8 F32] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16] [UFIX8 SFIX32] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] [UFIX8 SFIX32] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::mat_mul,
    },
    OpSpec {
        name: "Conv2d",
        inputs: (2, 3),
        outputs: (1, 1),
        params: &[
            req("stride", Ints),
            req("pad_amount", Ints),
            opt("group", UInt),
            opt("dilation", Ints),
            opt("reuse_sparse_indices", Bool),
        ],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [F16 SFIX8 F32] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16] [UFIX8 SFIX32] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] [UFIX8 SFIX32] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::conv2d,
    },
    OpSpec {
        name: "RmsNorm",
        inputs: (1, 3),
        outputs: (1, 1),
        params: &[opt("epsilon", Float32), req("axes", Ints)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX16 UFIX8] [UFIX16 UFIX8] => [UFIX16]),
            row!(Fixed: [UFIX8] [UFIX8] [UFIX8 SFIX32] => [UFIX8]),
        ],
        shapes: math_ops::norm,
    },
    OpSpec {
        name: "LayerNorm",
        inputs: (1, 3),
        outputs: (1, 1),
        params: &[opt("epsilon", Float32), req("axes", Ints)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX8 UFIX16 SFIX16] [UFIX8 UFIX16 SFIX16 SFIX32] => [UFIX16]),
            row!(Fixed: [UFIX8] [UFIX8] [UFIX8 SFIX32] => [UFIX8]),
        ],
        shapes: math_ops::norm,
    },
    OpSpec {
        name: "ElementWiseAdd",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b11,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] [INT32] => [INT32]),
        ],
        shapes: math_ops::broadcast,
    },
    OpSpec {
        name: "ElementWiseMultiply",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b11,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INDEX] [INDEX] => [INDEX]),
        ],
        shapes: math_ops::broadcast,
    },
    OpSpec {
        name: "ElementWiseSubtract",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b11,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] [INT32] => [INT32]),
        ],
        shapes: math_ops::broadcast,
    },
    OpSpec {
        name: "ElementWiseDivide",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b11,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] [INT32] => [INT32]),
        ],
        shapes: math_ops::broadcast,
    },
    OpSpec {
        name: "ElementWiseNeuron",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[
            req("operation", UInt),
            opt("alpha", Float32),
            opt("beta", Float32),
            opt("min_value", Float32),
            opt("max_value", Float32),
            opt("threshold", Float32),
        ],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] => [INT32]),
        ],
        shapes: math_ops::neuron,
    },
    OpSpec {
        name: "ElementWiseUnary",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("operation", UInt)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [BOOL8] => [BOOL8]),
        ],
        shapes: math_ops::unary,
    },
    OpSpec {
        name: "ElementWiseBinary",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[req("operation", UInt)],
        same_in: 0b1,
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [BOOL8 FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16 INT32] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8 UFIX16 SFIX16 INT32] => [UFIX8 SFIX8 BOOL8]),
            row!(Plain: [BOOL8 INDEX] [BOOL8 INDEX] => [BOOL8 UFIX8 SFIX8 INDEX]),
        ],
        shapes: math_ops::binary,
    },
    OpSpec {
        name: "ElementWiseSelect",
        inputs: (3, 3),
        outputs: (1, 1),
        params: &[],
        same_in: 0,
        same_out: 0,
        rows: &[
            row!(Float: [BOOL8] [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX8 SFIX8 BOOL8 INT32] [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8 BOOL8 INT32] [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [UFIX8 SFIX8 BOOL8 INT32] [INT32] [INT32] => [INT32]),
        ],
        shapes: math_ops::select,
    },
    OpSpec {
        name: "Softmax",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[opt("axis", UInt), opt("beta", Float32)],
        same_in: 0b1,
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16 F32]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 F32 SFIX8]),
        ],
        shapes: math_ops::softmax,
    },
    OpSpec {
        name: "LogSoftmax",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[opt("axis", UInt), opt("beta", Float32)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Float: [FLOAT] => [FLOAT]), row!(Fixed: [UFIX16] => [UFIX16]), row!(Fixed: [UFIX8] => [UFIX8])],
        shapes: math_ops::softmax,
    },
    OpSpec {
        name: "Concat",
        inputs: (1, MANY),
        outputs: (1, 1),
        params: &[opt("axis", UInt)],
        same_in: 0xff,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::concat,
    },
    OpSpec {
        name: "Split",
        inputs: (1, 1),
        outputs: (1, MANY),
        params: &[req("axis", UInt), req("split_index", Ints)],
        same_in: 0b1,
        same_out: 0xff,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::split,
    },
    OpSpec {
        name: "StridedSlice",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[
            req("ranges", Ints),
            opt("begin_mask", UInt),
            opt("end_mask", UInt),
            opt("shrink_axes", UInt),
            opt("new_axes_mask", UInt),
        ],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::strided_slice,
    },
    OpSpec {
        name: "Reshape",
        inputs: (1, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] [INDEX] => [ALL])],
        shapes: move_ops::reshape,
    },
    OpSpec {
        name: "Transpose",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("perm", Ints)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::transpose,
    },
    OpSpec {
        name: "Convert",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[opt("dynamic_input_data", Bool), opt("dynamic_output_data", Bool)],
        same_in: 0b1,
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] => [UFIX8 UFIX16 FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16 FLOAT]),
            row!(Fixed: [UINT8 UFIX8 SFIX8] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16 FLOAT]),
            row!(Plain: [BOOL8] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16]),
        ],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "Cast",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] => [INT32 FLOAT]),
            row!(Fixed: [UFIX16] => [UINT8 UFIX8 SFIX8 BOOL8 UFIX16]),
            row!(Fixed: [UINT8 UFIX8 SFIX8] => [UINT8 UFIX8 SFIX8 BOOL8 INDEX F32]),
            row!(Plain: [BOOL8 INDEX INT64 F32] => [UINT8 UFIX8 SFIX8 BOOL8 INDEX F32 UFIX16 INT64 F16]),
        ],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "Quantize",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0,
        rows: &[row!(Fixed: [F32] => [UFIX16]), row!(Fixed: [F32] => [UFIX8 SFIX8])],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "Dequantize",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0,
        rows: &[row!(Fixed: [UFIX16] => [FLOAT]), row!(Fixed: [UFIX8 SFIX8] => [FLOAT])],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "Sigmoid",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "Gelu",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "Relu",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "Tanh",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "ScatterNd",
        inputs: (3, 3),
        outputs: (1, 1),
        params: &[opt("reduction", UInt)],
        same_in: 0b101,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] [INDEX] [ALL] => [ALL])],
        shapes: index_ops::scatter_nd,
    },
    OpSpec {
        name: "ScatterElements",
        inputs: (3, 3),
        outputs: (1, 1),
        params: &[opt("axis", UInt), opt("reduction", UInt)],
        same_in: 0b101,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] [INDEX] [ALL] => [ALL])],
        shapes: index_ops::scatter_elements,
    },
    OpSpec {
        name: "ReduceMean",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("axes", Ints), opt("keep_dims", Bool)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::reduce,
    },
    OpSpec {
        name: "ReduceSum",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("axes", Ints), opt("keep_dims", Bool)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] => [INT32]),
        ],
        shapes: math_ops::reduce,
    },
    OpSpec {
        name: "ReduceMax",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("axes", Ints), opt("keep_dims", Bool)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::reduce,
    },
    OpSpec {
        name: "TopK",
        inputs: (1, 1),
        outputs: (2, 2),
        params: &[req("k", UInt), opt("largest", Bool)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT] [INDEX]),
            row!(Fixed: [UFIX16] => [UFIX16] [INDEX]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8] [INDEX]),
            row!(Plain: [INT32] => [INT32] [INDEX]),
        ],
        shapes: index_ops::top_k,
    },
    OpSpec {
        name: "Argmax",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("axis", UInt), opt("keep_dims", Bool)],
        same_in: 0b1,
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] => [INT32]),
            row!(Fixed: [UFIX16] => [INDEX]),
            row!(Fixed: [UFIX8 SFIX8] => [INDEX]),
            row!(Plain: [INDEX] => [INDEX]),
        ],
        shapes: index_ops::argmax,
    },
    OpSpec {
        name: "Tile",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("multiples", Ints)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::tile,
    },
    OpSpec {
        name: "ExpandDims",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[opt("axis", UInt), opt("axes", Ints)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::expand_dims,
    },
    OpSpec {
        name: "Pad",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("scheme", UInt), req("pad_amount", Ints), opt("pad_constant_value", Scalar)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: move_ops::pad,
    },
    OpSpec {
        name: "CumulativeSum",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[req("axis", UInt), opt("exclusive", Bool), opt("reverse", Bool)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8] => [UFIX8]),
            row!(Plain: [INT32] => [INT32]),
        ],
        shapes: math_ops::cumulative_sum,
    },
    OpSpec {
        name: "L2Norm",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[opt("axis", UInt), opt("axes", Ints), opt("epsilon", Float32)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::l2_norm,
    },
    OpSpec {
        name: "GatherNd",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[opt("batch_dims", Ints)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] [INDEX] => [ALL])],
        shapes: index_ops::gather_nd,
    },
    OpSpec {
        name: "GatherElements",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[opt("axis", UInt)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] [INDEX] => [ALL])],
        shapes: index_ops::gather_elements,
    },
    OpSpec {
        name: "ElementWiseRsqrt",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::same,
    },
    OpSpec {
        name: "ElementWisePower",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX8 SFIX8 UFIX16 SFIX16 INT32 F32] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8 UFIX16 SFIX16 INT32 F32] => [UFIX8 SFIX8]),
        ],
        shapes: math_ops::broadcast,
    },
    OpSpec {
        name: "ElementWiseGreater",
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b11,
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [BOOL8]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX8 BOOL8 SFIX8]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 BOOL8 SFIX8]),
            row!(Plain: [INT32] [INT32] => [UFIX8 SFIX8 BOOL8]),
        ],
        shapes: math_ops::broadcast,
    },
    OpSpec {
        name: "Pack",
        inputs: (1, MANY),
        outputs: (1, 1),
        params: &[req("axis", UInt)],
        same_in: 0xff,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::pack,
    },
    OpSpec {
        name: "UnPack",
        inputs: (1, 1),
        outputs: (1, MANY),
        params: &[req("axis", UInt)],
        same_in: 0b1,
        same_out: 0xff,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::unpack,
    },
    OpSpec {
        name: "RotaryEmbedding",
        inputs: (3, 4),
        outputs: (1, 1),
        params: &[opt("interleaved", Bool), opt("rotary_embedding_dim", UInt)],
        same_in: 0b111,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] [FLOAT] [INDEX] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX16] [UFIX16] [INDEX] => [UFIX16]),
        ],
        shapes: math_ops::rotary,
    },
    float_unary("ElementWiseAsin", &[]),
    float_unary("ElementWiseAtan", &[]),
    float_unary("ElementWiseCos", &[]),
    float_unary("ElementWiseExp", &[]),
    float_unary("ElementWiseLog", &[]),
    float_unary("ElementWiseSin", &[]),
    float_unary("ElementWiseSquareRoot", &[]),
    float_unary("ElementWiseCeil", &[]),
    float_unary("ElementWiseFloor", &[]),
    float_unary("ElementWiseRound", &[]),
    number_unary("ElementWiseAbs"),
    number_unary("ElementWiseNeg"),
    number_unary("ElementWiseSign"),
    OpSpec { rows: &[row!(Plain: [BOOL8] => [BOOL8])], ..float_unary("ElementWiseNot", &[]) },
    float_unary("ElementWiseSoftplus", &[opt("beta", Float32), opt("threshold", Float32)]),
    float_unary("Elu", &[opt("alpha", Float32)]),
    float_unary("HardSwish", &[]),
    float_unary("Relu1", &[]),
    float_unary("Relu6", &[]),
    float_unary("ReluMinMax", &[opt("min_value", Float32), opt("max_value", Float32)]),
    arithmetic("ElementWiseFloorDiv"),
    arithmetic("ElementWiseFmod"),
    arithmetic("ElementWiseMaximum"),
    arithmetic("ElementWiseMinimum"),
    arithmetic("ElementWiseMod"),
    arithmetic("ElementWiseSquaredDifference"),
    comparison("ElementWiseEqual"),
    comparison("ElementWiseGreaterEqual"),
    comparison("ElementWiseLess"),
    comparison("ElementWiseLessEqual"),
    comparison("ElementWiseNotEqual"),
    logic("ElementWiseAnd"),
    logic("ElementWiseOr"),
    logic("ElementWiseXor"),
    reduction("ReduceMin"),
    reduction("ReduceProd"),
    OpSpec {
        name: "Squeeze",
        inputs: (1, 1),
        outputs: (1, 1),
        params: &[opt("axes", Ints)],
        same_in: 0b1,
        same_out: 0b1,
        rows: &[row!(Moved: [ALL] => [ALL])],
        shapes: move_ops::squeeze,
    },
];

//! The ops this backend has: one file for each, or for a family that shares everything.
//!
//! A file holds an op's rule for clients (operands, parameters, element types: an [`OpSpec`]), its shape rule, its
//! lowering to typed operations, and its step. `check` is the only place where a node is checked: the C API and the
//! container run it with the table of element types, `passes` once more without (a graph that never went through the C
//! API may mix floats), so that lowering relies on it.
//!
//! *Shapes*: a shape rule infers the outputs' extents from the inputs' and the parameters; declared extents must be equal.

#[macro_use]
mod spec;
mod call;
mod common;
mod lowering;
mod prelude;
#[cfg(test)]
pub(crate) mod samples;

mod argmax;
mod attention;
mod binary;
mod cast;
mod concat;
mod conv2d;
mod convert;
mod cumulative_sum;
mod expand_dims;
mod fully_connected;
mod gather;
mod gather_elements;
mod gather_nd;
pub(crate) mod kv_update;
mod l2_norm;
pub(crate) mod linear;
mod linear_store;
mod mat_mul;
mod norm;
mod pack;
mod pad;
mod quantise_blocks;
mod reduce;
mod reshape;
mod rotary_embedding;
mod scatter;
mod scatter_mask;
mod select;
mod softmax;
mod split;
mod squeeze;
pub(crate) mod store;
mod strided;
mod strided_slice;
mod tile;
mod top_k;
mod transpose;
mod unary;
mod unpack;
mod update_store;

use crate::graph::op::Op;
use crate::graph::step_builder::StepBuilder;
use crate::graph::typed::Node;
use crate::graph::{ExecError, Violation};
use crate::ir;
use crate::step::Step;

pub(crate) use call::Call;
pub(crate) use lowering::{GraphLowering, Lowering};
pub use spec::{Class, OpSpec, ParamKind, ParamSpec, Row};

/// Lists each file of ops once.
macro_rules! families {
    ($($file:ident)*) => {
        /// The ops, file by file.
        static FAMILIES: &[&[OpSpec]] = &[$($file::OPS),*];

        /// Nodes that every op must accept and run, at least one for each.
        #[cfg(test)]
        pub(crate) fn samples() -> Vec<samples::Sample> {
            [$($file::samples()),*].concat()
        }
    };
}

families! {
    gather fully_connected mat_mul conv2d norm binary unary select softmax concat split strided_slice reshape transpose
    convert cast scatter reduce top_k argmax tile expand_dims pad cumulative_sum l2_norm gather_nd gather_elements pack
    unpack rotary_embedding squeeze kv_update
}

/// The shape rules that whole families share, for tests that make samples of their members.
#[cfg(test)]
pub(crate) const SAME: spec::ShapeFn = common::same;
#[cfg(test)]
pub(crate) const BROADCAST: spec::ShapeFn = common::broadcast;

/// All ops.
pub fn all() -> impl Iterator<Item = &'static OpSpec> {
    FAMILIES.iter().copied().flatten()
}

/// The rules of an op, `None` when the host has no such op.
pub fn spec(op: &str) -> Option<&'static OpSpec> {
    all().find(|s| s.name == op)
}

/// Which rules a node must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// All that an HTP documents, element types included.
    Documented,
    /// Those that lowering and steps rely on.
    Structure,
}

/// A node with its tensors, unchecked: for those that an op package checks. The tensors it names must exist in `graph`.
pub(crate) fn call<'g>(graph: &'g ir::SourceGraph, node: &'g ir::Node) -> Call<'g> {
    Call::new(graph, node)
}

/// Checks one node against its op's rules. The tensors it names must exist in `graph`.
///
/// # Errors
/// The first rule it breaks.
pub(crate) fn check<'g>(
    graph: &'g ir::SourceGraph,
    node: &'g ir::Node,
    rules: Rules,
) -> Result<(&'static OpSpec, Call<'g>), Violation> {
    let fault = |subject: &str, expected: String, found: String| Violation::of_node(node, subject, expected, found);
    let spec = spec(&node.op).ok_or_else(|| {
        let (package, _) = ir::split_op(&node.op);
        if package != ir::QNN_PACKAGE {
            let expected = format!("`{}`, or a package registered with this backend that has the op", ir::QNN_PACKAGE);
            return fault("op package", expected, format!("`{package}`"));
        }
        let expected = match all().find(|s| s.name.eq_ignore_ascii_case(&node.op)) {
            Some(s) => format!("an op this backend has (did you mean `{}`?)", s.name),
            None => "an op this backend has".to_owned(),
        };
        fault("op type", expected, format!("`{}`", node.op))
    })?;
    for (what, ids, (min, max)) in [("inputs", &node.inputs, spec.inputs), ("outputs", &node.outputs, spec.outputs)] {
        if ids.len() < min || ids.len() > max {
            let expected = match (min, max) {
                (a, b) if a == b => format!("{a}"),
                (a, usize::MAX) => format!("at least {a}"),
                (a, b) => format!("{a} to {b}"),
            };
            return Err(fault(&format!("number of {what}"), expected, ids.len().to_string()));
        }
        if let Some(id) = ids.iter().find(|id| id.0 as usize >= graph.tensors.len()) {
            return Err(fault(what, format!("ids below {}", graph.tensors.len()), id.0.to_string()));
        }
    }
    let call = Call::new(graph, node);
    spec.check_params(&call)?;
    for i in 0..spec.inputs.0 {
        call.tensor(i)?;
    }
    if rules == Rules::Documented {
        spec.check_dtypes(&call)?;
    }
    let shapes = (spec.shapes)(&call)?;
    for (i, (want, tensor)) in shapes.iter().zip(&call.outputs).enumerate() {
        if *want != tensor.dims {
            return Err(call.bad_output(i, format!("dims {want:?}"), format!("{:?}", tensor.dims)));
        }
    }
    if shapes.len() != call.outputs.len() {
        let (want, have) = (shapes.len().to_string(), call.outputs.len().to_string());
        return Err(fault("number of outputs", want, have));
    }
    Ok((spec, call))
}

/// The step of a node, linear layers aside (`exec` groups them).
pub(crate) fn step(b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
    match &node.op {
        Op::Load => store::load(b, node),
        Op::Store { output } => store::store(b, node, *output),
        Op::Copy => convert::copy(b, node),
        Op::ConvertStorage => convert::convert_storage(b, node),
        Op::Unary(op) => unary::step(b, node, *op),
        Op::Binary(op) => binary::step(b, node, *op),
        Op::Softmax { axis, beta, log } => softmax::step(b, node, *axis, *beta, *log),
        Op::Reduce { op, axes } => reduce::step(b, node, *op, axes),
        Op::Gather { axis } => gather::step(b, node, *axis),
        Op::ScatterNd(op) => scatter::nd_step(b, node, *op),
        Op::ScatterElements { axis, op } => scatter::elements_step(b, node, *axis, *op),
        Op::KvUpdate { axis } => kv_update::step(b, node, *axis),
        Op::UpdateStore { input, output, places } => update_store::step(b, node, *input, *output, *places),
        Op::Concat { axis } => concat::step(b, node, *axis),
        Op::Slice { begin, stride, counts } => strided_slice::step(b, node, begin, stride, counts),
        Op::Transpose { perm } => transpose::step(b, node, perm),
        Op::Tile { multiples } => tile::step(b, node, multiples),
        Op::MatMul { transpose_a, transpose_b, bias } => mat_mul::step(b, node, [*transpose_a, *transpose_b], *bias),
        Op::RmsNorm { epsilon, gamma, beta } => norm::rms_step(b, node, *epsilon, *gamma, *beta),
        Op::Rope { interleaved, rotated, by_row } => rotary_embedding::step(b, node, *interleaved, *rotated, *by_row),
        Op::ScatterMask { past, new } => scatter_mask::step(b, node, *past, *new),
        Op::QuantiseBlocks(op) => quantise_blocks::step(b, node, *op),
        Op::Attention(op) => attention::step(b, node, *op),
        Op::Leaf(leaf) => leaf.step(b, node),
        Op::Linear { .. } | Op::GatedLinear { .. } => linear::step(b, &[node]),
    }
}

/// The step of several linear layers that read the same rows.
pub(crate) use linear::step as linear_step;
/// The step of a linear layer and the store that alone reads it.
pub(crate) use linear_store::step as linear_store_step;

//! From a described graph to typed operations: tensors become values, each node is checked and lowered by its op.
//!
//! What later stages rely on for memory safety is checked here, whatever a client's calls went through before: sizes,
//! encodings and the order of nodes here, operands and parameters by [`ops::check`].

use crate::graph::ExecError;
use crate::graph::typed::{Constant, Port, Source, TypedGraph, Value};
use crate::graph::walk::MAX_RANK;
use crate::ir::{Dtype, Node, Quant, Role, SourceGraph, Tensor};
use crate::ops::{self, GraphLowering, Lowering, Rules};
use crate::package::{self, Packages};
use crate::storage::{QuantGrid, Rounding, Storage, quantised_range};

/// Most elements of a tensor: more than any machine holds, and sums of sizes never overflow.
const MAX_ELEMS: usize = if usize::BITS >= 64 { 1 << 38 } else { 1 << 28 };

/// Lowers a whole graph.
pub(crate) fn lower(graph: &SourceGraph, packages: &Packages) -> Result<TypedGraph, ExecError> {
    let mut lower = tensors(graph)?;
    for node in &graph.nodes {
        check_order(&lower, node)?;
        if let Some(package) = packages.find(&node.op) {
            package::lower(&mut Lowering::new(&mut lower, ops::call(graph, node)), package)?;
            continue;
        }
        let (spec, call) = ops::check(graph, node, Rules::Structure)?;
        (spec.lower)(&mut Lowering::new(&mut lower, call))?;
    }
    match graph.outputs().find(|id| !lower.written[id.0 as usize]) {
        Some(id) => Err(fault(graph, format!("no node writes output `{}`", graph.tensor(id).name))),
        None => Ok(lower.typed),
    }
}

fn fault(graph: &SourceGraph, what: String) -> ExecError {
    ExecError::Graph { graph: graph.name.clone(), what }
}

/// The inputs must exist by now, and the outputs may be written.
fn check_order(lower: &GraphLowering<'_>, node: &Node) -> Result<(), ExecError> {
    let graph = lower.source;
    for &id in &node.inputs {
        let tensor = graph.tensor(id);
        if !lower.written[id.0 as usize] && !matches!(tensor.role, Role::Null) {
            let what = format!("node `{}` reads `{}` before a node has written it", node.name, tensor.name);
            return Err(fault(graph, what));
        }
    }
    for (i, &id) in node.outputs.iter().enumerate() {
        let tensor = graph.tensor(id);
        let taken = lower.written[id.0 as usize] || node.outputs[..i].contains(&id);
        if taken || !matches!(tensor.role, Role::Native | Role::Output) {
            let what = format!("node `{}` writes `{}`, which has its contents already", node.name, tensor.name);
            return Err(fault(graph, what));
        }
    }
    Ok(())
}

/// All tensors as values, before any node.
fn tensors(graph: &SourceGraph) -> Result<GraphLowering<'_>, ExecError> {
    let n = graph.tensors.len();
    let mut readers = vec![0; n];
    for node in &graph.nodes {
        if let Some(id) = node.inputs.iter().chain(&node.outputs).find(|id| id.0 as usize >= n) {
            return Err(fault(graph, format!("node `{}` names tensor {} of {n}", node.name, id.0)));
        }
        node.inputs.iter().for_each(|id| readers[id.0 as usize] += 1);
    }
    let typed = TypedGraph { name: graph.name.clone(), ..TypedGraph::default() };
    let mut lower = GraphLowering { source: graph, typed, readers, written: vec![false; n], output: vec![None; n] };
    for (index, tensor) in graph.tensors.iter().enumerate() {
        let value = value(&mut lower, index, tensor)?;
        lower.typed.values.push(value);
    }
    Ok(lower)
}

fn value(lower: &mut GraphLowering<'_>, index: usize, tensor: &Tensor) -> Result<Value, ExecError> {
    let graph = lower.source;
    let port = || Port {
        name: tensor.name.as_str().into(),
        n_elems: tensor.n_elems(),
        dtype: tensor.dtype,
        quant: tensor.quant.clone(),
    };
    let shape: Vec<usize> = tensor.dims.iter().map(|&d| d as usize).collect();
    if shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_none_or(|n| n > MAX_ELEMS) {
        return Err(fault(graph, format!("tensor `{}` is too large: {:?}", tensor.name, tensor.dims)));
    }
    if !matches!(tensor.role, Role::Null) && !(1..=MAX_RANK).contains(&shape.len()) {
        let found = shape.len();
        return Err(fault(graph, format!("tensor `{}`: expected rank 1 to {MAX_RANK}, found {found}", tensor.name)));
    }
    let mut rounding = Rounding::None;
    let source = match &tensor.role {
        Role::Input => {
            grid_of(graph, tensor)?;
            lower.written[index] = true;
            lower.typed.inputs.push(port());
            Source::Input(lower.typed.inputs.len() - 1)
        }
        Role::Static(bytes) => {
            lower.written[index] = true;
            check_constant(graph, tensor, bytes.len())?;
            Source::Const(Constant::new(bytes.clone(), tensor.dtype, tensor.quant.clone()))
        }
        Role::Output => {
            rounding = rounding_of(lower, tensor, index)?;
            lower.typed.outputs.push(port());
            lower.output[index] = Some(lower.typed.outputs.len() - 1);
            Source::Node
        }
        Role::Native => {
            rounding = rounding_of(lower, tensor, index)?;
            Source::Node
        }
        Role::Null => Source::Node,
    };
    let (dtype, quant) = (tensor.dtype, tensor.quant.clone());
    Ok(Value { name: tensor.name.as_str().into(), shape, dtype, quant, rounding, source })
}

/// The rounding that readers of a tensor must see: its grid, or `float16` when a client sees it too. An output that
/// no node reads is rounded by its store alone.
fn rounding_of(lower: &GraphLowering<'_>, tensor: &Tensor, index: usize) -> Result<Rounding, ExecError> {
    let is_output = matches!(tensor.role, Role::Output);
    let grid = grid_of(lower.source, tensor)?;
    Ok(match grid {
        _ if is_output && lower.readers[index] == 0 => Rounding::None,
        Some(grid) => Rounding::Quantised(grid),
        None if is_output && tensor.dtype == Dtype::F16 => Rounding::F16,
        None => Rounding::None,
    })
}

/// The grid of a fixed-point tensor that is not a constant.
fn grid_of(graph: &SourceGraph, tensor: &Tensor) -> Result<Option<QuantGrid>, ExecError> {
    if tensor.dtype.is_float() || Storage::of(tensor.dtype) == Storage::I32 {
        return Ok(None);
    }
    let (scale, offset) = match tensor.quant {
        Quant::None => (1.0, 0),
        Quant::PerTensor { scale, offset } => (scale, offset),
        Quant::PerAxis { .. } | Quant::Block { .. } => {
            let what = "has one scale per channel or block, which only constants may have";
            return Err(fault(graph, format!("tensor `{}` {what}", tensor.name)));
        }
    };
    if !(scale.is_finite() && scale > 0.0) {
        return Err(fault(graph, format!("tensor `{}`: scale must be positive, found {scale}", tensor.name)));
    }
    let (min, max) = quantised_range(tensor.dtype);
    Ok(Some(QuantGrid { scale, offset, min, max }))
}

fn check_constant(graph: &SourceGraph, tensor: &Tensor, found: usize) -> Result<(), ExecError> {
    let bad = |what: String| Err(fault(graph, format!("constant `{}`: {what}", tensor.name)));
    let n = tensor.n_elems();
    let packed = tensor.may_pack_4_bits() && found == n.div_ceil(2);
    if found != tensor.size_bytes() && !packed {
        return bad(format!("expected {} bytes, found {found}", tensor.size_bytes()));
    }
    let pairs = |n_pairs: usize, scales: usize, offsets: usize| {
        if scales != n_pairs || (offsets != 0 && offsets != n_pairs) {
            return bad(format!("expected {n_pairs} scales, found {scales} and {offsets} offsets"));
        }
        Ok(())
    };
    match &tensor.quant {
        Quant::None | Quant::PerTensor { .. } => Ok(()),
        Quant::PerAxis { axis, scales, offsets, .. } => match tensor.dims.get(*axis as usize) {
            Some(&extent) => pairs(extent as usize, scales.len(), offsets.len()),
            None => bad(format!("axis {axis} of its encoding is not one of its {}", tensor.dims.len())),
        },
        Quant::Block { block_dims, scales, offsets } => {
            if block_dims.len() != tensor.dims.len() || block_dims.contains(&0) {
                return bad(format!("blocks of {block_dims:?} do not divide {:?}", tensor.dims));
            }
            let blocks = tensor.dims.iter().zip(block_dims.iter()).map(|(&d, &b)| d.div_ceil(b) as usize).product();
            pairs(blocks, scales.len(), offsets.len())
        }
    }
}

//! Checks of tensors, nodes and whole graphs.
//!
//! Pure: it reads [`ir`](crate::ir) values and returns a [`Violation`] that names the node, the op, the operand, what was
//! expected and what was found. The C API calls it for each tensor and node that a client adds, the container for each
//! graph that it reads. The rules of the ops are in [`ops`].

#[cfg(test)]
mod tests;
mod wiring;

use crate::graph::Violation;
use crate::graph::walk::MAX_RANK;
use crate::ir::{Node, Quant, Role, SourceGraph, Tensor};
use crate::ops::{self, Rules};
use crate::package::{self, Packages};

pub use wiring::Wiring;

/// Most bytes a tensor may have: what an allocation can hold.
const MAX_BYTES: usize = isize::MAX as usize / 64 * 64;

/// Checks one node against its op's rules. The tensors it names must exist in `graph`.
///
/// # Errors
/// The first rule it breaks.
pub fn check_node(graph: &SourceGraph, node: &Node) -> Result<(), Violation> {
    ops::check(graph, node, Rules::Documented).map(|_| ())
}

/// Checks a tensor on its own: rank, extents, size, static data and encoding.
///
/// # Errors
/// The first rule it breaks.
pub fn check_tensor(tensor: &Tensor) -> Result<(), Violation> {
    let fault = |expected: String, found: String| Violation::of(format!("tensor `{}`", tensor.name), expected, found);
    if matches!(tensor.role, Role::Null) {
        return Ok(());
    }
    if tensor.dims.is_empty() || tensor.dims.len() > MAX_RANK {
        return Err(fault(format!("rank 1 to {MAX_RANK}"), format!("rank {}", tensor.dims.len())));
    }
    if tensor.dims.contains(&0) {
        return Err(fault("extents of at least 1".to_owned(), format!("{:?}", tensor.dims)));
    }
    let bytes = tensor
        .dims
        .iter()
        .try_fold(tensor.dtype.size_bytes(), |n, &d| n.checked_mul(d as usize))
        .filter(|&n| n <= MAX_BYTES)
        .ok_or_else(|| fault("a size that fits the address space".to_owned(), format!("{:?}", tensor.dims)))?;
    let tiled = tensor.data_format == qnn_sys::QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT;
    let can_be_tiled = matches!(tensor.role, Role::Input | Role::Output) && tensor.dims.len() >= 2;
    if tensor.data_format != 0 && !(tiled && can_be_tiled) {
        let expected = "data format 0 (dense), or 8 (tiles) for an input or output of rank 2 or more";
        return Err(fault(expected.to_owned(), format!("{}", tensor.data_format)));
    }
    if let Role::Static(data) = &tensor.role
        && data.len() != bytes
        && !(tensor.may_pack_4_bits() && data.len() == bytes.div_ceil(2))
    {
        return Err(fault(format!("{bytes} bytes of data for {:?}", tensor.dims), format!("{}", data.len())));
    }
    check_quant(tensor).map_err(|(expected, found)| fault(expected, found))
}

/// Checks what [`check_tensor`] leaves out, for it reads all of a large list: block scales must be finite.
///
/// # Errors
/// The first scale that is not.
pub fn check_scales(tensor: &Tensor) -> Result<(), Violation> {
    let Quant::Block { scales, .. } = &tensor.quant else { return Ok(()) };
    match scales.iter().enumerate().find(|(_, s)| !s.is_finite()) {
        None => Ok(()),
        Some((block, scale)) => {
            let found = format!("{scale} for block {block}");
            Err(Violation::of(format!("tensor `{}`", tensor.name), "finite scales", found))
        }
    }
}

/// Whether only an op package can check a node: it is of a package, and the host has no such op.
pub(crate) fn is_foreign(node: &Node) -> bool {
    crate::ir::split_op(&node.op).0 != crate::ir::QNN_PACKAGE && ops::spec(&node.op).is_none()
}

/// Checks one node by the package that has its op, if one does, else by the host's rules.
///
/// # Errors
/// The first rule it breaks.
pub(crate) fn check_op(graph: &SourceGraph, node: &Node, packages: &Packages) -> Result<(), Violation> {
    match packages.find(&node.op) {
        Some(package) => package::validate(package, graph, node),
        None => check_node(graph, node),
    }
}

/// Checks a whole graph: every tensor, every node (but for those of op packages), and how they are wired.
///
/// # Errors
/// The first rule it breaks.
pub fn check_graph(graph: &SourceGraph) -> Result<(), Violation> {
    let mut names = std::collections::HashSet::new();
    for tensor in &graph.tensors {
        check_tensor(tensor)?;
        if !names.insert(tensor.name.as_str()) {
            let found = format!("`{}` twice", tensor.name);
            return Err(Violation::of(format!("graph `{}`", graph.name), "tensor names that differ", found));
        }
    }
    let mut wiring = Wiring::default();
    for node in &graph.nodes {
        if is_foreign(node) {
            let operands = || node.inputs.iter().chain(&node.outputs);
            if let Some(id) = operands().find(|id| id.0 as usize >= graph.tensors.len()) {
                let expected = format!("tensors below {}", graph.tensors.len());
                return Err(Violation::of_node(node, "operands", expected, id.0.to_string()));
            }
        } else {
            check_node(graph, node)?;
        }
        wiring.add(graph, node)?;
    }
    wiring.finish(graph)
}

/// The encoding must cover the tensor; else what was expected and what was found.
fn check_quant(tensor: &Tensor) -> Result<(), (String, String)> {
    let finite = |scales: &[f32]| match scales.iter().find(|s| !s.is_finite()) {
        Some(s) => Err(("finite scales".to_owned(), s.to_string())),
        None => Ok(()),
    };
    let counts = |what: &str, want: usize, scales: usize, offsets: usize| {
        if scales != want || (offsets != 0 && offsets != want) {
            return Err((format!("{want} scales, one for each {what}"), format!("{scales} scales, {offsets} offsets")));
        }
        Ok(())
    };
    match &tensor.quant {
        Quant::None => Ok(()),
        Quant::PerTensor { scale, .. } => finite(&[*scale]),
        Quant::PerAxis { axis, bits, scales, offsets } => {
            let Some(&extent) = tensor.dims.get(*axis as usize) else {
                return Err((format!("an encoding axis below rank {}", tensor.dims.len()), axis.to_string()));
            };
            if *bits as usize > tensor.dtype.size_bytes() * 8 {
                return Err((format!("at most {} bits", tensor.dtype.size_bytes() * 8), bits.to_string()));
            }
            counts("index of the axis", extent as usize, scales.len(), offsets.len())?;
            finite(scales)
        }
        Quant::Block { block_dims, scales, offsets } => {
            let fits = block_dims.len() == tensor.dims.len()
                && block_dims.iter().zip(&tensor.dims).all(|(&b, &d)| b != 0 && d % b == 0);
            if !fits {
                return Err((format!("blocks that divide {:?}", tensor.dims), format!("{block_dims:?}")));
            }
            let blocks = block_dims.iter().zip(&tensor.dims).map(|(&b, &d)| (d / b) as usize).product();
            counts("block", blocks, scales.len(), offsets.len())
        }
    }
}

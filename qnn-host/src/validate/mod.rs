//! Checks of op configs and graphs: arity, parameters, element types, shapes, wiring.
//!
//! Pure: it reads [`ir`](crate::ir) values and answers with a [`Violation`] that names the node, the op, the operand,
//! what was expected and what was found. The edge calls it for each node a client adds, the container for each graph
//! it reads, so that `passes` and `exec` may rely on what is written here.
//!
//! Source: facts/qnn-ops.md (operand order, parameters, element types, layouts as measured on the real backend).

mod call;
mod index_ops;
mod math_ops;
mod move_ops;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod wiring;

use std::fmt;

use crate::ir::{Node, Quant, Role, SourceGraph, Tensor};

use call::Call;
pub use spec::{Class, OpSpec, ParamKind, ParamSpec, Row};
pub use table::OPS;
pub use wiring::Wiring;

/// Most dimensions a tensor may have.
pub const MAX_RANK: usize = 8;

/// Most bytes a tensor may have: what an allocation can hold.
const MAX_BYTES: usize = isize::MAX as usize / 64 * 64;

/// A rule that a node or tensor breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violation {
    /// Name of the node; empty when a tensor on its own is at fault.
    pub node: Box<str>,
    /// The node's op type.
    pub op: Box<str>,
    /// The operand, parameter or tensor at fault.
    pub subject: Box<str>,
    /// What the rule asks for.
    pub expected: Box<str>,
    /// What is there.
    pub found: Box<str>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.node.is_empty() || !self.op.is_empty() {
            write!(f, "node `{}` ({}), ", self.node, self.op)?;
        }
        write!(f, "{}: expected {}, found {}", self.subject, self.expected, self.found)
    }
}

/// The rules of an op, `None` when the host does not know it.
pub fn spec(op: &str) -> Option<&'static OpSpec> {
    OPS.iter().find(|s| s.name == op)
}

/// Checks one node against its op's rules. The tensors it names must exist in `graph`.
///
/// # Errors
/// The first rule it breaks.
pub fn check_node(graph: &SourceGraph, node: &Node) -> Result<(), Violation> {
    let fault = |subject: &str, expected: String, found: String| Violation {
        node: node.name.as_str().into(),
        op: node.op.as_str().into(),
        subject: subject.into(),
        expected: expected.into(),
        found: found.into(),
    };
    let spec = spec(&node.op).ok_or_else(|| {
        let near = OPS.iter().find(|s| s.name.eq_ignore_ascii_case(&node.op));
        let expected = match near {
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
    spec::check_params(spec, &call)?;
    for i in 0..spec.inputs.0 {
        call.input(i)?;
    }
    spec::check_dtypes(spec, &call)?;
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
    Ok(())
}

/// Checks a tensor on its own: rank, extents, size, static data and encoding.
///
/// # Errors
/// The first rule it breaks.
pub fn check_tensor(tensor: &Tensor) -> Result<(), Violation> {
    let fault = |expected: String, found: String| Violation {
        node: "".into(),
        op: "".into(),
        subject: format!("tensor `{}`", tensor.name).into(),
        expected: expected.into(),
        found: found.into(),
    };
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
    if tensor.data_format != 0 {
        return Err(fault("data format 0 (dense)".to_owned(), format!("{}", tensor.data_format)));
    }
    if let Role::Static(data) = &tensor.role
        && data.len() != bytes
        && !(tensor.may_pack_codes() && data.len() == bytes.div_ceil(2))
    {
        return Err(fault(format!("{bytes} bytes of data for {:?}", tensor.dims), format!("{}", data.len())));
    }
    spec::check_quant(tensor).map_err(|(expected, found)| fault(expected, found))
}

/// Checks what [`check_tensor`] leaves out, for it reads all of a large list: block scales must be finite.
///
/// # Errors
/// The first scale that is not.
pub fn check_scales(tensor: &Tensor) -> Result<(), Violation> {
    let Quant::Block { scales, .. } = &tensor.quant else { return Ok(()) };
    match scales.iter().enumerate().find(|(_, s)| !s.is_finite()) {
        None => Ok(()),
        Some((block, scale)) => Err(Violation {
            node: "".into(),
            op: "".into(),
            subject: format!("tensor `{}`", tensor.name).into(),
            expected: "finite scales".into(),
            found: format!("{scale} for block {block}").into(),
        }),
    }
}

/// Checks a whole graph: every tensor, every node, and how they are wired.
///
/// # Errors
/// The first rule it breaks.
pub fn check_graph(graph: &SourceGraph) -> Result<(), Violation> {
    let mut names = std::collections::HashSet::new();
    for tensor in &graph.tensors {
        check_tensor(tensor)?;
        if !names.insert(tensor.name.as_str()) {
            return Err(Violation {
                node: "".into(),
                op: "".into(),
                subject: format!("graph `{}`", graph.name).into(),
                expected: "tensor names that differ".into(),
                found: format!("`{}` twice", tensor.name).into(),
            });
        }
    }
    let mut wiring = Wiring::default();
    for node in &graph.nodes {
        check_node(graph, node)?;
        wiring.add(graph, node)?;
    }
    wiring.finish(graph)
}

//! One node with its tensors at hand, and the words for what is wrong with it.

use crate::ir::{Node, Param, Role, SourceGraph, Tensor};

use super::Violation;

/// A node whose tensor ids were resolved. Left-out optional inputs are `None`.
pub(super) struct Call<'a> {
    pub(super) node: &'a Node,
    pub(super) inputs: Vec<Option<&'a Tensor>>,
    pub(super) outputs: Vec<&'a Tensor>,
}

/// Extents and values of an integer tensor parameter.
pub(super) type Ints<'a> = (&'a [u32], &'a [i64]);

impl<'a> Call<'a> {
    /// The ids must lie in the graph.
    pub(super) fn new(graph: &'a SourceGraph, node: &'a Node) -> Self {
        let given = |t: &'a Tensor| (!matches!(t.role, Role::Null)).then_some(t);
        Self {
            node,
            inputs: node.inputs.iter().map(|&id| given(graph.tensor(id))).collect(),
            outputs: node.outputs.iter().map(|&id| graph.tensor(id)).collect(),
        }
    }

    /// Input `i`, which must be there.
    pub(super) fn input(&self, i: usize) -> Result<&'a Tensor, Violation> {
        self.optional(i).ok_or_else(|| self.bad(&format!("input {i}"), "a tensor".into(), "none".into()))
    }

    /// Input `i`, if given.
    pub(super) fn optional(&self, i: usize) -> Option<&'a Tensor> {
        self.inputs.get(i).copied().flatten()
    }

    /// Extents of input `i`, which must be there.
    pub(super) fn dims(&self, i: usize) -> Result<&'a [u32], Violation> {
        Ok(&self.input(i)?.dims)
    }

    /// Extents of the first output.
    pub(super) fn out_dims(&self) -> &'a [u32] {
        self.outputs.first().map_or(&[], |t| &t.dims)
    }

    /// An unsigned parameter (any integer that is not negative), or its default.
    pub(super) fn uint(&self, name: &str, default: u64) -> Result<u64, Violation> {
        match self.node.param(name) {
            None => Ok(default),
            Some(Param::UInt(v)) => Ok(*v),
            Some(Param::Int(v)) if *v >= 0 => Ok(*v as u64),
            Some(Param::Bool(v)) => Ok(u64::from(*v)),
            Some(other) => Err(self.bad_param(name, "an integer of at least 0".into(), format!("{other:?}"))),
        }
    }

    /// A flag, or false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Violation> {
        Ok(self.uint(name, 0)? != 0)
    }

    /// An integer tensor parameter: extents and values.
    pub(super) fn ints(&self, name: &str) -> Result<Option<Ints<'a>>, Violation> {
        match self.node.param(name) {
            None => Ok(None),
            Some(Param::Ints(dims, values)) => Ok(Some((dims, values))),
            Some(other) => Err(self.bad_param(name, "an integer tensor".into(), format!("{other:?}"))),
        }
    }

    /// A scalar axis below `rank`, or its default; a negative one (where the op takes them) counts from the end.
    pub(super) fn axis(&self, name: &str, default: usize, rank: usize) -> Result<usize, Violation> {
        if let Some(&Param::Int(v @ ..0)) = self.node.param(name) {
            let axis = usize::try_from(v + rank as i64).ok();
            return axis.ok_or_else(|| self.bad_param(name, format!("an axis from -{rank}"), v.to_string()));
        }
        let axis = self.uint(name, default as u64)?;
        if axis < rank as u64 {
            return Ok(axis as usize);
        }
        Err(self.bad_param(name, format!("an axis below rank {rank}"), axis.to_string()))
    }

    /// A list of distinct axes below `rank`.
    pub(super) fn axes(&self, name: &str, rank: usize) -> Result<Option<Vec<usize>>, Violation> {
        let Some((_, values)) = self.ints(name)? else { return Ok(None) };
        let mut axes = Vec::with_capacity(values.len().min(rank));
        for &v in values {
            let axis = usize::try_from(v).ok().filter(|&a| a < rank && !axes.contains(&a));
            axes.push(axis.ok_or_else(|| {
                self.bad_param(name, format!("distinct axes below rank {rank}"), format!("{values:?}"))
            })?);
        }
        Ok(Some(axes))
    }

    /// A violation at a named place.
    pub(super) fn bad(&self, subject: &str, expected: String, found: String) -> Violation {
        Violation {
            node: self.node.name.as_str().into(),
            op: self.node.op.as_str().into(),
            subject: subject.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// A violation at a parameter.
    pub(super) fn bad_param(&self, name: &str, expected: String, found: String) -> Violation {
        self.bad(&format!("parameter `{name}`"), expected, found)
    }

    /// A violation at an input.
    pub(super) fn bad_input(&self, i: usize, expected: String, found: String) -> Violation {
        let name = self.optional(i).map_or("", |t| t.name.as_str());
        self.bad(&format!("input {i} `{name}`"), expected, found)
    }

    /// A violation at an output.
    pub(super) fn bad_output(&self, i: usize, expected: String, found: String) -> Violation {
        let name = self.outputs.get(i).map_or("", |t| t.name.as_str());
        self.bad(&format!("output {i} `{name}`"), expected, found)
    }
}

//! One node with its tensors at hand, and what is wrong with it: for shape rules and for lowering.

use crate::graph::Violation;
use crate::ir::{Node, Param, Role, SourceGraph, Tensor};

/// A node whose tensor ids were resolved. Left-out optional inputs are `None`.
pub(crate) struct Call<'g> {
    pub(crate) node: &'g Node,
    pub(crate) inputs: Vec<Option<&'g Tensor>>,
    pub(crate) outputs: Vec<&'g Tensor>,
}

/// Extents and values of an integer tensor parameter.
pub(crate) type IntTensor<'g> = (&'g [u32], &'g [i64]);

/// What a shape rule returns: the extents of each output.
pub(crate) type Shapes = Result<Vec<Vec<u32>>, Violation>;

impl<'g> Call<'g> {
    /// The ids must lie in the graph.
    pub(super) fn new(graph: &'g SourceGraph, node: &'g Node) -> Self {
        let given = |t: &'g Tensor| (!matches!(t.role, Role::Null)).then_some(t);
        Self {
            node,
            inputs: node.inputs.iter().map(|&id| given(graph.tensor(id))).collect(),
            outputs: node.outputs.iter().map(|&id| graph.tensor(id)).collect(),
        }
    }

    /// Input `i`, which must be there.
    pub(crate) fn tensor(&self, i: usize) -> Result<&'g Tensor, Violation> {
        self.optional_tensor(i).ok_or_else(|| self.bad(&format!("input {i}"), "a tensor".into(), "none".into()))
    }

    /// Input `i`, if given.
    pub(crate) fn optional_tensor(&self, i: usize) -> Option<&'g Tensor> {
        self.inputs.get(i).copied().flatten()
    }

    /// Extents of input `i`, which must be there.
    pub(crate) fn dims(&self, i: usize) -> Result<&'g [u32], Violation> {
        Ok(&self.tensor(i)?.dims)
    }

    /// Extents of the first output.
    pub(crate) fn out_dims(&self) -> &'g [u32] {
        self.outputs.first().map_or(&[], |t| &t.dims)
    }

    /// An unsigned parameter (any integer that is not negative), or its default.
    pub(crate) fn uint(&self, name: &str, default: u64) -> Result<u64, Violation> {
        match self.node.param(name) {
            None => Ok(default),
            Some(Param::UInt(v)) => Ok(*v),
            Some(Param::Int(v)) if *v >= 0 => Ok(*v as u64),
            Some(Param::Bool(v)) => Ok(u64::from(*v)),
            Some(other) => Err(self.bad_param(name, "an integer of at least 0".into(), format!("{other:?}"))),
        }
    }

    /// A flag, or its default.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Violation> {
        Ok(self.uint(name, u64::from(default))? != 0)
    }

    /// A float parameter, or its default; its spec requires a finite float32.
    pub(crate) fn float(&self, name: &str, default: f32) -> f32 {
        match self.node.param(name) {
            Some(&Param::F32(v)) => v,
            _ => default,
        }
    }

    /// An integer tensor parameter: extents and values.
    pub(crate) fn ints(&self, name: &str) -> Result<Option<IntTensor<'g>>, Violation> {
        match self.node.param(name) {
            None => Ok(None),
            Some(Param::Ints(dims, values)) => Ok(Some((dims, values))),
            Some(other) => Err(self.bad_param(name, "an integer tensor".into(), format!("{other:?}"))),
        }
    }

    /// The values of an integer tensor parameter as sizes; none when it is left out. Its shape rule saw their range.
    pub(crate) fn sizes(&self, name: &str) -> Result<Vec<usize>, Violation> {
        let (_, values) = self.ints(name)?.unwrap_or_default();
        let sizes = values.iter().map(|&v| usize::try_from(v)).collect::<Result<_, _>>();
        sizes.map_err(|_| self.bad_param(name, "values of at least 0".into(), format!("{values:?}")))
    }

    /// A scalar axis below `rank`, or its default; a negative one (where the op takes them) counts from the end.
    pub(crate) fn axis(&self, name: &str, default: usize, rank: usize) -> Result<usize, Violation> {
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
    pub(crate) fn axes(&self, name: &str, rank: usize) -> Result<Option<Vec<usize>>, Violation> {
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
    pub(crate) fn bad(&self, subject: &str, expected: String, found: String) -> Violation {
        Violation::of_node(self.node, subject, expected, found)
    }

    /// A violation at a parameter.
    pub(crate) fn bad_param(&self, name: &str, expected: String, found: String) -> Violation {
        self.bad(&format!("parameter `{name}`"), expected, found)
    }

    /// A violation at an input.
    pub(crate) fn bad_input(&self, i: usize, expected: String, found: String) -> Violation {
        let name = self.optional_tensor(i).map_or("", |t| t.name.as_str());
        self.bad(&format!("input {i} `{name}`"), expected, found)
    }

    /// A violation at an output.
    pub(crate) fn bad_output(&self, i: usize, expected: String, found: String) -> Violation {
        let name = self.outputs.get(i).map_or("", |t| t.name.as_str());
        self.bad(&format!("output {i} `{name}`"), expected, found)
    }
}

//! From QNN nodes to typed operations: parameters read, shapes checked, views found, op families merged.
//!
//! One file a family, chosen by op type in [`lower_node`]. Everything that later stages rely on for memory safety is checked
//! here, whatever the client's edge checked before.

mod call;
mod convert;
mod elementwise;
mod index;
mod layout;
mod linear;
mod norm;
mod reduce;

pub(crate) use call::Call;

use crate::graph::ExecError;
use crate::graph::typed::{Constant, Port, Source, TypedGraph, Value, ValueId};
use crate::ir::{Dtype, Node, Quant, Role, SourceGraph, Tensor, TensorId};
use crate::storage::{QuantGrid, Rounding, Storage, code_range};

/// Most elements of a tensor: more than any machine holds, and sums of sizes never overflow.
const MAX_ELEMS: usize = if usize::BITS >= 64 { 1 << 38 } else { 1 << 28 };

/// The net so far, and what is known of the graph's tensors. A tensor's value has the tensor's index.
pub(crate) struct Lower<'g> {
    pub(crate) graph: &'g SourceGraph,
    pub(crate) net: TypedGraph,
    /// How many node inputs each tensor is.
    readers: Vec<u32>,
    /// Whether its contents exist by now.
    written: Vec<bool>,
    /// Which of the graph's outputs it is.
    output: Vec<Option<usize>>,
}

/// Lowers a whole graph.
pub(crate) fn lower(graph: &SourceGraph) -> Result<TypedGraph, ExecError> {
    let mut lower = Lower::new(graph)?;
    for node in &graph.nodes {
        lower_node(&mut Call::new(&mut lower, node)?)?;
        lower.check_outputs(node)?;
    }
    for id in graph.outputs() {
        if !lower.written[id.0 as usize] {
            return Err(lower.fault(format!("no node writes output `{}`", graph.tensor(id).name)));
        }
    }
    Ok(lower.net)
}

fn lower_node(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let families =
        [elementwise::lower, layout::lower, linear::lower, norm::lower, reduce::lower, index::lower, convert::lower];
    for family in families {
        if family(call)? {
            return Ok(());
        }
    }
    Err(call.unsupported("no such operation"))
}

impl<'g> Lower<'g> {
    fn new(graph: &'g SourceGraph) -> Result<Self, ExecError> {
        let n = graph.tensors.len();
        let mut lower = Self {
            graph,
            net: TypedGraph { name: graph.name.clone(), ..TypedGraph::default() },
            readers: vec![0; n],
            written: vec![false; n],
            output: vec![None; n],
        };
        for node in &graph.nodes {
            for &id in node.inputs.iter().chain(&node.outputs) {
                if id.0 as usize >= n {
                    return Err(lower.fault(format!("node `{}` names tensor {} of {n}", node.name, id.0)));
                }
            }
            node.inputs.iter().for_each(|id| lower.readers[id.0 as usize] += 1);
        }
        for (index, tensor) in graph.tensors.iter().enumerate() {
            let value = lower.value(index, tensor)?;
            lower.net.values.push(value);
        }
        Ok(lower)
    }

    fn value(&mut self, index: usize, tensor: &Tensor) -> Result<Value, ExecError> {
        let port = || Port {
            name: tensor.name.as_str().into(),
            n_elems: tensor.n_elems(),
            dtype: tensor.dtype,
            quant: tensor.quant.clone(),
        };
        let mut rounding = Rounding::None;
        let source = match &tensor.role {
            Role::Input => {
                self.grid(tensor)?;
                self.written[index] = true;
                self.net.inputs.push(port());
                Source::Input(self.net.inputs.len() - 1)
            }
            Role::Static(bytes) => {
                self.written[index] = true;
                self.check_constant(tensor, bytes.len())?;
                Source::Const(Constant::new(bytes.clone(), tensor.dtype, tensor.quant.clone()))
            }
            Role::Output => {
                rounding = self.rounding(tensor, index)?;
                self.net.outputs.push(port());
                self.output[index] = Some(self.net.outputs.len() - 1);
                Source::Node
            }
            Role::Native => {
                rounding = self.rounding(tensor, index)?;
                Source::Node
            }
            Role::Null => Source::Node,
        };
        let shape: Vec<usize> = tensor.dims.iter().map(|&d| d as usize).collect();
        if shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_none_or(|n| n > MAX_ELEMS) {
            return Err(self.fault(format!("tensor `{}` is too large: {:?}", tensor.name, tensor.dims)));
        }
        let (dtype, quant) = (tensor.dtype, tensor.quant.clone());
        Ok(Value { name: tensor.name.as_str().into(), shape, dtype, quant, rounding, source })
    }

    /// The rounding that readers of a tensor must see: its grid, or `float16` when a client sees it too. An output that
    /// no node reads is rounded by its store alone.
    fn rounding(&self, tensor: &Tensor, index: usize) -> Result<Rounding, ExecError> {
        let is_output = matches!(tensor.role, Role::Output);
        let grid = self.grid(tensor)?;
        Ok(match grid {
            _ if is_output && self.readers[index] == 0 => Rounding::None,
            Some(grid) => Rounding::Quantised(grid),
            None if is_output && tensor.dtype == Dtype::F16 => Rounding::F16,
            None => Rounding::None,
        })
    }

    /// The grid of a fixed-point tensor that is not a constant.
    fn grid(&self, tensor: &Tensor) -> Result<Option<QuantGrid>, ExecError> {
        if tensor.dtype.is_float() || Storage::of(tensor.dtype) == Storage::I32 {
            return Ok(None);
        }
        let (scale, offset) = match tensor.quant {
            Quant::None => (1.0, 0),
            Quant::PerTensor { scale, offset } => (scale, offset),
            Quant::PerAxis { .. } | Quant::Block { .. } => {
                let what = "has one scale a channel or block, which only constants may have";
                return Err(self.fault(format!("tensor `{}` {what}", tensor.name)));
            }
        };
        if !(scale.is_finite() && scale > 0.0) {
            return Err(self.fault(format!("tensor `{}`: scale must be positive, found {scale}", tensor.name)));
        }
        let (min, max) = code_range(tensor.dtype);
        Ok(Some(QuantGrid { scale, offset, min, max }))
    }

    fn check_constant(&self, tensor: &Tensor, found: usize) -> Result<(), ExecError> {
        let bad = |what: String| Err(self.fault(format!("constant `{}`: {what}", tensor.name)));
        let n = tensor.n_elems();
        let packed = tensor.may_pack_codes() && found == n.div_ceil(2);
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

    fn check_outputs(&self, node: &Node) -> Result<(), ExecError> {
        match node.outputs.iter().find(|id| !self.written[id.0 as usize]) {
            None => Ok(()),
            Some(&id) => {
                let name = &self.graph.tensor(id).name;
                Err(self.fault(format!("node `{}` (`{}`) does not write its output `{name}`", node.name, node.op)))
            }
        }
    }

    fn fault(&self, what: String) -> ExecError {
        ExecError::Graph { graph: self.graph.name.clone(), what }
    }

    fn id_of(tensor: TensorId) -> ValueId {
        ValueId(tensor.0)
    }
}

//! Linear layers to steps: which format the weights are in.

use super::Builder;
use crate::exec::ops::linear::{Codes, Layer, Linear, Weights};
use crate::exec::ops::linear_store::LinearStore;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::typed::{Constant, Node, ValueId};
use crate::graph::weight_format::{has_kernel, is_row_codes};
use crate::ir::Quant;
use crate::step::Step;
use crate::storage::QuantGrid;

impl Builder<'_> {
    /// The step of linear layers that read the same rows.
    pub(super) fn linears(&self, group: &[usize]) -> Result<Box<dyn Step>, ExecError> {
        let nodes = group.iter().map(|&index| &self.net.nodes[index]);
        let placed = |node| Ok((self.layer(node)?, self.dst(self.output(node)?)));
        let layers = nodes.map(placed).collect::<Result<Vec<_>, ExecError>>()?;
        let first = &self.net.nodes[group[0]];
        let k = match first.op {
            Op::Linear { k, .. } | Op::GatedLinear { k, .. } => k,
            _ => return Err(self.broken(first, "is no linear layer")),
        };
        let x = self.src(first.inputs[0]);
        let m = x.n.checked_div(k).unwrap_or(0);
        Ok(Box::new(Linear { x, m, k, layers, fast: self.fast }))
    }

    /// The step of a linear layer and its store.
    pub(super) fn linear_store(&self, index: usize, store: usize) -> Result<Box<dyn Step>, ExecError> {
        let (node, store) = (&self.net.nodes[index], &self.net.nodes[store]);
        let (Op::Linear { k, .. }, Op::Store { output }) = (&node.op, &store.op) else {
            return Err(self.broken(node, "is no linear layer with a store"));
        };
        let (x, port) = (self.src(node.inputs[0]), &self.net.outputs[*output]);
        let (m, layer) = (x.n.checked_div(*k).unwrap_or(0), self.layer(node)?);
        let grid = QuantGrid::of(port.dtype, &port.quant);
        Ok(Box::new(LinearStore { x, m, k: *k, layer, output: *output, dtype: port.dtype, grid }))
    }

    fn layer(&self, node: &Node) -> Result<Layer, ExecError> {
        match node.op {
            Op::Linear { n, bias, residual, .. } => {
                let mut rest = node.inputs[2..].iter().map(|&id| self.src(id));
                Ok(Layer {
                    weights: self.weights(node, node.inputs[1])?,
                    gate: None,
                    bias: if bias { rest.next() } else { None },
                    residual: if residual { rest.next() } else { None },
                    n,
                })
            }
            Op::GatedLinear { n, .. } => Ok(Layer {
                weights: self.weights(node, node.inputs[2])?,
                gate: Some(self.weights(node, node.inputs[1])?),
                bias: None,
                residual: None,
                n,
            }),
            _ => Err(self.broken(node, "is no linear layer")),
        }
    }

    fn weights(&self, node: &Node, id: ValueId) -> Result<Weights, ExecError> {
        let Some(constant) = self.net.constant(id) else {
            return Err(self.broken(node, "has weights that are not constant"));
        };
        let Constant { bytes, dtype, quant, packing } = constant;
        if let Some(packing) = *packing {
            return Ok(Weights::Packed(bytes.clone(), packing));
        }
        if dtype.is_float() {
            return Ok(Weights::Floats(self.src(id)));
        }
        if !is_row_codes(*dtype, quant) {
            return Err(self.broken(node, "has weights of an unknown format"));
        }
        let (scales, offsets) = match quant {
            Quant::PerTensor { scale, offset } => (vec![*scale], vec![*offset]),
            Quant::PerAxis { scales, offsets, .. } => (scales.to_vec(), offsets.to_vec()),
            _ => (vec![1.0], Vec::new()),
        };
        if self.fast && has_kernel(constant) {
            let rows = self.net.shape(id).first().copied().unwrap_or(0);
            let scales = (0..rows).map(|row| scales[row % scales.len()]).collect();
            return Ok(Weights::Bytes { bytes: bytes.clone(), scales });
        }
        Ok(Weights::Codes(Codes { bytes: bytes.clone(), dtype: *dtype, scales, offsets }))
    }
}

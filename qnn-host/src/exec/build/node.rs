//! One node to one step: shapes become loop bounds.

use super::Builder;
use crate::exec::ops::binary::{IntBinary, Pair, RealBinary, RealComparison, Select};
use crate::exec::ops::convert::{Cast, ConvertStorage, Copy};
use crate::exec::ops::fast::{FastRmsNorm, FastRotate};
use crate::exec::ops::gather::{Gather, GatherElements, GatherNd, GatherPacked};
use crate::exec::ops::matmul::{Conv2d, MatMul};
use crate::exec::ops::moves::{Concat, Pad, Strided};
use crate::exec::ops::norm::{L2Norm, Norm, NormKind};
use crate::exec::ops::reduce::{Argmax, Axes, CumulativeSum, IntReduce, RealReduce};
use crate::exec::ops::rope::Rotate;
use crate::exec::ops::scatter::{Places, Scatter};
use crate::exec::ops::scatter_mask::ScatterMask;
use crate::exec::ops::softmax::Softmax;
use crate::exec::ops::top_k::TopK;
use crate::exec::ops::unary::{IntUnary, RealUnary};
use crate::graph::ExecError;
use crate::graph::op::{Op, PadScheme};
use crate::graph::scalar::BinaryOp;
use crate::graph::scalar::ScatterOp;
use crate::graph::typed::{Constant, Node, ValueId};
use crate::graph::walk::{MAX_RANK, Walk, broadcast_shape};
use crate::step::Step;

impl Builder<'_> {
    /// The step of a node.
    pub(super) fn node(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let deep = node.inputs.iter().chain(&node.output).find(|&&id| self.shape(id).len() > MAX_RANK);
        if let Some(&id) = deep {
            return Err(ExecError::Unsupported {
                node: node.name.to_string(),
                op: node.op.label().to_owned(),
                why: format!("{} axes; at most {MAX_RANK}", self.shape(id).len()),
            });
        }
        match &node.op {
            Op::Load => self.load(node),
            Op::Store { output } => Ok(self.store(node, *output)),
            Op::Attention(op) => self.attention(node, *op),
            Op::Binary(op) => self.binary(node, *op),
            Op::Select => self.select(node),
            Op::MatMul { transpose_a, transpose_b, bias } => self.mat_mul(node, *transpose_a, *transpose_b, *bias),
            Op::Conv2d { .. } => self.conv2d(node),
            Op::RmsNorm { epsilon, gamma, beta } => self.norm(node, NormKind::Rms, *epsilon, *gamma, *beta),
            Op::LayerNorm { epsilon, gamma, beta } => self.norm(node, NormKind::Layer, *epsilon, *gamma, *beta),
            Op::Rope { .. } => self.rope(node),
            Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } => self.gather(node),
            Op::ScatterMask { past, new } => {
                let [mask, columns] = [0, 1].map(|i| self.src(node.inputs[i]));
                self.each(node, ScatterMask { mask, columns, past: *past, new: *new })
            }
            Op::ScatterNd(op) => {
                let (shape, index) = (self.shape(node.inputs[0]), self.shape(node.inputs[1]));
                let depth = index.last().copied().unwrap_or(0);
                let (limits, inner) = (shape[..depth].to_vec(), shape[depth..].iter().product());
                self.scatter(node, *op, Places::Slices { limits, inner })
            }
            Op::ScatterElements { axis, op } => {
                let (shape, index_shape) = (self.shape(node.inputs[0]).to_vec(), self.shape(node.inputs[1]).to_vec());
                self.scatter(node, *op, Places::Elements { shape, index_shape, axis: *axis })
            }
            _ => self.simple(node),
        }
    }

    /// Steps with one input, moves and reductions.
    fn simple(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let Some(&id) = node.inputs.first() else { return Err(self.broken(node, "has no input")) };
        let (x, shape, real) = (self.src(id), self.shape(id), self.is_real(id));
        let behind = |axis: usize| shape[axis + 1..].iter().product::<usize>();
        match &node.op {
            Op::Copy => self.each(node, Copy(x)),
            Op::ConvertStorage => self.each(node, ConvertStorage { x, to_real: !real }),
            Op::Cast(op) => {
                let to_real = self.is_real(self.output(node)?);
                self.each(node, Cast { x, op: *op, from_real: real, to_real })
            }
            Op::Unary(op) if real => self.each(node, RealUnary { op: *op, x }),
            Op::Unary(op) => self.each(node, IntUnary { op: *op, x }),
            Op::Softmax { axis, beta, log } => {
                self.each(node, Softmax { x, n: shape[*axis], inner: behind(*axis), beta: *beta, log: *log })
            }
            Op::Reduce { op, axes } if real => self.each(node, RealReduce { op: *op, x, axes: Axes::new(shape, axes) }),
            Op::Reduce { op, axes } => self.each(node, IntReduce { op: *op, x, axes: Axes::new(shape, axes) }),
            Op::Argmax { axis } => self.each(node, Argmax { x, real, axes: Axes::new(shape, &[*axis]) }),
            Op::CumulativeSum { axis, exclusive, reverse } => {
                let (n, inner) = (shape[*axis], behind(*axis));
                self.each(node, CumulativeSum { x, real, n, inner, exclusive: *exclusive, reverse: *reverse })
            }
            Op::TopK { k, largest, indices } => {
                let (n, dst) = (shape.last().copied().unwrap_or(1), self.dst(self.output(node)?));
                Ok(Box::new(TopK { x, real, n, k: *k, largest: *largest, indices: *indices, dst }))
            }
            Op::L2Norm { axes, epsilon } => {
                let reduced = Axes::new(shape, axes);
                let (shape, epsilon) = (shape.to_vec(), *epsilon);
                self.each(node, L2Norm { x, axes: reduced, shape, reduced: axes.clone(), epsilon })
            }
            Op::Transpose { perm } => self.each(node, Strided { x, walk: Walk::transpose(shape, perm) }),
            Op::Slice { begin, stride, counts } => {
                self.each(node, Strided { x, walk: Walk::slice(shape, begin, stride, counts) })
            }
            Op::Tile { multiples } => self.each(node, Strided { x, walk: Walk::tile(shape, multiples) }),
            Op::Concat { axis } => {
                let part = |&id: &ValueId| (self.src(id), self.shape(id)[*axis..].iter().product());
                let parts: Vec<_> = node.inputs.iter().map(part).collect();
                let row = parts.iter().map(|(_, n): &(_, usize)| n).sum::<usize>().max(1);
                self.each(node, Concat { parts, row })
            }
            Op::Pad { before, scheme } => {
                let fill = match scheme {
                    PadScheme::Constant(value) if real => (*value as f32).to_bits(),
                    PadScheme::Constant(value) => (*value as i32).cast_unsigned(),
                    _ => 0,
                };
                let padded = self.padded(node, shape, before)?;
                let (shape, before) = (shape.to_vec(), before.clone());
                self.each(node, Pad { x, shape, padded, before, scheme: *scheme, fill })
            }
            _ => Err(self.broken(node, "has no step")),
        }
    }

    /// Extents after padding, axis by axis as the input has them.
    fn padded(&self, node: &Node, shape: &[usize], before: &[usize]) -> Result<Vec<usize>, ExecError> {
        let out = self.shape(self.output(node)?);
        if out.len() != shape.len() || before.len() != shape.len() {
            return Err(ExecError::Unsupported {
                node: node.name.to_string(),
                op: "Pad".to_owned(),
                why: format!("an output of {} axes for an input of {}", out.len(), shape.len()),
            });
        }
        Ok(out.to_vec())
    }

    fn binary(&self, node: &Node, op: BinaryOp) -> Result<Box<dyn Step>, ExecError> {
        let &[a, b] = node.inputs.as_slice() else { return Err(self.broken(node, "needs two inputs")) };
        let to =
            broadcast_shape(self.shape(a), self.shape(b)).ok_or_else(|| self.broken(node, "does not broadcast"))?;
        let walk = Walk::broadcast(&to, [self.shape(a), self.shape(b)]);
        let pair = Pair { op, a: self.src(a), b: self.src(b), walk };
        match (self.is_real(a), op.is_comparison()) {
            (true, true) => self.each(node, RealComparison(pair)),
            (true, false) => self.each(node, RealBinary(pair)),
            (false, _) => self.each(node, IntBinary(pair)),
        }
    }

    fn select(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let &[c, a, b] = node.inputs.as_slice() else { return Err(self.broken(node, "needs three inputs")) };
        let shapes = [self.shape(c), self.shape(a), self.shape(b)];
        let to = broadcast_shape(shapes[0], shapes[1]).and_then(|to| broadcast_shape(&to, shapes[2]));
        let to = to.ok_or_else(|| self.broken(node, "does not broadcast"))?;
        let walk = Walk::broadcast(&to, shapes);
        self.each(node, Select { condition: self.src(c), a: self.src(a), b: self.src(b), walk })
    }

    fn mat_mul(
        &self,
        node: &Node,
        transpose_a: bool,
        transpose_b: bool,
        bias: bool,
    ) -> Result<Box<dyn Step>, ExecError> {
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let matrix = |id, transpose: bool| {
            let (batch, &[rows, cols]) = self.shape(id).split_last_chunk::<2>()?;
            Some((batch, if transpose { [cols, rows] } else { [rows, cols] }))
        };
        let (Some((batch_a, [m, k])), Some((batch_b, [_, n]))) = (matrix(a, transpose_a), matrix(b, transpose_b))
        else {
            return Err(self.broken(node, "multiplies no matrices"));
        };
        let to = broadcast_shape(batch_a, batch_b).ok_or_else(|| self.broken(node, "does not broadcast"))?;
        let batches = MatMul::batches(&to, batch_a, batch_b, m * k, k * n);
        let bias = bias.then(|| self.src(node.inputs[2]));
        let (a, b) = (self.src(a), self.src(b));
        self.each(node, MatMul { a, b, bias, m, k, n, transpose_a, transpose_b, batches })
    }

    fn conv2d(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let four = |id| <[usize; 4]>::try_from(self.shape(id)).map_err(|_| self.broken(node, "needs four axes"));
        let (input, weights) = (four(node.inputs[0])?, four(node.inputs[1])?);
        let Op::Conv2d { stride, pad, dilation, groups, bias } = node.op else {
            return Err(self.broken(node, "is no convolution"));
        };
        let extent = |n: usize, axis: usize| {
            (n + pad[axis][0] + pad[axis][1] - (weights[axis] - 1) * dilation[axis] - 1) / stride[axis] + 1
        };
        let conv = Conv2d {
            x: self.src(node.inputs[0]),
            w: self.src(node.inputs[1]),
            bias: bias.then(|| self.src(node.inputs[2])),
            input,
            weights,
            out: [extent(input[1], 0), extent(input[2], 1)],
            stride,
            before: [pad[0][0], pad[1][0]],
            dilation,
            groups,
        };
        self.each(node, conv)
    }

    fn norm(
        &self,
        node: &Node,
        kind: NormKind,
        epsilon: f32,
        gamma: bool,
        beta: bool,
    ) -> Result<Box<dyn Step>, ExecError> {
        let mut rest = node.inputs[1..].iter().map(|&id| self.src(id));
        let gamma = if gamma { rest.next() } else { None };
        let beta = if beta { rest.next() } else { None };
        let x = self.src(node.inputs[0]);
        let width = self.shape(node.inputs[0]).last().copied().unwrap_or(1);
        match gamma {
            Some(gamma) if self.fast && kind == NormKind::Rms => {
                self.each(node, FastRmsNorm { x, gamma, beta, width, epsilon })
            }
            gamma => self.each(node, Norm { kind, x, gamma, beta, width, epsilon }),
        }
    }

    fn rope(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let Op::Rope { interleaved, rotated, by_row } = node.op else {
            return Err(self.broken(node, "rotates nothing"));
        };
        let (shape, cos, sin) = (self.shape(node.inputs[0]), self.src(node.inputs[1]), self.src(node.inputs[2]));
        let x = self.src(node.inputs[0]);
        let &[ref batch @ .., outer, dim] = shape else { return Err(self.broken(node, "rotates no rows")) };
        let (rows, heads) = match batch {
            [.., rows] if by_row => (*rows, outer),
            _ => (outer, 1),
        };
        let tables = if rows * rotated == 0 { 1 } else { cos.n / (rows * rotated / 2) };
        if self.fast && tables == 1 && rotated > 0 {
            return self.each(node, FastRotate { x, cos, sin, rows, heads, dim, rotated, interleaved });
        }
        if by_row {
            return Err(self.broken(node, "rotates by row with several tables"));
        }
        let rows_per_table = (batch.iter().product::<usize>() / tables.max(1) * rows).max(1);
        self.each(node, Rotate { x, cos, sin, rows, rows_per_table, dim, rotated, interleaved })
    }

    fn gather(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let (table, index) = (node.inputs[0], node.inputs[1]);
        let (shape, index_shape) = (self.shape(table), self.shape(index));
        match node.op {
            Op::Gather { axis } => {
                if let Some(Constant { bytes, packing: Some(packing), .. }) = self.net.constant(table) {
                    let shape = [shape[0], shape[1]];
                    let (bytes, index) = (bytes.clone(), self.src(index));
                    return self.each(node, GatherPacked { bytes, packing: *packing, index, shape });
                }
                let inner = shape[axis + 1..].iter().product::<usize>().max(1);
                self.each(node, Gather { table: self.table(table), index: self.src(index), limit: shape[axis], inner })
            }
            Op::GatherElements { axis } => {
                let (table_shape, index_shape) = (shape.to_vec(), index_shape.to_vec());
                let (table, index) = (self.src(table), self.src(index));
                self.each(node, GatherElements { table, index, table_shape, index_shape, axis })
            }
            Op::GatherNd { batch_dims } => {
                let depth = index_shape.last().copied().unwrap_or(0);
                let limits = shape[batch_dims..batch_dims + depth].to_vec();
                let inner = shape[batch_dims + depth..].iter().product::<usize>().max(1);
                let places = index_shape[batch_dims..index_shape.len() - 1].iter().product::<usize>().max(1);
                let (table, index) = (self.src(table), self.src(index));
                self.each(node, GatherNd { table, index, limits, inner, places_per_batch: places })
            }
            _ => Err(self.broken(node, "gathers nothing")),
        }
    }

    fn scatter(&self, node: &Node, op: ScatterOp, places: Places) -> Result<Box<dyn Step>, ExecError> {
        let real = self.is_real(node.inputs[0]);
        let [data, index, updates] = [0, 1, 2].map(|i| self.src(node.inputs[i]));
        let dst = self.dst(self.output(node)?);
        Ok(Box::new(Scatter { op, real, data, index, updates, places, dst }))
    }
}

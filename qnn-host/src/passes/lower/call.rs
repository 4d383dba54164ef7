//! One QNN node while it is lowered: its operands and parameters, checked as they are asked for.

use super::Lower;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::typed::{Node as TypedNode, Source, TypedGraph, ValueId};
use crate::ir::{Node, Param, Role};
use crate::storage::{Rounding, Storage};

/// A node and the net it is lowered into.
pub(crate) struct Call<'a, 'g> {
    lower: &'a mut Lower<'g>,
    pub(crate) node: &'g Node,
}

impl<'a, 'g> Call<'a, 'g> {
    /// Checks that the inputs exist by now and that the outputs may be written.
    pub(super) fn new(lower: &'a mut Lower<'g>, node: &'g Node) -> Result<Self, ExecError> {
        for &id in &node.inputs {
            let tensor = lower.graph.tensor(id);
            if !lower.written[id.0 as usize] && !matches!(tensor.role, Role::Null) {
                let what = format!("node `{}` reads `{}` before a node has written it", node.name, tensor.name);
                return Err(lower.fault(what));
            }
        }
        for &id in &node.outputs {
            let tensor = lower.graph.tensor(id);
            if lower.written[id.0 as usize] || !matches!(tensor.role, Role::Native | Role::Output) {
                let what = format!("node `{}` writes `{}`, which has its contents already", node.name, tensor.name);
                return Err(lower.fault(what));
            }
        }
        Ok(Self { lower, node })
    }

    pub(crate) fn op(&self) -> &'g str {
        &self.node.op
    }

    pub(crate) fn net(&self) -> &TypedGraph {
        &self.lower.net
    }

    pub(crate) fn net_mut(&mut self) -> &mut TypedGraph {
        &mut self.lower.net
    }

    pub(crate) fn shape(&self, id: ValueId) -> Vec<usize> {
        self.lower.net.shape(id).to_vec()
    }

    pub(crate) fn kind(&self, id: ValueId) -> Storage {
        self.lower.net.value(id).storage()
    }

    pub(crate) fn n_elems(&self, id: ValueId) -> usize {
        self.lower.net.value(id).n_elems()
    }

    /// Inputs that were not left out at the end.
    pub(crate) fn n_inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// Input `i`, if it is there.
    pub(crate) fn optional(&self, i: usize) -> Option<ValueId> {
        let &id = self.node.inputs.get(i)?;
        (!matches!(self.lower.graph.tensor(id).role, Role::Null)).then(|| Lower::id_of(id))
    }

    /// Input `i`.
    pub(crate) fn input(&self, i: usize) -> Result<ValueId, ExecError> {
        self.optional(i).ok_or_else(|| self.bad("inputs", format!("at least {}", i + 1), self.node.inputs.len()))
    }

    /// Input `i` as numbers; integers are converted.
    pub(crate) fn real(&mut self, i: usize) -> Result<ValueId, ExecError> {
        let id = self.input(i)?;
        Ok(self.as_real(id))
    }

    /// Input `i` as numbers, if it is there.
    pub(crate) fn optional_real(&mut self, i: usize) -> Option<ValueId> {
        let id = self.optional(i)?;
        Some(self.as_real(id))
    }

    /// Input `i`, which must be integers.
    pub(crate) fn int(&self, i: usize) -> Result<ValueId, ExecError> {
        let id = self.input(i)?;
        if self.kind(id) != Storage::I32 {
            return Err(self.bad(&format!("input {i}"), "integers", format!("{:?}", self.net().value(id).dtype)));
        }
        Ok(id)
    }

    pub(crate) fn as_real(&mut self, id: ValueId) -> ValueId {
        self.as_storage(id, Storage::F32)
    }

    /// The value, or a conversion of it.
    pub(crate) fn as_storage(&mut self, id: ValueId, kind: Storage) -> ValueId {
        if self.kind(id) == kind {
            return id;
        }
        let shape = self.shape(id);
        let temp = self.temp(&shape, kind);
        self.emit_to(Op::ConvertStorage, &[id], temp);
        temp
    }

    /// Output `i`.
    pub(crate) fn output(&self, i: usize) -> Result<ValueId, ExecError> {
        match self.node.outputs.get(i) {
            Some(&id) => Ok(Lower::id_of(id)),
            None => Err(self.bad("outputs", format!("at least {}", i + 1), self.node.outputs.len())),
        }
    }

    /// Output `i`, whose extents must be `shape`; ones may come and go.
    pub(crate) fn output_shaped(&self, i: usize, shape: &[usize]) -> Result<ValueId, ExecError> {
        let id = self.output(i)?;
        let found = self.net().shape(id);
        let extents = |shape: &[usize]| shape.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
        if extents(found) != extents(shape) {
            return Err(self.bad(&format!("shape of output {i}"), format!("{shape:?}"), format!("{found:?}")));
        }
        Ok(id)
    }

    /// A value between two operations of one node.
    pub(crate) fn temp(&mut self, shape: &[usize], kind: Storage) -> ValueId {
        self.lower.net.add_temp(&self.node.name, shape, kind)
    }

    /// Adds an operation that writes `output`, one of this node's tensors of that kind; converts if it is of the other.
    pub(crate) fn emit_as(&mut self, op: Op, inputs: &[ValueId], output: ValueId, kind: Storage) {
        if self.kind(output) == kind {
            return self.emit(op, inputs, output);
        }
        let shape = self.shape(output);
        let temp = self.temp(&shape, kind);
        self.emit_to(op, inputs, temp);
        self.emit(Op::ConvertStorage, &[temp], output);
    }

    /// Adds an operation that writes `output`, one of this node's tensors, and its store if a client sees it.
    pub(crate) fn emit(&mut self, op: Op, inputs: &[ValueId], output: ValueId) {
        self.emit_to(op, inputs, output);
        self.finish(output);
    }

    /// Adds an operation that writes a temporary value.
    pub(crate) fn emit_to(&mut self, op: Op, inputs: &[ValueId], output: ValueId) {
        let name = self.node.name.as_str().into();
        self.lower.net.nodes.push(TypedNode { name, op, inputs: inputs.to_vec(), output: Some(output) });
    }

    /// Makes `output` the same elements as `input`: a view where rounding allows it, else a copy.
    pub(crate) fn view(&mut self, input: ValueId, output: ValueId) -> Result<(), ExecError> {
        if self.n_elems(input) != self.n_elems(output) {
            let (expected, found) = (self.shape(input), self.shape(output));
            return Err(self.bad("elements of the output", format!("as {expected:?}"), format!("{found:?}")));
        }
        if self.kind(input) != self.kind(output) {
            self.emit(Op::ConvertStorage, &[input], output);
            return Ok(());
        }
        let net = &mut self.lower.net;
        let root = net.root(input);
        let wanted = net.value(output).rounding;
        let given = net.value(root).rounded();
        // Nobody else reads what is viewed, so it may be rounded where it is written.
        let alone = (root.0 as usize) < self.lower.readers.len()
            && self.lower.readers[root.0 as usize] == 1
            && root == input
            && self.lower.output[root.0 as usize].is_none();
        let is_node = matches!(net.value(root).source, Source::Node);
        if wanted != Rounding::None && wanted != given {
            if !(alone && is_node && given == Rounding::None) {
                self.emit(Op::Copy, &[input], output);
                return Ok(());
            }
            net.values[root.0 as usize].rounding = wanted;
        }
        net.values[output.0 as usize].source = Source::View(input);
        self.finish(output);
        Ok(())
    }

    fn finish(&mut self, output: ValueId) {
        self.lower.written[output.0 as usize] = true;
        if let Some(port) = self.lower.output[output.0 as usize] {
            let name = std::sync::Arc::clone(&self.lower.net.outputs[port].name);
            let op = Op::Store { output: port };
            self.lower.net.nodes.push(TypedNode { name, op, inputs: vec![output], output: None });
        }
    }

    /// An integer or boolean parameter.
    pub(crate) fn int_param(&self, name: &str) -> Result<Option<i64>, ExecError> {
        match self.node.param(name) {
            None => Ok(None),
            Some(&Param::Int(value)) => Ok(Some(value)),
            Some(&Param::UInt(value)) => Ok(Some(i64::try_from(value).unwrap_or(i64::MAX))),
            Some(&Param::Bool(value)) => Ok(Some(i64::from(value))),
            Some(other) => Err(self.bad_param(name, "an integer", other)),
        }
    }

    pub(crate) fn bool_param(&self, name: &str) -> Result<bool, ExecError> {
        Ok(self.int_param(name)?.unwrap_or(0) != 0)
    }

    pub(crate) fn float_param(&self, name: &str, default: f32) -> Result<f32, ExecError> {
        match self.node.param(name) {
            None => Ok(default),
            Some(&Param::F32(value)) => Ok(value),
            Some(&Param::Int(value)) => Ok(value as f32),
            Some(&Param::UInt(value)) => Ok(value as f32),
            Some(other) => Err(self.bad_param(name, "a number", other)),
        }
    }

    /// A tensor parameter of integers; a scalar counts as one.
    pub(crate) fn ints_param(&self, name: &str) -> Result<Option<Vec<i64>>, ExecError> {
        match self.node.param(name) {
            Some(Param::Ints(_, values)) => Ok(Some(values.clone())),
            Some(Param::Int(_) | Param::UInt(_)) => Ok(self.int_param(name)?.map(|value| vec![value])),
            None => Ok(None),
            Some(other) => Err(self.bad_param(name, "integers", other)),
        }
    }

    /// A tensor parameter that must be there, with `n` values of zero or more.
    pub(crate) fn sizes_param(&self, name: &str, n: usize) -> Result<Vec<usize>, ExecError> {
        let Some(values) = self.ints_param(name)? else {
            return Err(self.bad(&format!("parameter `{name}`"), format!("{n} integers"), "none"));
        };
        let sizes: Vec<usize> = values.iter().filter_map(|&v| usize::try_from(v).ok()).collect();
        if values.len() != n || sizes.len() != n {
            return Err(self.bad(&format!("parameter `{name}`"), format!("{n} sizes"), format!("{values:?}")));
        }
        Ok(sizes)
    }

    /// An axis of a tensor of that rank; negative ones count from the end.
    pub(crate) fn axis_param(&self, name: &str, default: i64, rank: usize) -> Result<usize, ExecError> {
        self.check_axis(name, self.int_param(name)?.unwrap_or(default), rank)
    }

    pub(crate) fn check_axis(&self, name: &str, axis: i64, rank: usize) -> Result<usize, ExecError> {
        let from_start = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        usize::try_from(from_start)
            .ok()
            .filter(|&a| a < rank)
            .ok_or_else(|| self.bad(&format!("parameter `{name}`"), format!("an axis below {rank}"), axis))
    }

    /// The `axes` parameter: distinct, ascending.
    pub(crate) fn axes_param(&self, rank: usize) -> Result<Option<Vec<usize>>, ExecError> {
        let Some(values) = self.ints_param("axes")? else { return Ok(None) };
        let mut axes = values.iter().map(|&a| self.check_axis("axes", a, rank)).collect::<Result<Vec<_>, _>>()?;
        axes.sort_unstable();
        axes.dedup();
        Ok(Some(axes))
    }

    pub(crate) fn bad(&self, what: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> ExecError {
        ExecError::Node {
            node: self.node.name.clone(),
            op: self.node.op.clone(),
            what: what.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    fn bad_param(&self, name: &str, expected: &str, found: &Param) -> ExecError {
        self.bad(&format!("parameter `{name}`"), expected, format!("{found:?}"))
    }

    pub(crate) fn unsupported(&self, why: impl Into<String>) -> ExecError {
        ExecError::Unsupported { node: self.node.name.clone(), op: self.node.op.clone(), why: why.into() }
    }
}

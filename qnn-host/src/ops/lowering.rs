//! One checked node while it is lowered: its operands as values, and the typed operations that it becomes.

use std::ops::Deref;
use std::sync::Arc;

use super::call::Call;
use crate::graph::Violation;
use crate::graph::op::Op;
use crate::graph::typed::{self, Source, TypedGraph, ValueId};
use crate::ir::{SourceGraph, TensorId};
use crate::storage::{Rounding, Storage};

/// The typed graph so far, and what is known of the source's tensors. A tensor's value has the tensor's index.
pub(crate) struct GraphLowering<'g> {
    pub(crate) source: &'g SourceGraph,
    pub(crate) typed: TypedGraph,
    /// How many node inputs each tensor is.
    pub(crate) readers: Vec<u32>,
    /// Whether its contents exist by now.
    pub(crate) written: Vec<bool>,
    /// Which of the graph's outputs it is.
    pub(crate) output: Vec<Option<usize>>,
}

/// A node that [`check`](super::check) accepted, and the graph it is lowered into.
pub(crate) struct Lowering<'a, 'g> {
    graph: &'a mut GraphLowering<'g>,
    call: Call<'g>,
}

impl<'g> Deref for Lowering<'_, 'g> {
    type Target = Call<'g>;

    fn deref(&self) -> &Call<'g> {
        &self.call
    }
}

fn id_of(tensor: TensorId) -> ValueId {
    ValueId(tensor.0)
}

impl<'a, 'g> Lowering<'a, 'g> {
    pub(crate) fn new(graph: &'a mut GraphLowering<'g>, call: Call<'g>) -> Self {
        Self { graph, call }
    }

    pub(crate) fn typed(&self) -> &TypedGraph {
        &self.graph.typed
    }

    pub(crate) fn typed_mut(&mut self) -> &mut TypedGraph {
        &mut self.graph.typed
    }

    pub(crate) fn shape(&self, id: ValueId) -> Vec<usize> {
        self.typed().shape(id).to_vec()
    }

    pub(crate) fn storage(&self, id: ValueId) -> Storage {
        self.typed().value(id).storage()
    }

    pub(crate) fn n_elems(&self, id: ValueId) -> usize {
        self.typed().value(id).n_elems()
    }

    /// Input `i`, if it is there.
    pub(crate) fn optional(&self, i: usize) -> Option<ValueId> {
        self.optional_tensor(i).map(|_| id_of(self.node.inputs[i]))
    }

    /// Input `i`.
    pub(crate) fn input(&self, i: usize) -> Result<ValueId, Violation> {
        self.tensor(i).map(|_| id_of(self.node.inputs[i]))
    }

    /// Input `i` as numbers; integers are converted.
    pub(crate) fn real(&mut self, i: usize) -> Result<ValueId, Violation> {
        let id = self.input(i)?;
        Ok(self.as_real(id))
    }

    /// Input `i` as numbers, if it is there.
    pub(crate) fn optional_real(&mut self, i: usize) -> Option<ValueId> {
        let id = self.optional(i)?;
        Some(self.as_real(id))
    }

    /// Input `i`, which must be integers.
    pub(crate) fn int(&self, i: usize) -> Result<ValueId, Violation> {
        let id = self.input(i)?;
        if self.storage(id) != Storage::I32 {
            return Err(self.bad_input(i, "integers".into(), format!("{:?}", self.typed().value(id).dtype)));
        }
        Ok(id)
    }

    pub(crate) fn as_real(&mut self, id: ValueId) -> ValueId {
        self.as_storage(id, Storage::F32)
    }

    /// The value, or a conversion of it.
    pub(crate) fn as_storage(&mut self, id: ValueId, storage: Storage) -> ValueId {
        if self.storage(id) == storage {
            return id;
        }
        let shape = self.shape(id);
        let temp = self.temp(&shape, storage);
        self.emit_to(Op::ConvertStorage, &[id], temp);
        temp
    }

    /// Output `i`, which the node's arity promises.
    pub(crate) fn output(&self, i: usize) -> ValueId {
        id_of(self.node.outputs[i])
    }

    /// A value between two operations of one node.
    pub(crate) fn temp(&mut self, shape: &[usize], storage: Storage) -> ValueId {
        let name = &self.call.node.name;
        self.graph.typed.add_temp(name, shape, storage)
    }

    /// Adds an operation that writes `output`, one of this node's tensors, in that storage; converts if it has the other.
    pub(crate) fn emit_as(&mut self, op: Op, inputs: &[ValueId], output: ValueId, storage: Storage) {
        if self.storage(output) == storage {
            return self.emit(op, inputs, output);
        }
        let shape = self.shape(output);
        let temp = self.temp(&shape, storage);
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
        self.graph.typed.nodes.push(typed::Node { name, op, inputs: inputs.to_vec(), output: Some(output) });
    }

    /// Adds an operation that stores what it makes by itself; `output` is what other nodes read of it.
    pub(crate) fn push(&mut self, op: Op, inputs: &[ValueId], output: Option<ValueId>) {
        let name = self.node.name.as_str().into();
        self.graph.typed.nodes.push(typed::Node { name, op, inputs: inputs.to_vec(), output });
    }

    /// Which of the graph's outputs a value is.
    pub(crate) fn port(&self, id: ValueId) -> Option<usize> {
        self.graph.output[id.0 as usize]
    }

    /// How many inputs of nodes a tensor's value is.
    pub(crate) fn n_readers(&self, id: ValueId) -> u32 {
        self.graph.readers[id.0 as usize]
    }

    /// Says that a tensor's contents exist from now on.
    pub(crate) fn mark_written(&mut self, id: ValueId) {
        self.graph.written[id.0 as usize] = true;
    }

    /// The graph that is lowered.
    pub(crate) fn source(&self) -> &'g SourceGraph {
        self.graph.source
    }

    /// Makes `output` the same elements as `input`, which has as many: a view where rounding allows it, else a copy.
    pub(crate) fn view(&mut self, input: ValueId, output: ValueId) {
        if self.storage(input) != self.storage(output) {
            return self.emit(Op::ConvertStorage, &[input], output);
        }
        let graph = &mut *self.graph;
        let typed = &mut graph.typed;
        let root = typed.root(input);
        let wanted = typed.value(output).rounding;
        let given = typed.value(root).rounded();
        // No other node reads what is viewed, so it may be rounded where it is written.
        let alone = (root.0 as usize) < graph.readers.len()
            && graph.readers[root.0 as usize] == 1
            && root == input
            && graph.output[root.0 as usize].is_none();
        let is_node = matches!(typed.value(root).source, Source::Node);
        if wanted != Rounding::None && wanted != given {
            if !(alone && is_node && given == Rounding::None) {
                return self.emit(Op::Copy, &[input], output);
            }
            typed.values[root.0 as usize].rounding = wanted;
        }
        typed.values[output.0 as usize].source = Source::View(input);
        self.finish(output);
    }

    fn finish(&mut self, output: ValueId) {
        self.graph.written[output.0 as usize] = true;
        if let Some(port) = self.graph.output[output.0 as usize] {
            let name = Arc::clone(&self.graph.typed.outputs[port].name);
            let op = Op::Store { output: port };
            self.graph.typed.nodes.push(typed::Node { name, op, inputs: vec![output], output: None });
        }
    }
}

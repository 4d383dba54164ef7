//! The form of a graph that passes work on: typed operations over values, in execution order.
//!
//! *Units and dtype*: a [`Storage::F32`] value is kept as `f32` (between steps of a matrix unit as bf16: `exec::tiles`), a [`Storage::I32`] value as `i32`; client inputs and constants
//! keep their declared type until a node that cannot read it makes `legalize` add a conversion.
//! *Invariants*: every node has at most one output; a node stands after the nodes that write its inputs; a view has as
//! many elements as what it views, in the same order. A rewrite replaces the last node of what it fuses, so the order
//! holds by itself, and leaves the others to dead-node elimination.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::graph::op::Op;
use crate::ir::{Dtype, Quant};
use crate::kernels::packed::Packing;
use crate::storage::{QuantGrid, Rounding, Storage};

/// Index of a [`Value`] in its [`TypedGraph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(pub(crate) u32);

/// Fixed contents.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) bytes: Bytes,
    pub(crate) dtype: Dtype,
    pub(crate) quant: Quant,
    /// The bytes are no longer as declared but packed for the product kernels; only steps that support the packing read them.
    pub(crate) packing: Option<Packing>,
    /// What is taken off packed weights, packed as well.
    pub(crate) minima: Option<Bytes>,
}

impl Constant {
    /// Contents as declared.
    pub(crate) fn new(bytes: Bytes, dtype: Dtype, quant: Quant) -> Self {
        Self { bytes, dtype, quant, packing: None, minima: None }
    }
}

/// Where a value's contents come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A node that lists it as its output.
    Node,
    /// The client's input buffer of that index.
    Input(usize),
    /// Fixed.
    Const(Constant),
    /// The same elements as another value.
    View(ValueId),
}

/// A tensor between nodes.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) name: Arc<str>,
    pub(crate) shape: Vec<usize>,
    /// As declared: what a client buffer, or a cast, makes of it.
    pub(crate) dtype: Dtype,
    pub(crate) quant: Quant,
    pub(crate) rounding: Rounding,
    pub(crate) source: Source,
}

impl Value {
    pub(crate) fn storage(&self) -> Storage {
        Storage::of(self.dtype)
    }

    pub(crate) fn n_elems(&self) -> usize {
        self.shape.iter().product()
    }

    /// The grid of its declared type, if that is fixed-point.
    pub(crate) fn grid(&self) -> Option<QuantGrid> {
        QuantGrid::of(self.dtype, &self.quant)
    }

    /// Rounding that leaves its numbers as they are: that by which it was written, or that of the client's type.
    pub(crate) fn rounded(&self) -> Rounding {
        match (&self.source, self.grid()) {
            (Source::Input(_), Some(grid)) => Rounding::Quantised(grid),
            (Source::Input(_), None) if self.dtype == Dtype::F16 => Rounding::F16,
            _ => self.rounding,
        }
    }
}

/// One typed operation.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Of the QNN node it came from; of the last one, when fused.
    pub(crate) name: Arc<str>,
    pub(crate) op: Op,
    pub(crate) inputs: Vec<ValueId>,
    /// `None` for stores into client buffers.
    pub(crate) output: Option<ValueId>,
}

/// A client buffer: an input or output of the graph.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) name: Arc<str>,
    pub(crate) n_elems: usize,
    pub(crate) dtype: Dtype,
    pub(crate) quant: Quant,
}

/// A graph of typed operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypedGraph {
    pub(crate) name: String,
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
}

/// Who writes and who reads each value, views resolved to their roots; a snapshot.
pub(crate) struct Uses {
    producer: Vec<Option<usize>>,
    readers: Vec<u32>,
}

impl Uses {
    /// Index of the node that writes the value.
    pub(crate) fn producer(&self, net: &TypedGraph, id: ValueId) -> Option<usize> {
        self.producer[net.root(id).0 as usize]
    }

    /// How many operands are this value, stores included.
    pub(crate) fn readers(&self, net: &TypedGraph, id: ValueId) -> u32 {
        self.readers[net.root(id).0 as usize]
    }
}

impl TypedGraph {
    pub(crate) fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    pub(crate) fn shape(&self, id: ValueId) -> &[usize] {
        &self.value(id).shape
    }

    /// The value that owns the elements.
    pub(crate) fn root(&self, mut id: ValueId) -> ValueId {
        while let Source::View(of) = self.value(id).source {
            id = of;
        }
        id
    }

    /// The fixed contents of a value, if it has any.
    pub(crate) fn constant(&self, id: ValueId) -> Option<&Constant> {
        match &self.value(self.root(id)).source {
            Source::Const(constant) => Some(constant),
            _ => None,
        }
    }

    pub(crate) fn add_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    /// A value that a node will write, unrounded.
    pub(crate) fn add_temp(&mut self, name: &str, shape: &[usize], kind: Storage) -> ValueId {
        let dtype = match kind {
            Storage::F32 => Dtype::F32,
            Storage::I32 => Dtype::I32,
        };
        self.add_value(Value {
            name: name.into(),
            shape: shape.to_vec(),
            dtype,
            quant: Quant::None,
            rounding: Rounding::None,
            source: Source::Node,
        })
    }

    /// The same elements under another shape.
    pub(crate) fn add_view(&mut self, of: ValueId, shape: &[usize]) -> ValueId {
        let value = Value { shape: shape.to_vec(), source: Source::View(of), ..self.value(of).clone() };
        self.add_value(value)
    }

    pub(crate) fn uses(&self) -> Uses {
        let mut uses = Uses { producer: vec![None; self.values.len()], readers: vec![0; self.values.len()] };
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(output) = node.output {
                uses.producer[self.root(output).0 as usize] = Some(index);
            }
            for &input in &node.inputs {
                uses.readers[self.root(input).0 as usize] += 1;
            }
        }
        uses
    }
}

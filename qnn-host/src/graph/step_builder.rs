//! From a placed graph to operands of steps: where each value lies, and in which type.

use super::ExecError;
use super::codec::decode;
use super::typed::{Node, Source, TypedGraph, ValueId};
use crate::ir::{Dtype, Quant};
use crate::kernels::linear::Form;
use crate::step::{Dst, Each, Fill, Place, RunContext, Src, Step};
use crate::storage::{QuantGrid, Storage};

/// Elements stored as they were declared.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) src: Src,
    /// How quantised values become numbers.
    pub(crate) grid: Option<QuantGrid>,
}

impl Table {
    /// Elements from `at` on, as lanes.
    pub(crate) fn read(&self, cx: &RunContext<'_>, at: usize, out: &mut [u32]) {
        let size = self.src.dtype.size_bytes();
        let bytes = &cx.bytes(&self.src)[at * size..(at + out.len()) * size];
        decode(cx.isa, bytes, self.src.dtype, self.grid, out);
    }
}

/// A placed graph, as ops see it that make steps.
pub(crate) struct StepBuilder<'n> {
    pub(crate) graph: &'n TypedGraph,
    /// Where each value lies in the arena.
    pub(crate) offsets: Vec<usize>,
    /// Whether each value lies in tiles of bf16.
    pub(crate) in_tiles: Vec<bool>,
    /// Use the vector kernels.
    pub(crate) fast: bool,
}

impl StepBuilder<'_> {
    /// An operand, wherever it is.
    pub(crate) fn src(&self, id: ValueId) -> Src {
        let root = self.graph.root(id);
        let value = self.graph.value(root);
        let n = value.n_elems();
        match &value.source {
            Source::Const(constant) => Src { place: Place::Const(constant.bytes.clone()), n, dtype: constant.dtype },
            Source::Input(index) => Src { place: Place::Input(*index), n, dtype: value.dtype },
            Source::Node | Source::View(_) => {
                let dtype = if value.storage() == Storage::F32 { Dtype::F32 } else { Dtype::I32 };
                Src { place: Place::Arena(self.offsets[root.0 as usize]), n, dtype }
            }
        }
    }

    pub(crate) fn dst(&self, id: ValueId) -> Dst {
        let root = self.graph.root(id);
        Dst { offset: self.offsets[root.0 as usize], n: self.graph.value(root).n_elems() }
    }

    /// An operand in its declared type, with its encoding.
    pub(crate) fn table(&self, id: ValueId) -> Table {
        let value = self.graph.value(self.graph.root(id));
        let (dtype, quant) = match &value.source {
            Source::Const(constant) => (constant.dtype, &constant.quant),
            Source::Input(_) => (value.dtype, &value.quant),
            Source::Node | Source::View(_) => (Dtype::F32, &Quant::None),
        };
        Table { src: self.src(id), grid: QuantGrid::of(dtype, quant) }
    }

    /// How the rows of a value lie in memory.
    pub(crate) fn form(&self, id: ValueId) -> Form {
        if self.in_tiles[self.graph.root(id).0 as usize] { Form::Tiles } else { Form::Rows }
    }

    pub(crate) fn shape(&self, id: ValueId) -> &[usize] {
        self.graph.shape(id)
    }

    pub(crate) fn is_real(&self, id: ValueId) -> bool {
        self.graph.value(id).storage() == Storage::F32
    }

    /// Elements behind an axis of a value.
    pub(crate) fn behind(&self, id: ValueId, axis: usize) -> usize {
        self.shape(id)[axis + 1..].iter().product()
    }

    /// Operand `i` of a node.
    pub(crate) fn input(&self, node: &Node, i: usize) -> Result<ValueId, ExecError> {
        node.inputs.get(i).copied().ok_or_else(|| self.broken(node, &format!("has no input {i}")))
    }

    /// A step that fills the node's output, any part of it on any thread.
    pub(crate) fn each<F: Fill + 'static>(&self, node: &Node, fill: F) -> Result<Box<dyn Step>, ExecError> {
        let output = self.output(node)?;
        let rounding = self.graph.value(self.graph.root(output)).rounding;
        Ok(Box::new(Each { fill, dst: self.dst(output), rounding }))
    }

    /// What a node writes.
    pub(crate) fn output(&self, node: &Node) -> Result<ValueId, ExecError> {
        node.output.ok_or_else(|| self.broken(node, "has no output"))
    }

    /// A contradiction that no checked graph leads to.
    pub(crate) fn broken(&self, node: &Node, what: &str) -> ExecError {
        let what = format!("node `{}` ({}) {what}: a bug of a pass", node.name, node.op.label());
        ExecError::Graph { graph: self.graph.name.clone(), what }
    }
}

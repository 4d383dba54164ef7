//! From a legal net to steps: groups what runs together, places values, resolves operands.

use crate::exec::load::{Load, Table};
use crate::exec::ops::attention::Attention;
use crate::exec::ops::store::{Round, Store};
use crate::exec::plan::{self, Access};
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::typed::{Node, Source, TypedGraph, ValueId};
use crate::ir::{Dtype, Quant};
use crate::step::{Dst, Place, Src};
use crate::step::{Each, Fill, Step};
use crate::storage::{QuantGrid, Storage};
use units::Unit;

mod linear;
mod node;
mod units;

/// A step with what a profile says about it.
pub(crate) struct ScheduledStep {
    pub(crate) name: Box<str>,
    pub(crate) label: &'static str,
    pub(crate) step: Box<dyn Step>,
    /// Phase it runs in; ascending over the list.
    pub(crate) phase: usize,
}

/// Steps in order, and the bytes of arena that values take.
pub(crate) struct Built {
    pub(crate) steps: Vec<ScheduledStep>,
    pub(crate) value_bytes: usize,
}

/// Schedules, places and builds.
pub(crate) fn build(net: &TypedGraph, fast: bool) -> Result<Built, ExecError> {
    let units = units::units(net, fast);
    let accesses: Vec<Access> = units.iter().map(|unit| units::access(net, unit)).collect();
    let phases = plan::phases(&accesses, net.values.len());
    let bytes: Vec<usize> = net.values.iter().map(|v| v.n_elems() * size_of::<u32>()).collect();
    let spans = plan::spans(&accesses, &phases, &bytes);
    let (offsets, value_bytes) = plan::place(&spans);
    if let Some((a, b)) = plan::clash(&spans, &offsets) {
        let what = format!(
            "values `{}` and `{}` clash in memory: a bug of the planner",
            net.values[a].name, net.values[b].name
        );
        return Err(ExecError::Graph { graph: net.name.clone(), what });
    }
    let builder = Builder { net, offsets, fast };
    let mut steps = Vec::with_capacity(units.len());
    for (unit, phase) in units.iter().zip(phases) {
        let (index, step) = match unit {
            Unit::Node(index) if matches!(net.nodes[*index].op, Op::Linear { .. } | Op::GatedLinear { .. }) => {
                (*index, builder.linears(&[*index])?)
            }
            Unit::Node(index) => (*index, builder.node(&net.nodes[*index])?),
            Unit::LinearStore(index, store) => (*index, builder.linear_store(*index, *store)?),
            Unit::Linears(group) => (group[0], builder.linears(group)?),
            Unit::Round(id) => {
                let step = Round { dst: builder.dst(*id), rounding: net.value(net.root(*id)).rounding };
                steps.push(ScheduledStep {
                    name: net.value(*id).name.as_ref().into(),
                    label: "Round",
                    step: Box::new(step),
                    phase,
                });
                continue;
            }
        };
        let node = &net.nodes[index];
        steps.push(ScheduledStep { name: node.name.as_ref().into(), label: node.op.label(), step, phase });
    }
    steps.sort_by_key(|scheduled| scheduled.phase);
    Ok(Built { steps, value_bytes })
}

struct Builder<'n> {
    net: &'n TypedGraph,
    offsets: Vec<usize>,
    fast: bool,
}

impl Builder<'_> {
    /// An operand, wherever it is.
    fn src(&self, id: ValueId) -> Src {
        let root = self.net.root(id);
        let value = self.net.value(root);
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

    fn dst(&self, id: ValueId) -> Dst {
        let root = self.net.root(id);
        Dst { offset: self.offsets[root.0 as usize], n: self.net.value(root).n_elems() }
    }

    /// An operand in its declared type, with its encoding.
    fn table(&self, id: ValueId) -> Table {
        let value = self.net.value(self.net.root(id));
        let (dtype, quant) = match &value.source {
            Source::Const(constant) => (constant.dtype, &constant.quant),
            Source::Input(_) => (value.dtype, &value.quant),
            Source::Node | Source::View(_) => (Dtype::F32, &Quant::None),
        };
        Table { src: self.src(id), grid: QuantGrid::of(dtype, quant) }
    }

    fn shape(&self, id: ValueId) -> &[usize] {
        self.net.shape(id)
    }

    fn is_real(&self, id: ValueId) -> bool {
        self.net.value(id).storage() == Storage::F32
    }

    fn each<F: Fill + 'static>(&self, node: &Node, fill: F) -> Result<Box<dyn Step>, ExecError> {
        let output = self.output(node)?;
        let rounding = self.net.value(self.net.root(output)).rounding;
        Ok(Box::new(Each { fill, dst: self.dst(output), rounding }))
    }

    fn output(&self, node: &Node) -> Result<ValueId, ExecError> {
        node.output.ok_or_else(|| self.broken(node, "has no output"))
    }

    fn broken(&self, node: &Node, what: &str) -> ExecError {
        let what = format!("node `{}` ({}) {what}: a bug of a pass", node.name, node.op.label());
        ExecError::Graph { graph: self.net.name.clone(), what }
    }

    fn load(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        self.each(node, Load(self.table(node.inputs[0])))
    }

    fn store(&self, node: &Node, output: usize) -> Box<dyn Step> {
        let port = &self.net.outputs[output];
        let (x, grid) = (self.src(node.inputs[0]), QuantGrid::of(port.dtype, &port.quant));
        Box::new(Store { x, output, dtype: port.dtype, grid })
    }

    fn attention(&self, node: &Node, op: crate::graph::op::AttentionOp) -> Result<Box<dyn Step>, ExecError> {
        let mut rest = node.inputs.iter().map(|&id| self.table(id));
        let mut next = || rest.next().ok_or_else(|| self.broken(node, "lacks operands"));
        let q = next()?.src;
        let past = if op.past > 0 { Some([next()?, next()?]) } else { None };
        let new = [next()?.src, next()?.src];
        let mask = if op.mask { Some(next()?.src) } else { None };
        Ok(Box::new(Attention { op, q, past, new, mask, dst: self.dst(self.output(node)?) }))
    }
}

//! From a legal net to steps: groups what runs together, places values, resolves operands.

use crate::exec::ExecError;
use crate::exec::cx::{Dst, Place, Src};
use crate::exec::load::{Load, Table};
use crate::exec::ops::attention::Attention;
use crate::exec::ops::linear::{Codes, Layer, Linear, MAX_LAYERS, Weights};
use crate::exec::ops::linear_store::LinearStore;
use crate::exec::ops::store::{Round, Store};
use crate::exec::plan::{self, Access};
use crate::exec::step::{Each, Fill, Step};
use crate::ir::{Dtype, Quant};
use crate::passes::legalize::is_row_codes;
use crate::passes::lower::code_range;
use crate::passes::net::{Constant, Grid, Kind, Net, Node, Snap, Source, Uses, ValueId};
use crate::passes::op::Op;

mod node;

/// A step with what a profile says about it.
pub(crate) struct Slot {
    pub(crate) name: Box<str>,
    pub(crate) label: &'static str,
    pub(crate) step: Box<dyn Step>,
    /// Phase it runs in; ascending over the list.
    pub(crate) phase: usize,
}

/// Steps in order, and the bytes of arena that values take.
pub(crate) struct Built {
    pub(crate) slots: Vec<Slot>,
    pub(crate) value_bytes: usize,
}

/// What becomes one step.
enum Unit {
    Node(usize),
    /// Linear layers that read the same rows.
    Linears(Vec<usize>),
    Round(ValueId),
    /// A linear layer and the store that alone reads it.
    LinearStore(usize, usize),
}

/// Schedules, places and builds.
pub(crate) fn build(net: &Net, fast: bool) -> Result<Built, ExecError> {
    let units = units(net, fast);
    let accesses: Vec<Access> = units.iter().map(|unit| access(net, unit)).collect();
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
    let mut slots = Vec::with_capacity(units.len());
    for (unit, phase) in units.iter().zip(phases) {
        let (index, step) = match unit {
            Unit::Node(index) if matches!(net.nodes[*index].op, Op::Linear { .. } | Op::GatedLinear { .. }) => {
                (*index, builder.linears(&[*index])?)
            }
            Unit::Node(index) => (*index, builder.node(&net.nodes[*index])?),
            Unit::LinearStore(index, store) => (*index, builder.linear_store(*index, *store)?),
            Unit::Linears(group) => (group[0], builder.linears(group)?),
            Unit::Round(id) => {
                let step = Round { dst: builder.dst(*id), snap: net.value(net.root(*id)).snap };
                slots.push(Slot {
                    name: net.value(*id).name.as_ref().into(),
                    label: "Round",
                    step: Box::new(step),
                    phase,
                });
                continue;
            }
        };
        let node = &net.nodes[index];
        slots.push(Slot { name: node.name.as_ref().into(), label: node.op.label(), step, phase });
    }
    slots.sort_by_key(|slot| slot.phase);
    Ok(Built { slots, value_bytes })
}

fn units(net: &Net, fast: bool) -> Vec<Unit> {
    let mut grouped = vec![false; net.nodes.len()];
    let mut units = Vec::new();
    let uses = net.uses();
    for (index, node) in net.nodes.iter().enumerate() {
        if std::mem::take(&mut grouped[index]) {
            continue;
        }
        let mut outputs = vec![node.output];
        let peers = if fast { peers(net, index) } else { Vec::new() };
        if let (true, true, Some(store)) = (fast, peers.is_empty(), only_store(net, &uses, index)) {
            grouped[store] = true;
            units.push(Unit::LinearStore(index, store));
        } else if peers.is_empty() {
            units.push(Unit::Node(index));
        } else {
            for &peer in &peers {
                grouped[peer] = true;
                outputs.push(net.nodes[peer].output);
            }
            units.push(Unit::Linears([vec![index], peers].concat()));
        }
        // Steps that fill a value share by share round it themselves.
        let rounded = |id: &ValueId| is_team(&node.op) && net.value(net.root(*id)).snap != Snap::None;
        units.extend(outputs.into_iter().flatten().filter(rounded).map(Unit::Round));
    }
    units
}

/// The store that is the only reader of a linear layer of float weights.
fn only_store(net: &Net, uses: &Uses, index: usize) -> Option<usize> {
    let node = &net.nodes[index];
    let Op::Linear { residual: false, .. } = node.op else { return None };
    let root = net.root(node.output?);
    let float = net.constant(node.inputs[1]).is_some_and(|c| c.dtype.is_float());
    let plain = float && net.value(root).snap == Snap::None && uses.readers(net, root) == 1;
    let stores = |n: &Node| matches!(n.op, Op::Store { .. }) && net.root(n.inputs[0]) == root;
    net.nodes.iter().position(|n| plain && stores(n))
}

/// Later linear layers of float weights that need nothing but the same rows.
fn peers(net: &Net, index: usize) -> Vec<usize> {
    let rows = |node: &Node| match node.op {
        Op::Linear { k, residual: false, .. } => {
            let float = node.inputs[1..].iter().all(|&id| net.constant(id).is_some_and(|c| c.dtype.is_float()));
            float.then(|| (net.root(node.inputs[0]), k))
        }
        _ => None,
    };
    let Some(wanted) = rows(&net.nodes[index]) else { return Vec::new() };
    let later = net.nodes.iter().enumerate().skip(index + 1);
    later.filter(|(_, node)| rows(node) == Some(wanted)).map(|(i, _)| i).take(MAX_LAYERS - 1).collect()
}

fn access(net: &Net, unit: &Unit) -> Access {
    let root = |id: &ValueId| net.root(*id).0 as usize;
    let nodes: &[usize] = match unit {
        Unit::Round(id) => return Access { reads: vec![root(id)], writes: vec![root(id)], exclusive: false },
        Unit::Node(index) => std::slice::from_ref(index),
        Unit::Linears(group) => group,
        Unit::LinearStore(index, _) => {
            let reads = net.nodes[*index].inputs.iter().map(root).collect();
            return Access { reads, writes: Vec::new(), exclusive: true };
        }
    };
    let nodes = || nodes.iter().map(|&i| &net.nodes[i]);
    Access {
        reads: nodes().flat_map(|n| &n.inputs).map(root).collect(),
        writes: nodes().filter_map(|n| n.output.as_ref()).map(root).collect(),
        exclusive: nodes().any(|n| is_team(&n.op)),
    }
}

/// Steps that write their output by themselves, and use scratch or the task counter.
fn is_team(op: &Op) -> bool {
    matches!(
        op,
        Op::Linear { .. }
            | Op::GatedLinear { .. }
            | Op::Attention(_)
            | Op::TopK { .. }
            | Op::ScatterNd(_)
            | Op::ScatterElements { .. }
    )
}

struct Builder<'n> {
    net: &'n Net,
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
                let dtype = if value.kind() == Kind::Real { Dtype::F32 } else { Dtype::I32 };
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
        Table { src: self.src(id), grid: grid_of(dtype, quant) }
    }

    fn shape(&self, id: ValueId) -> &[usize] {
        self.net.shape(id)
    }

    fn is_real(&self, id: ValueId) -> bool {
        self.net.value(id).kind() == Kind::Real
    }

    fn each<F: Fill + 'static>(&self, node: &Node, fill: F) -> Result<Box<dyn Step>, ExecError> {
        let output = self.output(node)?;
        let snap = self.net.value(self.net.root(output)).snap;
        Ok(Box::new(Each { fill, dst: self.dst(output), snap }))
    }

    fn output(&self, node: &Node) -> Result<ValueId, ExecError> {
        node.output.ok_or_else(|| self.broken(node, "has no output"))
    }

    fn broken(&self, node: &Node, what: &str) -> ExecError {
        let what = format!("node `{}` ({}) {what}: a bug of a pass", node.name, node.op.label());
        ExecError::Graph { graph: self.net.name.clone(), what }
    }

    fn linears(&self, group: &[usize]) -> Result<Box<dyn Step>, ExecError> {
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

    fn linear_store(&self, index: usize, store: usize) -> Result<Box<dyn Step>, ExecError> {
        let (node, store) = (&self.net.nodes[index], &self.net.nodes[store]);
        let (Op::Linear { k, .. }, Op::Store { output }) = (&node.op, &store.op) else {
            return Err(self.broken(node, "is no linear layer with a store"));
        };
        let (x, port) = (self.src(node.inputs[0]), &self.net.outputs[*output]);
        let (m, layer) = (x.n.checked_div(*k).unwrap_or(0), self.layer(node)?);
        let grid = grid_of(port.dtype, &port.quant);
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
        let Some(Constant { bytes, dtype, quant }) = self.net.constant(id) else {
            return Err(self.broken(node, "has weights that are not constant"));
        };
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
        Ok(Weights::Codes(Codes { bytes: bytes.clone(), dtype: *dtype, scales, offsets }))
    }

    fn load(&self, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        self.each(node, Load(self.table(node.inputs[0])))
    }

    fn store(&self, node: &Node, output: usize) -> Box<dyn Step> {
        let port = &self.net.outputs[output];
        let (x, grid) = (self.src(node.inputs[0]), grid_of(port.dtype, &port.quant));
        Box::new(Store { x, output, dtype: port.dtype, grid })
    }

    fn attention(&self, node: &Node, op: crate::passes::op::AttentionOp) -> Result<Box<dyn Step>, ExecError> {
        let mut rest = node.inputs.iter().map(|&id| self.src(id));
        let mut next = || rest.next().ok_or_else(|| self.broken(node, "lacks operands"));
        let q = next()?;
        let past = if op.past > 0 { Some([next()?, next()?]) } else { None };
        let new = [next()?, next()?];
        let mask = if op.mask { Some(next()?) } else { None };
        Ok(Box::new(Attention { op, q, past, new, mask, dst: self.dst(self.output(node)?) }))
    }
}

/// The grid of fixed-point elements; `None` for other types.
fn grid_of(dtype: Dtype, quant: &Quant) -> Option<Grid> {
    if dtype.is_float() || Kind::of(dtype) == Kind::Int {
        return None;
    }
    let (scale, offset) = match *quant {
        Quant::PerTensor { scale, offset } => (scale, offset),
        _ => (1.0, 0),
    };
    let (min, max) = code_range(dtype);
    Some(Grid { scale, offset, min, max })
}

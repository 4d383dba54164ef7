//! From a legal typed graph to steps: groups what runs together, places values, resolves operands.

use super::plan::{self, Access};
use super::tiles;
use super::units::{self, Unit};
use crate::graph::ExecError;
use crate::graph::step_builder::StepBuilder;
use crate::graph::typed::TypedGraph;
use crate::kernels::Isa;
use crate::ops;
use crate::step::Step;

/// A step with its name and label for profiles.
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
pub(crate) fn schedule(net: &TypedGraph, fast: bool) -> Result<Built, ExecError> {
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
    let in_tiles = tiles::in_tiles(net, &units, fast.then(Isa::detect));
    let builder = StepBuilder { graph: net, offsets, in_tiles, fast };
    let mut steps = Vec::with_capacity(units.len());
    for (unit, phase) in units.iter().zip(phases) {
        let node = |index: &usize| &net.nodes[*index];
        let (name, label, step) = match unit {
            Unit::Round(id) => (&net.value(*id).name, "Round", ops::store::round(&builder, *id)),
            Unit::Node(index) => (&node(index).name, node(index).op.label(), ops::step(&builder, node(index))?),
            Unit::LinearStore(index, store) => {
                let step = ops::linear_store_step(&builder, node(index), node(store))?;
                (&node(index).name, node(index).op.label(), step)
            }
            Unit::Linears(group) => {
                let nodes: Vec<_> = group.iter().map(node).collect();
                (&nodes[0].name, nodes[0].op.label(), ops::linear_step(&builder, &nodes)?)
            }
        };
        steps.push(ScheduledStep { name: name.as_ref().into(), label, step, phase });
    }
    steps.sort_by_key(|scheduled| scheduled.phase);
    Ok(Built { steps, value_bytes })
}

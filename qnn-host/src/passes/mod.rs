//! Turns a graph into a plan: checks, folding, fusion.
//!
//! `lower` (QNN nodes to typed operations) -> `fold` (what depends on constants only) -> `minima` (weights of two parts) -> `fuse` -> `dead` (values without
//! readers) -> `update_store` (caches updated in place) -> `weights` (blocks packed for the kernels) -> `legalize` (conversions for operands that a step cannot read as declared). `exec` schedules and places the
//! result in memory.

pub(crate) mod dead;
pub(crate) mod fold;
pub(crate) mod fuse;
pub(crate) mod legalize;
pub(crate) mod lower;
pub(crate) mod minima;
pub(crate) mod symbol;
pub(crate) mod update_store;
pub(crate) mod weights;

use crate::graph::typed::TypedGraph;
use crate::graph::{ExecError, SharedConstants};
use crate::ir::SourceGraph;
use crate::package::Packages;

/// All passes.
pub(crate) fn compile(
    graph: &SourceGraph,
    fuse: bool,
    shared: &SharedConstants,
    packages: &Packages,
) -> Result<TypedGraph, ExecError> {
    let mut net = lower::lower(graph, packages)?;
    dead::remove(&mut net);
    fold::fold(&mut net, shared)?;
    if fuse {
        minima::join(&mut net, shared);
        dead::remove(&mut net);
        fuse::fuse(&mut net);
    }
    dead::remove(&mut net);
    if fuse {
        update_store::join(&mut net);
        weights::pack(&mut net, shared);
    }
    legalize::legalize(&mut net, fuse, shared);
    Ok(net)
}

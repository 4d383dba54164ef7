//! Turns a graph into a plan: checks, folding, fusion.
//!
//! `lower` (QNN nodes to typed operations) -> `fold` (what depends on constants only) -> `fuse` -> `dead` (values without
//! readers) -> `update_store` (caches updated in place) -> `weights` (blocks packed for the kernels) -> `legalize` (conversions for operands that a step cannot read as declared). `exec` schedules and places the
//! result in memory.

pub(crate) mod dead;
pub(crate) mod fold;
pub(crate) mod fuse;
pub(crate) mod legalize;
pub(crate) mod lower;
pub(crate) mod symbol;
pub(crate) mod update_store;
pub(crate) mod weights;

use crate::graph::ExecError;
use crate::graph::typed::TypedGraph;
use crate::ir::SourceGraph;
use crate::prepare::PrepareOptions;

/// All passes.
pub(crate) fn compile(graph: &SourceGraph, options: &PrepareOptions) -> Result<TypedGraph, ExecError> {
    let (fuse, shared) = (options.fuse, &*options.shared);
    let mut net = lower::lower(graph, &options.packages)?;
    dead::remove(&mut net);
    fold::fold(&mut net, shared)?;
    if fuse {
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

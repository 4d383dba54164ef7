//! Turns a graph into a plan: checks, folding, fusion.
//!
//! `lower` (QNN nodes to typed operations) -> `fold` (what depends on constants only) -> `fuse` -> `dead` (what nobody
//! reads) -> `weights` (block codes packed for the kernels) -> `legalize` (conversions for operands that a step cannot read as declared). `exec` schedules and places the
//! result in memory.

pub(crate) mod dead;
pub(crate) mod fold;
pub(crate) mod fuse;
pub(crate) mod legalize;
pub(crate) mod lower;
pub(crate) mod net;
pub(crate) mod op;
mod shared;
pub(crate) mod symbol;
pub(crate) mod weights;

use crate::exec::{ExecError, PrepareOptions};
use crate::ir::SourceGraph;
use net::TypedGraph;
pub(crate) use shared::Derived;
pub use shared::SharedConstants;

/// All passes.
pub(crate) fn compile(graph: &SourceGraph, options: &PrepareOptions) -> Result<TypedGraph, ExecError> {
    let mut net = lower::lower(graph)?;
    dead::remove(&mut net);
    fold::fold(&mut net, &options.shared)?;
    if options.fuse {
        fuse::fuse(&mut net);
    }
    dead::remove(&mut net);
    if options.fuse {
        weights::pack(&mut net, &options.shared);
    }
    legalize::legalize(&mut net, options.fuse, &options.shared);
    Ok(net)
}

//! From a graph as described to one that is ready to run: all passes, then scheduling.

use std::sync::Arc;

use crate::exec::Executable;
use crate::graph::{ExecError, SharedConstants};
use crate::ir::SourceGraph;
use crate::package::Packages;
use crate::passes;

/// Choices of [`Executable::prepare`].
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Join nodes into fused steps (linear layers with their surroundings, attention, ...). Off, every node runs on its
    /// own, by the plain kernels: the reference that tests compare with.
    pub fuse: bool,
    /// Constants made from constants (weights transposed or decoded); the same for all graphs of a context.
    pub shared: Arc<SharedConstants>,
    /// Constants are in a shared, read-only mapping of a file, and their pages leave memory when a step has read them.
    pub(crate) lets_weights_go: bool,
    /// Ops of others that nodes may name. They are not asked again whether they accept a node.
    pub packages: Packages,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self { fuse: true, shared: Arc::default(), lets_weights_go: false, packages: Packages::default() }
    }
}

impl Executable {
    /// Checks, folds, fuses and plans `graph`.
    ///
    /// # Errors
    /// Nodes that contradict their operands, operations that the host lacks.
    pub fn prepare(graph: &SourceGraph, options: &PrepareOptions) -> Result<Self, ExecError> {
        let net = passes::compile(graph, options.fuse, &options.shared, &options.packages)?;
        Ok(Self::from_net(net, options.fuse)?.letting_weights_go(options.lets_weights_go))
    }
}

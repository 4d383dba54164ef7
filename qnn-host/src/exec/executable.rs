//! A graph ready to run.

use super::{Arena, ExecError, Profile};
use crate::ir::Graph;
use crate::pool::Pool;

/// Choices of [`Executable::prepare`].
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Join nodes into fused steps (linear layers with their surroundings, attention, ...). Off, every node runs on its
    /// own, by the plain kernels: the reference that tests compare with.
    pub fuse: bool,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self { fuse: true }
    }
}

/// A checked, fused and planned graph. It holds weights and no state, so it can be shared between threads.
#[derive(Debug)]
pub struct Executable {
    arena_bytes: usize,
}

impl Executable {
    /// Checks, folds, fuses and plans `graph`.
    ///
    /// # Errors
    /// Nodes that contradict their operands, operations that the host lacks.
    pub fn prepare(_graph: &Graph, _options: &PrepareOptions) -> Result<Self, ExecError> {
        Ok(Self { arena_bytes: 0 })
    }

    /// Bytes of arena that a run with that many threads needs.
    pub fn arena_bytes(&self, _threads: usize) -> usize {
        self.arena_bytes
    }

    /// Runs once. `inputs` and `outputs` hold one buffer for each of the graph's inputs and outputs, in the order in which
    /// these tensors were made; sizes as declared, any alignment. The arena grows if it is too small: to allocate
    /// nothing here, [`Arena::ensure`] [`Executable::arena_bytes`] before. Output bytes are unspecified after an error.
    ///
    /// # Errors
    /// Buffers of the wrong number or size; an index read from an input that is out of range.
    pub fn run(
        &self,
        _pool: &Pool,
        _arena: &mut Arena,
        _inputs: &[&[u8]],
        _outputs: &mut [&mut [u8]],
        _profile: Option<&mut dyn Profile>,
    ) -> Result<(), ExecError> {
        Ok(())
    }
}

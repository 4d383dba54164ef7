//! The executor over QNN graphs.

use crate::{Binding, ExecuteError, Executor};

/// Graphs of a QNN backend.
#[derive(Debug)]
pub struct QnnExecutor {}

impl Executor for QnnExecutor {
    fn execute<'io>(
        &mut self,
        _: usize,
        _: usize,
        _: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        Err("not yet".into())
    }
}

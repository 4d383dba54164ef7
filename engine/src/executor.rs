//! The seam where the engine executes a split: graphs by number, buffers by place.
//!
//! Production implementation: [`QnnExecutor`](crate::QnnExecutor). Tests use recording fakes.

/// A buffer lent to one execution, at the place of a tensor in the graph's list of inputs or outputs.
#[derive(Debug)]
pub enum Binding<'io> {
    /// Read by the graph.
    Input(usize, &'io [u8]),
    /// Written by the graph.
    Output(usize, &'io mut [u8]),
    /// Read by the graph as the first, an input, and then written as the second, an output.
    InPlace(usize, usize, &'io mut [u8]),
}

impl Binding<'_> {
    /// The same buffer, lent for less long.
    pub(crate) fn reborrow(&mut self) -> Binding<'_> {
        match self {
            Self::Input(tensor, bytes) => Binding::Input(*tensor, bytes),
            Self::Output(tensor, bytes) => Binding::Output(*tensor, bytes),
            Self::InPlace(input, output, bytes) => Binding::InPlace(*input, *output, bytes),
        }
    }
}

/// Why an execution failed; the engine adds the graph's name.
pub type ExecuteError = Box<dyn std::error::Error + Send + Sync>;

/// Runs the graphs of a layout.
pub trait Executor: Send {
    /// Runs graph `graph` of split `split` (indices into [`nsp_graph::ModelLayout::splits`] and
    /// [`nsp_graph::Split::graphs`]). Every input and output of the graph is bound exactly once, with its exact size.
    ///
    /// # Errors
    ///
    /// The backend's own.
    fn execute<'io>(
        &mut self,
        split: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError>;

    /// Ends what loading left for later, so that each execution takes as long as the ones to come: weights that are to be moved into
    /// memory are. A measurement begins with it.
    fn finish_loading(&mut self) {}

    /// Replaces parts of a context binary, of the layout's number `binary`, by those of a section file: an adapter's weights.
    ///
    /// # Errors
    ///
    /// The backend's own; executors that cannot say so.
    fn apply_sections(&mut self, binary: usize, section: &[u8]) -> Result<(), ExecuteError> {
        let _ = (binary, section);
        Err("this executor takes no sections of context binaries".into())
    }
}

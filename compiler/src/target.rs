//! Where graphs are composed: a backend behind the QNN table, or a fake in tests.
//!
//! A target chooses context and graph options; the lowering is the same for all.

use crate::Result;
use crate::lower::GraphSink;
use genie_bundle::BackendId;
use qnn_api::SaveWatch;
use std::path::Path;

/// Makes contexts.
pub(crate) trait Target {
    /// A context under construction.
    type Context: TargetContext;

    /// The library.
    fn id(&self) -> BackendId;

    /// Whether it is the embedded backend, whose graphs may hold blocks and bfloat16.
    fn is_embedded(&self) -> bool;

    /// A new, empty context. What it needs to keep of weights until it is saved may be written to `scratch`, a folder.
    fn context(&mut self, scratch: &Path) -> Result<Self::Context>;
}

/// One context binary under construction.
pub(crate) trait TargetContext {
    /// A graph under construction.
    type Graph: GraphSink;

    /// Opens a graph; several may be open at a time.
    fn compose(&mut self, name: &str) -> Result<Self::Graph>;

    /// Closes a graph: the backend checks and prepares it.
    fn finalize(&mut self, graph: Self::Graph) -> Result<()>;

    /// Writes the context binary; `watch` is given how far it is, and may end it.
    fn save(self, path: &Path, watch: &mut SaveWatch<'_>) -> Result<()>;
}

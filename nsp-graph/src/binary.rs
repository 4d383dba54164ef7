//! What is analyzed: graphs by the binary that they are in.

use genie_types::GraphInfo;

/// The graphs of one context binary.
#[derive(Clone, Debug, PartialEq)]
pub struct BinaryGraphs {
    /// What to call the binary in messages, usually its file name.
    pub source: String,
    /// Its graphs, in its own order.
    pub graphs: Vec<GraphInfo>,
}

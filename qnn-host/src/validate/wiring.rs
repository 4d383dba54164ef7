//! Who makes which tensor: once, before it is read, and never the client's inputs or constants.

use crate::ir::{Node, Role, SourceGraph, TensorId};

use crate::graph::Violation;

/// The tensors made so far, while nodes are added one by one.
#[derive(Clone, Debug, Default)]
pub struct Wiring {
    made: Vec<bool>,
}

impl Wiring {
    /// Adds a node whose ids lie in `graph`.
    ///
    /// # Errors
    /// It reads a tensor that no node has made yet, or writes one that is not its to write. Nothing is added then.
    pub fn add(&mut self, graph: &SourceGraph, node: &Node) -> Result<(), Violation> {
        self.made.resize(graph.tensors.len(), false);
        let fault = |subject: String, expected: &str, found: &str| Violation::of_node(node, &subject, expected, found);
        for (i, &id) in node.inputs.iter().enumerate() {
            let tensor = graph.tensor(id);
            let ready = match tensor.role {
                Role::Input | Role::Static(_) | Role::Null => true,
                Role::Output | Role::Native => self.made(id),
            };
            if !ready {
                let subject = format!("input {i} `{}`", tensor.name);
                return Err(fault(subject, "a tensor that an earlier node made", "one that no node has made yet"));
            }
        }
        for (i, &id) in node.outputs.iter().enumerate() {
            let tensor = graph.tensor(id);
            let subject = || format!("output {i} `{}`", tensor.name);
            if !matches!(tensor.role, Role::Output | Role::Native) {
                let found = match tensor.role {
                    Role::Input => "an input of the graph",
                    Role::Static(_) => "a static tensor",
                    _ => "a null tensor",
                };
                return Err(fault(subject(), "a native tensor or an output of the graph", found));
            }
            if self.made(id) || node.outputs[..i].contains(&id) {
                return Err(fault(subject(), "a tensor that no node has made yet", "one that a node makes already"));
            }
        }
        for id in &node.outputs {
            self.made[id.0 as usize] = true;
        }
        Ok(())
    }

    /// After the last node: every output of the graph must have been made.
    ///
    /// # Errors
    /// Names the first output that no node makes, or an empty graph.
    pub fn finish(&self, graph: &SourceGraph) -> Result<(), Violation> {
        let fault = |expected: &str, found: String| Violation::of(format!("graph `{}`", graph.name), expected, found);
        if graph.nodes.is_empty() {
            return Err(fault("at least one node", "none".to_owned()));
        }
        match graph.outputs().find(|&id| !self.made(id)) {
            Some(id) => Err(fault("outputs that a node makes", format!("`{}` unmade", graph.tensor(id).name))),
            None => Ok(()),
        }
    }

    fn made(&self, id: TensorId) -> bool {
        self.made.get(id.0 as usize).copied().unwrap_or(false)
    }
}

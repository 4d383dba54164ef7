//! Inputs that hold the strength of a LoRA adapter: which ones they are. The adapters' weights are in the graph.

use crate::analyze::Chosen;
use crate::names;

/// The names of all of them, each once, in order: those that the configuration names and those that begin as the contract has
/// it. A name that some graph outputs is a wire.
pub(crate) fn find(chosen: &[Chosen<'_>], configured: &[String]) -> Vec<String> {
    let is_output = |name: &str| chosen.iter().any(|(_, info)| info.outputs.iter().any(|t| t.name == name));
    let is_alpha = |name: &str| name.starts_with(names::LORA_ALPHA) || configured.iter().any(|n| n == name);
    let inputs = chosen.iter().flat_map(|(_, info)| &info.inputs).map(|t| t.name.as_str());
    let mut found: Vec<String> = inputs.filter(|name| is_alpha(name) && !is_output(name)).map(Into::into).collect();
    found.sort();
    found.dedup();
    found
}

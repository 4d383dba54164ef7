//! LoRA adapters of a model: versions 2 and 3, whose weights are in the graphs or in sections of the context binaries.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::node::Node;
use super::problem::Problem;
use super::values::resolve;

const AT: &str = "/dialog/engine/model/binary/lora";

/// The adapters of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoraSettings {
    /// In the order of the config, each with a name of its own.
    pub adapters: Vec<LoraAdapterSettings>,
    /// Adapters that share quantisation parameters.
    pub groups: Vec<LoraGroupSettings>,
    /// The input that holds the strength of adapters that name none.
    pub alpha_tensor: Option<String>,
}

/// One adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoraAdapterSettings {
    /// Its name.
    pub name: String,
    /// The inputs of the graphs that hold its strength.
    pub alphas: Vec<String>,
    /// Files that replace parts of the context binaries, one for each binary; absolute if the base was.
    pub bin_sections: Vec<PathBuf>,
}

/// Adapters that share quantisation parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoraGroupSettings {
    /// Its name.
    pub name: String,
    /// The names of its adapters.
    pub members: Vec<String>,
    /// Files that replace the quantisation parameters of the context binaries, one for each.
    pub quant_bin_sections: Vec<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawLora {
    alpha_tensor_name: Option<String>,
    #[serde(default)]
    adapters: Vec<RawAdapter>,
    #[serde(default)]
    groups: Vec<RawGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawAdapter {
    name: String,
    #[serde(default)]
    alphas: Vec<String>,
    #[serde(default)]
    bin_sections: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawGroup {
    name: String,
    members: Vec<String>,
    quant_bin_sections: Vec<String>,
}

/// What this build does not do, by name.
pub(super) fn unsupported(lora: &Node<'_>, out: &mut Vec<Problem>) {
    if lora.get("lora-version").and_then(|v| v.as_i64()) == Some(1) && lora.count("adapters") > 0 {
        let problem = lora.problem_at("lora-version", "LoRA version 1, adapters as files of weights, is not supported");
        out.push(problem.hint("versions 2 and 3 are: adapters in the graphs (`alphas`) or as `bin-sections`"));
    }
    let order = |node: &Node<'_>, out: &mut Vec<Problem>| {
        if node.count("adapter-order") > 0 {
            out.push(node.problem_at("adapter-order", "several adapters in one batch are not supported"));
        }
    };
    order(lora, out);
    for adapter in lora.get("adapters").map_or(Vec::new(), |a| a.items()) {
        order(&adapter, out);
        if adapter.has("metadata-dlc") {
            out.push(adapter.problem_at("metadata-dlc", "adapters of checkpoints are not supported"));
        }
    }
}

/// The adapters as values.
pub(super) fn values(raw: RawLora, base: &Path, problems: &mut Vec<Problem>) -> LoraSettings {
    let paths = |files: &[String]| files.iter().map(|file| resolve(base, file)).collect();
    let mut adapters: Vec<LoraAdapterSettings> = Vec::new();
    for (i, adapter) in raw.adapters.iter().enumerate() {
        let at = format!("{AT}/adapters/{i}/name");
        if adapter.name.is_empty() {
            problems.push(Problem::new(at, "expected a name, found an empty one"));
        } else if adapters.iter().any(|other| other.name == adapter.name) {
            problems.push(Problem::new(at, format!("`{}` is the name of an earlier adapter", adapter.name)));
        }
        let shared = raw.alpha_tensor_name.iter().filter(|_| adapter.alphas.is_empty());
        adapters.push(LoraAdapterSettings {
            name: adapter.name.clone(),
            alphas: adapter.alphas.iter().chain(shared).cloned().collect(),
            bin_sections: paths(&adapter.bin_sections),
        });
    }
    for (i, group) in raw.groups.iter().enumerate() {
        for (m, member) in group.members.iter().enumerate() {
            let at = || format!("{AT}/groups/{i}/members/{m}");
            if !adapters.iter().any(|adapter| adapter.name == *member) {
                problems.push(Problem::new(at(), format!("there is no adapter `{member}`")));
            } else if raw.groups[..i].iter().any(|other| other.members.contains(member)) {
                problems.push(Problem::new(at(), format!("adapter `{member}` is in an earlier group")));
            }
        }
    }
    let groups = raw.groups.iter().map(|group| LoraGroupSettings {
        name: group.name.clone(),
        members: group.members.clone(),
        quant_bin_sections: paths(&group.quant_bin_sections),
    });
    LoraSettings { groups: groups.collect(), adapters, alpha_tensor: raw.alpha_tensor_name }
}

impl LoraSettings {
    /// All section files with their places in the config.
    pub(super) fn files(&self) -> impl Iterator<Item = (String, &PathBuf)> {
        let of_adapters = self.adapters.iter().enumerate().flat_map(|(a, adapter)| {
            let files = adapter.bin_sections.iter().enumerate();
            files.map(move |(i, path)| (format!("{AT}/adapters/{a}/bin-sections/{i}"), path))
        });
        let of_groups = self.groups.iter().enumerate().flat_map(|(g, group)| {
            let files = group.quant_bin_sections.iter().enumerate();
            files.map(move |(i, path)| (format!("{AT}/groups/{g}/quant-bin-sections/{i}"), path))
        });
        of_adapters.chain(of_groups)
    }
}

//! What is known of the machine, the device and the bundle: plain data, made by [`crate::collect()`] or by hand.

mod build;
mod bundle;
mod config;
mod machine;

pub use build::Build;
pub use bundle::{
    Binary, Bundle, Content, EmbeddingFile, Extension, FileState, Manifest, ManifestFile, NamedFile, Rejection,
    TokenizerFile, Vocabulary, WeightFile,
};
pub use config::{ConfigFile, PositionItem};
pub use machine::{AdspPath, Interfaces, LibraryFile, Machine, Place};

use genie_bundle::config::GenieApi;
use nsp_graph::pd::{self, PairError, PairLayout};
use nsp_graph::{BinaryGraphs, GroupOptions, LayoutError, ModelLayout, Options, analyze};
use qnn_api::{BinaryInfo, Soc};

/// The target device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its SoC.
    pub soc: &'static Soc,
    /// True if this machine is the device; false if the request named it.
    pub here: bool,
}

/// The input of the checks.
#[derive(Debug, Default)]
pub struct Facts {
    /// Libraries, search paths.
    pub machine: Machine,
    /// The device that is to run the bundle, if known.
    pub device: Option<Device>,
    /// The version of the Genie API that reads the config, if known.
    pub genie_api: Option<GenieApi>,
    /// The bundle, if one was requested.
    pub bundle: Option<Bundle>,
}

impl Facts {
    /// The config, if there is one.
    pub fn config(&self) -> Option<&ConfigFile> {
        self.bundle.as_ref()?.config.as_ref()
    }

    /// The bundle's binaries; none without a bundle.
    pub fn binaries(&self) -> &[Binary] {
        self.bundle.as_ref().map_or(&[], |bundle| &bundle.binaries)
    }

    /// The binaries that could be read.
    pub fn described(&self) -> impl Iterator<Item = (&Binary, &BinaryInfo)> {
        self.binaries().iter().filter_map(|binary| Some((binary, binary.info()?)))
    }

    /// The readable binaries that are for the embedded backend.
    pub fn host_binaries(&self) -> impl Iterator<Item = (&Binary, &BinaryInfo)> {
        self.described().filter(|(_, info)| info.backend_id == qnn_api::library::BACKEND_ID_HOST)
    }

    /// The readable binaries that are for the HTP.
    pub fn htp_binaries(&self) -> impl Iterator<Item = (&Binary, &BinaryInfo)> {
        self.described().filter(|(_, info)| info.backend_id == qnn_api::library::BACKEND_ID_HTP)
    }

    /// The graphs as a model, or the first breach of the graph contract; `None` while a binary is missing, unread or empty.
    pub fn layout(&self) -> Option<Result<ModelLayout, LayoutError>> {
        let graphs = self.graphs()?;
        let options = self.config().map_or_else(Options::default, |config| Options {
            groups: config.cache_groups(),
            select: config.selected_graphs(),
            alphas: config.lora_alphas(),
        });
        Some(analyze(&graphs, &options))
    }

    /// The fused graphs, or the first breach of their contract; `None` without any, and as [`Self::layout`].
    pub fn fused(&self) -> Option<Result<PairLayout, PairError>> {
        let select = self.config().and_then(ConfigFile::selected_graphs);
        pd::analyze(&self.graphs()?, select.as_deref()).transpose()
    }

    /// The graphs by binary; `None` while a binary is missing, unread or empty.
    fn graphs(&self) -> Option<Vec<BinaryGraphs>> {
        let all = self.binaries();
        let graphs: Vec<BinaryGraphs> = self
            .described()
            .filter(|(_, info)| !info.graphs.is_empty())
            .map(|(binary, info)| BinaryGraphs { source: binary.name(), graphs: info.graphs.clone() })
            .collect();
        if all.is_empty() || graphs.len() < all.len() {
            return None;
        }
        Some(graphs)
    }
}

impl ConfigFile {
    /// The configured cache groups.
    pub fn cache_groups(&self) -> Vec<GroupOptions> {
        let text = |group: &serde_json::Value, key| group.get(key).and_then(|v| v.as_str()).map(str::to_owned);
        let groups = self.engine("/cache-groups").and_then(|groups| groups.as_array());
        groups
            .into_iter()
            .flatten()
            .filter_map(|group| {
                Some(GroupOptions {
                    prefix: text(group, "prefix")?,
                    mask: text(group, "attention-mask-tensor-name"),
                    index: text(group, "cache-index-tensor-name"),
                })
            })
            .collect()
    }

    /// The inputs that the config's LoRA adapters name as strengths.
    pub fn lora_alphas(&self) -> Vec<String> {
        let Some(lora) = self.engine("/model/binary/lora") else { return Vec::new() };
        let adapters = lora.get("adapters").and_then(|list| list.as_array()).into_iter().flatten();
        let lists = adapters.filter_map(|adapter| adapter.get("alphas")?.as_array());
        let names = lists.flatten().chain(lora.get("alpha-tensor-name"));
        names.filter_map(|name| name.as_str()).map(str::to_owned).collect()
    }

    /// The only graphs to use, if the config selects some.
    pub fn selected_graphs(&self) -> Option<Vec<String>> {
        let list = self.htp("execute-select-graphs")?.as_array()?;
        let names: Vec<String> = list.iter().filter_map(|name| name.as_str()).map(str::to_owned).collect();
        (!names.is_empty()).then_some(names)
    }
}

//! Files of a bundle to a running engine: map, describe, analyse, find the graphs.

use std::path::Path;
use std::sync::Arc;

use nsp_graph::{BinaryGraphs, Options, analyze};
use qnn_api::{Backend, Context, ContextOptions, SpillFill, SpillGroup};

use crate::anchors::AnchorBuffers;
use crate::scorer_network::ScorerNetwork;
use crate::{Engine, EngineConfig, EngineError, QnnExecutor};

impl Engine {
    /// Loads the context binaries (mapped unless [`EngineConfig::use_mmap`] is off), analyses their graphs and allocates all buffers.
    ///
    /// # Errors
    ///
    /// Missing or refused files, graphs that are no model, settings that do not fit them.
    pub fn open(config: &EngineConfig, backend: &Arc<Backend>) -> Result<Self, EngineError> {
        config.check()?;
        for path in &config.ctx_bins {
            must_exist("context binary", path)?;
        }
        let reading = Reading::of(config);
        let mut contexts = Vec::with_capacity(config.ctx_bins.len());
        let mut binaries = Vec::with_capacity(config.ctx_bins.len());
        let mut group = None;
        for path in &config.ctx_bins {
            let (context, spill) = reading.context(backend, path, group.take())?;
            group = spill;
            let graphs: Vec<_> = context.graphs().cloned().collect();
            let n_graphs = graphs.len();
            tracing::debug!(path = %path.display(), n_graphs, "context binary loaded");
            let source = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            binaries.push(BinaryGraphs { source, graphs });
            if !config.dynamic_load {
                contexts.push(context);
            }
        }
        let of_adapters = config.lora.adapters.iter().flat_map(|adapter| &adapter.alphas);
        let options = Options {
            groups: config.cache_groups.clone(),
            select: config.select_graphs.clone(),
            alphas: of_adapters.chain(&config.lora.alphas).cloned().collect(),
        };
        let layout = analyze(&binaries, &options)?;
        for note in layout.note_lines() {
            tracing::warn!("{note}");
        }
        let mut executor = if config.dynamic_load {
            QnnExecutor::on_demand(&layout, backend, &config.ctx_bins, reading)
        } else {
            QnnExecutor::new(&layout, &contexts)?
        };
        if !config.use_mmap {
            executor.move_weights_to_memory(&contexts);
        }
        if let Some(memory) = &config.shared_memory {
            executor.share(memory);
        }
        let mut engine = Self::with_executor(layout, executor, config)?;
        if let Some(path) = &config.scoring_network {
            let anchors = AnchorBuffers::new(&engine.graphs.layout, &engine.graphs.io)?;
            let rules = (&engine.graphs.layout, config.long_context.as_slice());
            let network = ScorerNetwork::open(backend, path, &Reading::of(config), rules, anchors.shared())?;
            engine.set_scorer(Box::new(network));
            engine.graphs.anchors = Some(anchors);
        }
        Ok(engine)
    }
}

/// How context binaries are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Mapped; else read into memory.
    pub use_mmap: bool,
    /// HTP: most megabytes to read at a time; 0 is no limit.
    pub budget_mb: u64,
    /// HTP: bytes of a spill buffer for all binaries; 0 leaves each its own.
    pub spill_fill_bytes: u64,
    /// HTP: most megabytes of graphs at a time; 0 is no limit.
    pub memory_limit_mb: u64,
    /// HTP: graphs that stay longest where there is a limit.
    pub retention_order: Vec<String>,
    /// Embedded backend: weights leave memory as soon as a step has read them.
    pub lets_weights_go: bool,
}

impl Reading {
    /// As the configuration says.
    pub fn of(config: &EngineConfig) -> Self {
        Self {
            use_mmap: config.use_mmap,
            budget_mb: config.mmap_budget_mb,
            spill_fill_bytes: config.spill_fill_bytes,
            memory_limit_mb: config.memory_limit_mb,
            retention_order: config.retention_order.clone(),
            lets_weights_go: config.lets_weights_go,
        }
    }

    /// Loads a binary. What the library refuses of the memory options is left out, with a warning: they save memory, and the graphs run
    /// without them. `group`: the spill buffer to use.
    pub(crate) fn context(
        &self,
        backend: &Arc<Backend>,
        path: &Path,
        group: Option<SpillGroup>,
    ) -> Result<(Context, Option<SpillGroup>), EngineError> {
        let plain = ContextOptions {
            htp_read_budget_mb: self.budget_mb,
            host_lets_weights_go: self.lets_weights_go,
            ..ContextOptions::default()
        };
        let spill = SpillFill { bytes: self.spill_fill_bytes, group: group.clone() };
        let wanted = ContextOptions {
            htp_spill_fill: (spill.bytes > 0).then_some(spill),
            htp_memory_limit_mb: (self.memory_limit_mb > 0).then_some(self.memory_limit_mb),
            htp_retention_order: self.retention_order.clone(),
            ..plain.clone()
        };
        let has_spill = wanted.htp_spill_fill.is_some();
        if !has_spill && wanted.htp_memory_limit_mb.is_none() {
            return Ok((binary(backend, path, self.use_mmap, &plain)?, None));
        }
        match binary(backend, path, self.use_mmap, &wanted) {
            Ok(context) => {
                let group = group.or_else(|| has_spill.then(|| context.spill_group()));
                Ok((context, group))
            }
            Err(refused) => {
                // A binary that does not load without them either is to blame itself.
                let context = binary(backend, path, self.use_mmap, &plain)?;
                let why = std::error::Error::source(&refused).map_or_else(|| refused.to_string(), ToString::to_string);
                tracing::warn!("{}: loaded without {}: {why}", path.display(), self.memory_keys());
                Ok((context, None))
            }
        }
    }

    /// The keys of the memory options that are set, for a message.
    fn memory_keys(&self) -> String {
        let keys = [
            (self.spill_fill_bytes > 0, "`spill-fill-bufsize`"),
            (self.memory_limit_mb > 0, "`enable-graph-switching`"),
            (!self.retention_order.is_empty(), "`graph-retention-order`"),
        ];
        let set: Vec<&str> = keys.iter().filter(|(set, _)| *set).map(|(_, key)| *key).collect();
        set.join(", ")
    }
}

/// Loads a binary, mapped or read into memory.
pub(crate) fn binary(
    backend: &Arc<Backend>,
    path: &Path,
    use_mmap: bool,
    options: &ContextOptions,
) -> Result<Context, EngineError> {
    // The embedded backend moves into memory what it maps (`WeightsToMemory`).
    let loaded = if use_mmap || backend.library().is_embedded() {
        Context::from_file(backend, path, options)
    } else {
        let read = std::fs::read(path);
        let bytes = read.map_err(|source| EngineError::ReadBinary { path: path.to_owned(), source })?;
        Context::from_bytes(backend, &bytes, options)
    };
    loaded.map_err(|source| EngineError::LoadBinary { path: path.to_owned(), source })
}

/// Refuses a file that is not there before anything else tries to open it.
pub(crate) fn must_exist(what: &'static str, path: &Path) -> Result<(), EngineError> {
    if path.exists() { Ok(()) } else { Err(EngineError::MissingFile { what, path: path.to_owned() }) }
}

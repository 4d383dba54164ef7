//! Files of a bundle to a running engine: map, describe, analyse, find the graphs.

use std::path::Path;
use std::sync::Arc;

use nsp_graph::{BinaryGraphs, Options, analyze};
use qnn_api::{Backend, Context, ContextOptions};

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
        for path in &config.ctx_bins {
            let context = reading.context(backend, path)?;
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
        let executor = if config.dynamic_load {
            QnnExecutor::on_demand(&layout, backend, &config.ctx_bins, reading)
        } else {
            QnnExecutor::new(&layout, &contexts)?
        };
        Self::with_executor(layout, executor, config)
    }
}

/// How context binaries are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Mapped; else read into memory.
    pub use_mmap: bool,
    /// HTP: most megabytes to read at a time; 0 is no limit.
    pub budget_mb: u64,
}

impl Reading {
    /// As the configuration says.
    pub const fn of(config: &EngineConfig) -> Self {
        Self { use_mmap: config.use_mmap, budget_mb: config.mmap_budget_mb }
    }

    /// Loads a binary.
    pub(crate) fn context(self, backend: &Arc<Backend>, path: &Path) -> Result<Context, EngineError> {
        let options = ContextOptions { htp_read_budget_mb: self.budget_mb, ..ContextOptions::default() };
        let loaded = if self.use_mmap {
            Context::from_file(backend, path, &options)
        } else {
            let read = std::fs::read(path);
            let bytes = read.map_err(|source| EngineError::ReadBinary { path: path.to_owned(), source })?;
            Context::from_bytes(backend, &bytes, &options)
        };
        loaded.map_err(|source| EngineError::LoadBinary { path: path.to_owned(), source })
    }
}

/// Refuses a file that is not there before anything else tries to open it.
pub(crate) fn must_exist(what: &'static str, path: &Path) -> Result<(), EngineError> {
    if path.exists() { Ok(()) } else { Err(EngineError::MissingFile { what, path: path.to_owned() }) }
}

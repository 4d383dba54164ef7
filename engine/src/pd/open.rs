//! A bundle's fused graphs to a runner.

use std::sync::Arc;

use nsp_graph::{BinaryGraphs, pd};
use qnn_api::Backend;

use super::PairRunner;
use crate::load::{Reading, must_exist};
use crate::{EngineConfig, EngineError, QnnExecutor};

impl PairRunner {
    /// Loads the context binaries and finds their fused graphs; other graphs are left alone. `None` if there are none.
    ///
    /// # Errors
    ///
    /// Missing or refused files, graphs that are no fused pair, settings that do not fit them.
    pub fn open(config: &EngineConfig, backend: &Arc<Backend>) -> Result<Option<Self>, EngineError> {
        config.check()?;
        config.ctx_bins.iter().try_for_each(|path| must_exist("context binary", path))?;
        let reading = Reading::of(config);
        let (mut contexts, mut binaries, mut group) = (Vec::new(), Vec::new(), None);
        for path in &config.ctx_bins {
            let (context, spill) = reading.context(backend, path, group.take())?;
            group = spill;
            let source = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            binaries.push(BinaryGraphs { source, graphs: context.graphs().cloned().collect() });
            contexts.push(context);
        }
        let Some(layout) = pd::analyze(&binaries, config.select_graphs.as_deref())? else { return Ok(None) };
        let find = |g: &pd::PairGraph| {
            let found = contexts[g.binary].graph(&g.info.name);
            found.map_err(|source| EngineError::FindGraph { graph: g.info.name.clone(), source })
        };
        let graphs = layout.graphs().map(find).collect::<Result<Vec<_>, _>>()?;
        let mut executor = QnnExecutor::of_graphs(graphs);
        if !config.use_mmap {
            executor.move_weights_to_memory(&contexts);
        }
        Self::with_executor(layout, executor, config).map(Some)
    }
}

impl EngineError {
    /// The bundle has fused graphs and no plain ones: [`PairRunner`] runs them.
    pub fn is_only_fused(&self) -> bool {
        matches!(self, Self::Layout(nsp_graph::LayoutError::OnlyFused { .. }))
    }
}

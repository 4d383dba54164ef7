//! The target behind the QNN function table of any library.

use crate::compile::Prove;
use crate::lower::{GraphSink, Kind, Param};
use crate::target::{Target, TargetContext};
use crate::{CompileOptions, HtpOptions, Manifest, Progress, Result, finish};
use genie_bundle::BackendId;
use genie_types::TensorInfo;
use qnn_api::{Backend, Context, ContextOptions, GraphBuilder, GraphOptions, HtpGraphOptions, SaveWatch, TensorRef};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Compiles a Hugging Face directory into a bundle, with the graphs composed by `backend`.
///
/// The bundle appears complete or not at all; a bundle that was at `out_dir` before is replaced.
///
/// # Errors
/// Options, models and files that cannot be used, each by name; errors of the backend.
pub fn compile(options: &CompileOptions, backend: &Arc<Backend>, progress: &mut dyn Progress) -> Result<Manifest> {
    compile_and_prove(options, backend, progress, &mut |_, _| Ok(()))
}

/// As [`compile()`], and shows the complete bundle to `prove` before it is put in its place. This crate runs no graphs, so a
/// caller that can does it here; what it refuses is removed.
///
/// # Errors
/// As [`compile()`]; [`CompileError::NotProved`](crate::CompileError::NotProved) with the error of `prove`.
pub fn compile_and_prove(
    options: &CompileOptions,
    backend: &Arc<Backend>,
    progress: &mut dyn Progress,
    prove: &mut Prove<'_>,
) -> Result<Manifest> {
    options.check()?;
    if let Some(htp) = &options.htp {
        htp.check_backend(backend)?;
    }
    let mut target = QnnTarget { backend: backend.clone(), htp: options.htp };
    crate::compile::compile_and_prove(options, &mut target, progress, prove)
}

struct QnnTarget {
    backend: Arc<Backend>,
    htp: Option<HtpOptions>,
}

/// A context, and the options of its graphs.
struct QnnContext {
    context: Context,
    graphs: GraphOptions,
}

impl Target for QnnTarget {
    type Context = QnnContext;

    fn id(&self) -> BackendId {
        let library = self.backend.library();
        // The build id is optional in QNN.
        let build_id = library.build_id().unwrap_or_else(|_| "unknown".into());
        BackendId { name: library.provider().into(), build_id }
    }

    fn is_embedded(&self) -> bool {
        self.backend.library().is_embedded()
    }

    fn context(&mut self, scratch: &Path) -> Result<QnnContext> {
        let mut options = self.htp.as_ref().map_or_else(ContextOptions::default, HtpOptions::context_options);
        options.host_scratch = Some(scratch.to_owned());
        // HTP libraries compute floats in half precision only, and need the option even without a chip.
        let unnamed = HtpGraphOptions { float16: true, ..HtpGraphOptions::default() };
        let htp = self.htp.as_ref().map_or(unnamed, HtpOptions::graph_options);
        let graphs = GraphOptions { htp: Some(htp), ..GraphOptions::default() };
        Ok(QnnContext { context: Context::create(&self.backend, &options)?, graphs })
    }
}

impl TargetContext for QnnContext {
    type Graph = GraphBuilder;

    fn compose(&mut self, name: &str) -> Result<GraphBuilder> {
        Ok(self.context.compose(name, &self.graphs)?)
    }

    fn finalize(&mut self, graph: GraphBuilder) -> Result<()> {
        // The context keeps the graph; its handle is not needed.
        graph.finalize()?;
        Ok(())
    }

    fn save(self, path: &Path, watch: &mut SaveWatch<'_>) -> Result<()> {
        self.context.save_watched(path, watch).map_err(finish::of_watched)
    }
}

impl GraphSink for GraphBuilder {
    type Tensor = TensorRef;

    fn tensor(&mut self, info: &TensorInfo, kind: Kind) -> Result<TensorRef> {
        Ok(GraphBuilder::tensor(self, info, kind)?)
    }

    fn constant(&mut self, info: &TensorInfo, bytes: &[u8]) -> Result<TensorRef> {
        Ok(GraphBuilder::constant(self, info, bytes)?)
    }

    fn weight(&mut self, info: &TensorInfo, bytes: &[u8], progress: &dyn Progress) -> Result<TensorRef> {
        let mut watch = || if progress.cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        self.constant_watched(info, bytes, &mut watch).map_err(finish::of_watched)
    }

    fn node(
        &mut self,
        name: &str,
        op: &str,
        params: &[(&str, Param)],
        inputs: &[TensorRef],
        outputs: &[TensorRef],
    ) -> Result<()> {
        Ok(GraphBuilder::node(self, name, op, params, inputs, outputs)?)
    }
}

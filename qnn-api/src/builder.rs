//! A graph under construction: tensors first, then the nodes that read and write them, then the library's verdict.
//!
//! *Invariant*: whatever a C struct that was handed to the library points at is kept until the graph is finalised;
//! only the bytes of [`GraphBuilder::constant`] are lent for the call, which the library copies.

use core::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_types::{GraphInfo, TensorInfo};
use qnn_sys::host::HOST_BACKEND_ID;
use qnn_sys::*;

use crate::context_handle::ContextInner;
use crate::convert::{Ownership, Role, Store, c_name, client_bytes, raw_tensor};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::library::BACKEND_ID_HTP;
use crate::options::GraphOptions;
use crate::param::{Owner, Param, Value};
use crate::save_watch::{SavePart, Watcher};
use crate::system::GraphSpec;
use crate::table::CallContext;

/// Package of all ops that QNN defines itself.
const QNN_PACKAGE: &str = "qti.aisw";

/// Who fills a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorKind {
    /// The caller, before each run.
    Input,
    /// A node; the caller reads it after each run. Nodes of the same graph may read it too.
    Output,
    /// A node, for other nodes.
    Native,
}

/// Asked whether to go on.
type Watch<'w> = &'w mut dyn FnMut() -> ControlFlow<()>;

/// A tensor of one builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorRef {
    builder: u64,
    index: usize,
}

/// A graph under construction: declare tensors, add the nodes between them, finalize.
///
/// ```
/// use genie_types::{Dtype, TensorInfo};
/// use qnn_api::{Backend, Context, Library, Param, TensorKind};
///
/// # fn main() -> qnn_api::Result<()> {
/// let backend = Backend::new(&Library::linked(qnn_host::providers())?, &Default::default())?;
/// let context = Context::create(&backend, &Default::default())?;
/// let mut builder = context.compose("sums", &Default::default())?;
/// let x = builder.tensor(&TensorInfo::new("x", [2, 3], Dtype::F32), TensorKind::Input)?;
/// let y = builder.tensor(&TensorInfo::new("y", [2], Dtype::F32), TensorKind::Output)?;
/// let axes = Param::U32Tensor { dims: vec![1], data: vec![1] };
/// builder.node("sum", "ReduceSum", &[("axes", axes)], &[x], &[y])?;
///
/// let graph = builder.finalize()?;
/// assert_eq!(graph.info().outputs[0].dims, [2]);
/// # Ok(())
/// # }
/// ```
///
/// Invariant: `raw` is a graph of `context` that is not finalised; the library frees it with the context.
pub struct GraphBuilder {
    raw: Qnn_GraphHandle_t,
    name: String,
    id: u64,
    tensors: Vec<Tensor>,
    /// Contents of parameters that nodes refer to: tables, and texts with their zero byte.
    contents: Vec<Vec<u8>>,
    context: Arc<ContextInner>,
}

// SAFETY: the handle and the stored pointers (into this value's own vectors) are not bound to a thread.
unsafe impl Send for GraphBuilder {}

struct Tensor {
    raw: Qnn_Tensor_t,
    info: TensorInfo,
    role: Role,
    _store: Store,
}

impl Tensor {
    /// The id that the library gave.
    fn id(&self) -> u32 {
        // SAFETY: `raw_tensor` writes version 1.
        unsafe { self.raw.anon0.v1.id }
    }
}

impl GraphBuilder {
    pub(crate) fn begin(context: &Arc<ContextInner>, name: &str, options: &GraphOptions) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let c_name = c_name(name)?;
        let mut configs = options.configs(context.backend.library().backend_id() == BACKEND_ID_HTP);
        let mut raw = core::ptr::null_mut();
        let calls = context.backend.lock();
        // SAFETY: a live context, a C string and configs that live until the call returns, an out pointer.
        unsafe { context.table().graph_create(context.raw, c_name.as_ptr(), configs.list.as_ptr(), &raw mut raw) }
            .context(context.display_name(), || format!("begin graph `{name}`"))?;
        drop(calls);
        Ok(Self {
            raw,
            name: name.to_owned(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            tensors: Vec::new(),
            contents: Vec::new(),
            context: context.clone(),
        })
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declares a tensor that the caller or a node fills.
    ///
    /// # Errors
    /// What QNN cannot express, what the library refuses (a name that is taken, say).
    pub fn tensor(&mut self, info: &TensorInfo, kind: TensorKind) -> Result<TensorRef> {
        let role = match kind {
            TensorKind::Input => Role::Input,
            TensorKind::Output => Role::Output,
            TensorKind::Native => Role::Native,
        };
        self.declare(info, role, None, None)
    }

    /// Declares a tensor with contents. The bytes are lent for the call.
    ///
    /// # Errors
    /// Bytes of another size than the tensor's, and as for [`GraphBuilder::tensor`].
    pub fn constant(&mut self, info: &TensorInfo, bytes: &[u8]) -> Result<TensorRef> {
        self.declare_constant(info, bytes, None)
    }

    /// As [`GraphBuilder::constant`]; `watch` is asked every few megabytes while the embedded backend packs and keeps the contents
    /// ([`ContextOptions::host_scratch`](crate::ContextOptions::host_scratch)), and may end it. Other libraries take them in one call, in
    /// which it is not asked. It is called while the library is locked, so it must not use the library.
    ///
    /// # Errors
    /// [`Error::ConstantStopped`], as soon as `watch` breaks: the graph is as it was. Those of [`GraphBuilder::constant`].
    pub fn constant_watched(
        &mut self,
        info: &TensorInfo,
        bytes: &[u8],
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<TensorRef> {
        self.declare_constant(info, bytes, Some(watch))
    }

    fn declare_constant(&mut self, info: &TensorInfo, bytes: &[u8], watch: Option<Watch<'_>>) -> Result<TensorRef> {
        if bytes.len() != info.size_bytes() {
            return Err(Error::BufferSize {
                graph: self.name.clone(),
                tensor: info.name.clone(),
                expected: info.size_bytes(),
                found: bytes.len(),
            });
        }
        self.declare(info, Role::Static, Some(bytes), watch)
    }

    /// Adds a node of package `qti.aisw`, or of another one as `package::op`. Tensor parameters are registered as `{node}_{param}`.
    ///
    /// # Errors
    /// Tensors of another builder, parameters whose size contradicts their extents, texts with a zero byte, what the library
    /// refuses.
    pub fn node(
        &mut self,
        name: &str,
        op: &str,
        params: &[(&str, Param)],
        inputs: &[TensorRef],
        outputs: &[TensorRef],
    ) -> Result<()> {
        let (package, op_type) = op.split_once("::").unwrap_or((QNN_PACKAGE, op));
        let (c_node, c_package, c_op) = (c_name(name)?, c_name(package)?, c_name(op_type)?);
        let c_params = params.iter().map(|(param, _)| c_name(param)).collect::<Result<Vec<_>>>()?;
        // All are checked before the library is given the first one.
        let values = params.iter().map(|(param, value)| value.check(Owner { graph: &self.name, node: name, param }));
        let values = values.collect::<Result<Vec<_>>>()?;
        let mut raw_params = Vec::with_capacity(params.len());
        for (value, c_param) in values.into_iter().zip(&c_params) {
            let (kind, anon0) = self.param(value)?;
            raw_params.push(Qnn_Param_t { paramType: kind, name: c_param.as_ptr(), anon0 });
        }
        let mut raw_inputs = self.raw_tensors(name, inputs)?;
        let mut raw_outputs = self.raw_tensors(name, outputs)?;
        let mut config = Qnn_OpConfig_t { version: QNN_OPCONFIG_VERSION_1, ..Default::default() };
        config.anon0.v1 = Qnn_OpConfigV1_t {
            name: c_node.as_ptr(),
            packageName: c_package.as_ptr(),
            typeName: c_op.as_ptr(),
            numOfParams: raw_params.len() as u32,
            params: raw_params.as_mut_ptr(),
            numOfInputs: raw_inputs.len() as u32,
            inputTensors: raw_inputs.as_mut_ptr(),
            numOfOutputs: raw_outputs.len() as u32,
            outputTensors: raw_outputs.as_mut_ptr(),
        };
        let _calls = self.context.backend.lock();
        // SAFETY: a graph of this context that is not finalised; all that the config points at lives until the call
        // returns, and the tensors' own parts, and contents of parameters, as long as this builder.
        unsafe { self.context.table().graph_add_node(self.raw, config) }
            .context(self.context.display_name(), || format!("add node `{name}` (`{op}`) to graph `{}`", self.name))
    }

    /// Has the library check and prepare the graph.
    ///
    /// # Errors
    /// What the library refuses.
    pub fn finalize(self) -> Result<Graph> {
        let calls = self.context.backend.lock();
        // SAFETY: a graph of this context that is not finalised; no profile, no signal.
        unsafe { self.context.table().graph_finalize(self.raw, core::ptr::null_mut(), core::ptr::null_mut()) }
            .context(self.context.display_name(), || format!("finalize graph `{}`", self.name))?;
        drop(calls);
        let of = |role| self.tensors.iter().filter(move |tensor| tensor.role == role);
        let infos = |role| of(role).map(|tensor| tensor.info.clone()).collect::<Vec<_>>();
        let ids = |role| of(role).map(Tensor::id).collect::<Vec<_>>();
        let spec = GraphSpec {
            info: GraphInfo { name: self.name.clone(), inputs: infos(Role::Input), outputs: infos(Role::Output) },
            input_ids: ids(Role::Input),
            output_ids: ids(Role::Output),
        };
        // SAFETY: the handle is a finalised graph of this context.
        unsafe { Graph::from_raw(self.raw, &self.context, &spec) }
    }

    fn declare(
        &mut self,
        info: &TensorInfo,
        role: Role,
        bytes: Option<&[u8]>,
        watch: Option<Watch<'_>>,
    ) -> Result<TensorRef> {
        // Blocks have a scale each: all graphs together would hold more of them than the weights are large. The
        // embedded backend knows a declared tensor by its id, so that its encoding is lent for the call.
        let is_lent = role == Role::Static && self.context.backend.library().backend_id() == HOST_BACKEND_ID;
        let ownership = if is_lent { Ownership::Lent } else { Ownership::Copied };
        let (mut raw, mut store) = raw_tensor(info, role, 0, ownership)?;
        if let Some(bytes) = bytes {
            raw.anon0.v1.anon0.clientBuf = client_bytes(&info.name, bytes)?;
        }
        let (context, graph) = (&self.context, self.raw);
        let calls = context.backend.lock();
        // SAFETY: a graph of this context that is not finalised; the struct and what it points at live until the call
        // returns, which fills in the id.
        let mut call = || unsafe { context.table().tensor_create_graph_tensor(graph, &raw mut raw) };
        let declared = match watch {
            None => call(),
            Some(watch) => {
                let mut ask = |_| watch();
                let mut watcher = Watcher::new(&mut ask);
                // The reports are not passed on, so that it does not matter which part they are of.
                let declared = watcher.during(context, SavePart::LayOut, call);
                if watcher.is_stopped() {
                    return Err(Error::ConstantStopped { graph: self.name.clone(), tensor: info.name.clone() });
                }
                declared
            }
        };
        declared
            .context(context.display_name(), || format!("declare tensor `{}` of graph `{}`", info.name, self.name))?;
        drop(calls);
        // The bytes were lent: nodes must not be given a pointer to what may be gone.
        raw.anon0.v1.anon0.clientBuf = Qnn_ClientBuffer_t::default();
        let info = if role == Role::Static {
            if is_lent {
                raw.anon0.v1.quantizeParams = store.drop_encoding();
            }
            TensorInfo { format: info.format, ..TensorInfo::new(info.name.clone(), info.dims.clone(), info.dtype) }
        } else {
            info.clone()
        };
        self.tensors.push(Tensor { raw, info, role, _store: store });
        Ok(TensorRef { builder: self.id, index: self.tensors.len() - 1 })
    }

    fn raw_tensors(&self, node: &str, tensors: &[TensorRef]) -> Result<Vec<Qnn_Tensor_t>> {
        let foreign = || Error::ForeignTensor { graph: self.name.clone(), node: node.to_owned() };
        let raw = |tensor: &TensorRef| {
            let ours = self.tensors.get(tensor.index).filter(|_| tensor.builder == self.id);
            ours.map(|tensor| tensor.raw).ok_or_else(foreign)
        };
        tensors.iter().map(raw).collect()
    }

    /// The C form of a parameter; a table is declared as a tensor. What the node refers to stays with the builder.
    fn param(&mut self, value: Value) -> Result<(Qnn_ParamType_t, Qnn_Param_t_anon0)> {
        let scalar = |scalar| (QNN_PARAMTYPE_SCALAR, Qnn_Param_t_anon0 { scalarParam: scalar });
        Ok(match value {
            Value::Scalar(value) => scalar(value),
            Value::Text(text) => {
                let value = scalar!(QNN_DATATYPE_STRING, stringValue, text.as_ptr().cast());
                self.contents.push(text);
                scalar(value)
            }
            Value::Table(info, bytes) => {
                let tensor = self.declare(&info, Role::Static, Some(&bytes), None)?;
                let mut raw = self.tensors[tensor.index].raw;
                raw.anon0.v1.anon0.clientBuf = client_bytes(&info.name, &bytes)?;
                self.contents.push(bytes);
                (QNN_PARAMTYPE_TENSOR, Qnn_Param_t_anon0 { tensorParam: raw })
            }
        })
    }
}

impl core::fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("GraphBuilder")
            .field("name", &self.name)
            .field("n_tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

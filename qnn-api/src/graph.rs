//! A finalised graph, and a session: buffers lent to it for as long as it takes to run.
//!
//! The C structs of all inputs and outputs are made once; a session only writes addresses into them, so running
//! allocates nothing.

use std::marker::PhantomData;
use std::sync::Arc;

use genie_types::{DataFormat, GraphInfo, TensorInfo};
use qnn_sys::*;

use crate::backend::Backend;
use crate::context_handle::ContextInner;
use crate::convert::{Ownership, Role, Store, c_name, raw_tensor};
use crate::error::{Error, Result};
use crate::mem::{self, Registered, SharedMemory};
use crate::profile::Profile;
use crate::system::GraphSpec;
use crate::table::CallContext;

/// A graph that can run. QNN has no call to free one: it lives as long as its context, which it keeps.
///
/// Invariant: `raw` is a finalised graph of `context`; templates are in the order of `info`.
pub struct Graph {
    pub(crate) raw: Qnn_GraphHandle_t,
    pub(crate) info: GraphInfo,
    inputs: Templates,
    outputs: Templates,
    /// Memory whose parts are bound by handle.
    shared: Option<Arc<SharedMemory>>,
    pub(crate) context: Arc<ContextInner>,
}

// SAFETY: the handle and the pointers (into this value's own vectors, or lent to a session that borrows it) are not
// bound to a thread; calls are serialised by the backend's lock.
unsafe impl Send for Graph {}
// SAFETY: through a shared reference only `info` can be reached.
unsafe impl Sync for Graph {}

/// The C structs of one direction. What they point at is only good during a session, which clears them first.
struct Templates {
    raw: Vec<Qnn_Tensor_t>,
    /// Parallel to `raw`.
    seen: Vec<Seen>,
    _stores: Vec<Store>,
}

/// Addresses in shared memory that a tensor was lent, with the handles they have there; none is bound by address.
#[derive(Clone, Copy, Default)]
struct Seen {
    places: [(usize, Option<Qnn_MemHandle_t>); MAX_PLACES],
    n: usize,
}

/// A tensor that is lent more addresses than this is a window that moves through memory: it is bound by address.
const MAX_PLACES: usize = 4;

impl Templates {
    fn new(infos: &[TensorInfo], ids: &[u32], role: Role) -> Result<Self> {
        let made = infos.iter().zip(ids).map(|(info, &id)| {
            u32::try_from(info.size_bytes()).map_err(|_| Error::Invalid {
                what: format!("tensor `{}`", info.name),
                expected: "less than 4 GB, the most one QNN buffer can hold".into(),
                found: format!("{} bytes", info.size_bytes()),
            })?;
            raw_tensor(info, role, id, Ownership::Copied)
        });
        let (raw, stores): (Vec<_>, _) = made.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(Self { seen: vec![Seen::default(); raw.len()], raw, _stores: stores })
    }

    fn bind(&mut self, index: usize, data: *mut u8, n_bytes: usize) {
        // Only written here and in `new`, which made it version 1.
        self.raw[index].anon0.v1.memType = QNN_TENSORMEMTYPE_RAW;
        // The size fits: it equals the tensor's, which `new` checked.
        self.raw[index].anon0.v1.anon0.clientBuf = Qnn_ClientBuffer_t { data: data.cast(), dataSize: n_bytes as u32 };
    }

    fn bind_mem(&mut self, index: usize, handle: Qnn_MemHandle_t) {
        self.raw[index].anon0.v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
        self.raw[index].anon0.v1.anon0 = Qnn_TensorV1_t_anon0 { memHandle: handle };
    }

    fn clear(&mut self) {
        for index in 0..self.raw.len() {
            self.bind(index, core::ptr::null_mut(), 0);
        }
    }

    /// The first tensor without memory. Null means none: even an empty slice has an address.
    fn first_unbound(&self) -> Option<usize> {
        // SAFETY: version 1, and both members of the union begin with a pointer.
        self.raw.iter().position(|tensor| unsafe { tensor.anon0.v1.anon0.memHandle }.is_null())
    }
}

impl Graph {
    pub(crate) fn retrieve(context: &Arc<ContextInner>, spec: &GraphSpec) -> Result<Self> {
        let name = c_name(&spec.info.name)?;
        let mut raw = core::ptr::null_mut();
        let calls = context.backend.lock();
        // SAFETY: a live context, a C string that lives until the call returns, an out pointer.
        unsafe { context.table().graph_retrieve(context.raw, name.as_ptr(), &raw mut raw) }
            .context(context.display_name(), || format!("find graph `{}`", spec.info.name))?;
        drop(calls);
        // SAFETY: just handed out for this context; graphs of a binary are finalised.
        unsafe { Self::from_raw(raw, context, spec) }
    }

    /// # Safety
    /// `raw` is a finalised graph of `context`, with the tensors of `spec`.
    pub(crate) unsafe fn from_raw(
        raw: Qnn_GraphHandle_t,
        context: &Arc<ContextInner>,
        spec: &GraphSpec,
    ) -> Result<Self> {
        Ok(Self {
            raw,
            inputs: Templates::new(&spec.info.inputs, &spec.input_ids, Role::Input)?,
            outputs: Templates::new(&spec.info.outputs, &spec.output_ids, Role::Output)?,
            info: spec.info.clone(),
            shared: None,
            context: context.clone(),
        })
    }

    /// Name, inputs and outputs; sessions bind by index into these.
    pub fn info(&self) -> &GraphInfo {
        &self.info
    }

    /// The backend that runs it.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.context.backend
    }

    /// From now on, buffers that lie in that memory are bound by handle: registered with the context when a tensor is first lent
    /// them. What the library does not take is bound by address, with a warning.
    pub fn share(&mut self, memory: &Arc<SharedMemory>) {
        self.shared = Some(memory.clone());
    }

    /// The handle of a buffer in shared memory. Allocates when a tensor is first lent an address.
    fn handle(
        &mut self,
        direction: Direction,
        index: usize,
        address: usize,
        n_bytes: usize,
    ) -> Option<Qnn_MemHandle_t> {
        let shared = self.shared.as_ref()?;
        let templates = match direction {
            Direction::Input => &mut self.inputs,
            Direction::Output => &mut self.outputs,
        };
        let seen = &mut templates.seen[index];
        if let Some((_, handle)) = seen.places[..seen.n].iter().find(|(of, _)| *of == address) {
            return *handle;
        }
        if seen.n == MAX_PLACES {
            return None;
        }
        let info = &direction.of(&self.info)[index];
        // Of tiles the library takes more bytes than the shape has.
        let place = shared.find(address, n_bytes).filter(|_| info.format == DataFormat::Flat);
        let handle = place.and_then(|place| mem::handle(&self.context, info, shared, place));
        seen.places[seen.n] = (address, handle);
        seen.n += 1;
        handle
    }

    /// Begins a run: bind every input and output, then run, as often as needed.
    pub fn session(&mut self) -> Session<'_> {
        // What an earlier session was lent may be gone.
        self.inputs.clear();
        self.outputs.clear();
        Session { graph: self, buffers: PhantomData }
    }
}

impl core::fmt::Debug for Graph {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Graph").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Buffers lent to a graph.
///
/// They are borrowed until the session is gone, so none can be freed or looked at in between:
///
/// ```compile_fail
/// fn too_short(graph: &mut qnn_api::Graph) -> qnn_api::Result<()> {
///     let mut session = graph.session();
///     {
///         let ids = vec![0_u8; 4];
///         session.input(0, &ids)?; // `ids` does not live long enough
///     }
///     session.run()
/// }
/// ```
///
/// ```compile_fail
/// fn shared(graph: &mut qnn_api::Graph, logits: &mut [u8]) -> qnn_api::Result<()> {
///     let mut session = graph.session();
///     session.output(0, logits)?;
///     let first = logits[0]; // still lent
///     session.run()
/// }
/// ```
///
/// With buffers that outlive it, it compiles:
///
/// ```
/// fn run(graph: &mut qnn_api::Graph, ids: &[u8], logits: &mut [u8]) -> qnn_api::Result<u8> {
///     let mut session = graph.session();
///     session.input(0, ids)?.output(0, logits)?;
///     session.run()?;
///     drop(session);
///     Ok(logits[0])
/// }
/// ```
pub struct Session<'io> {
    graph: &'io mut Graph,
    buffers: PhantomData<(&'io [u8], &'io mut [u8])>,
}

impl<'io> Session<'io> {
    /// Name, inputs and outputs of the graph.
    pub fn info(&self) -> &GraphInfo {
        &self.graph.info
    }

    /// Lends the input of that index its bytes.
    ///
    /// # Errors
    /// No such input, a buffer of another size than the tensor's.
    pub fn input(&mut self, index: usize, bytes: &'io [u8]) -> Result<&mut Self> {
        self.check(index, Direction::Input, bytes.len())?;
        // The library only reads inputs; the C struct has one pointer type for both directions.
        match self.graph.handle(Direction::Input, index, bytes.as_ptr().addr(), bytes.len()) {
            Some(handle) => self.graph.inputs.bind_mem(index, handle),
            None => self.graph.inputs.bind(index, bytes.as_ptr().cast_mut(), bytes.len()),
        }
        Ok(self)
    }

    /// Lends the output of that index its bytes.
    ///
    /// # Errors
    /// No such output, a buffer of another size than the tensor's.
    pub fn output(&mut self, index: usize, bytes: &'io mut [u8]) -> Result<&mut Self> {
        self.check(index, Direction::Output, bytes.len())?;
        match self.graph.handle(Direction::Output, index, bytes.as_ptr().addr(), bytes.len()) {
            Some(handle) => self.graph.outputs.bind_mem(index, handle),
            None => self.graph.outputs.bind(index, bytes.as_mut_ptr(), bytes.len()),
        }
        Ok(self)
    }

    /// Lends an input and an output the same bytes: the graph's output takes the place of its input.
    ///
    /// # Errors
    /// No such input or output, a buffer of another size than either tensor's.
    pub fn in_place(&mut self, input: usize, output: usize, bytes: &'io mut [u8]) -> Result<&mut Self> {
        self.check(input, Direction::Input, bytes.len())?;
        self.check(output, Direction::Output, bytes.len())?;
        let (data, n_bytes) = (bytes.as_mut_ptr(), bytes.len());
        self.graph.inputs.bind(input, data, n_bytes);
        self.graph.outputs.bind(output, data, n_bytes);
        Ok(self)
    }

    /// Lends the input of that index registered memory.
    ///
    /// # Errors
    /// No such input, memory of another size than the tensor's.
    pub fn input_mem(&mut self, index: usize, mem: &'io Registered) -> Result<&mut Self> {
        self.check(index, Direction::Input, mem.len())?;
        mem.check_context(&self.graph.context, &self.graph.info.inputs[index].name)?;
        match mem.handle() {
            Some(handle) => self.graph.inputs.bind_mem(index, handle),
            None => self.graph.inputs.bind(index, mem.bytes().as_ptr().cast_mut(), mem.len()),
        }
        Ok(self)
    }

    /// Lends the output of that index registered memory.
    ///
    /// # Errors
    /// No such output, memory of another size than the tensor's.
    pub fn output_mem(&mut self, index: usize, mem: &'io mut Registered) -> Result<&mut Self> {
        self.check(index, Direction::Output, mem.len())?;
        mem.check_context(&self.graph.context, &self.graph.info.outputs[index].name)?;
        match mem.handle() {
            Some(handle) => self.graph.outputs.bind_mem(index, handle),
            None => self.graph.outputs.bind(index, mem.bytes_mut().as_mut_ptr(), mem.len()),
        }
        Ok(self)
    }

    /// Runs the graph.
    ///
    /// # Errors
    /// A tensor without buffer, what the library refuses.
    pub fn run(&mut self) -> Result<()> {
        self.execute(core::ptr::null_mut())
    }

    /// Runs the graph and adds its events to a profile.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_profiled(&mut self, profile: &Profile) -> Result<()> {
        profile.check_backend(&self.graph.context.backend)?;
        self.execute(profile.raw())
    }

    fn execute(&mut self, profile: Qnn_ProfileHandle_t) -> Result<()> {
        for (direction, templates) in [(Direction::Input, &self.graph.inputs), (Direction::Output, &self.graph.outputs)]
        {
            if let Some(index) = templates.first_unbound() {
                return Err(Error::Unbound {
                    graph: self.graph.info.name.clone(),
                    what: direction.name(),
                    tensor: direction.of(&self.graph.info)[index].name.clone(),
                });
            }
        }
        let Graph { raw, inputs, outputs, context, info, .. } = &mut *self.graph;
        let _calls = context.backend.lock();
        // SAFETY: a finalised graph of a live context; every tensor has a buffer of its size, lent for 'io, and outputs
        // are lent exclusively, some of them with the input that they replace; a live profile of this backend or none, no signal.
        unsafe {
            context.table().graph_execute(
                *raw,
                inputs.raw.as_ptr(),
                inputs.raw.len() as u32,
                outputs.raw.as_mut_ptr(),
                outputs.raw.len() as u32,
                profile,
                core::ptr::null_mut(),
            )
        }
        .context(context.display_name(), || format!("run graph `{}`", info.name))
    }

    fn check(&self, index: usize, direction: Direction, found: usize) -> Result<()> {
        let graph = &self.graph.info;
        let tensors = direction.of(graph);
        let tensor = tensors.get(index).ok_or_else(|| Error::Index {
            graph: graph.name.clone(),
            what: direction.name(),
            index,
            n: tensors.len(),
        })?;
        let expected = tensor.size_bytes();
        if expected != found {
            let (graph, tensor) = (graph.name.clone(), tensor.name.clone());
            return Err(Error::BufferSize { graph, tensor, expected, found });
        }
        Ok(())
    }
}

impl core::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session").field("graph", &self.graph.info.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Input,
    Output,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    fn of(self, info: &GraphInfo) -> &[TensorInfo] {
        match self {
            Self::Input => &info.inputs,
            Self::Output => &info.outputs,
        }
    }
}

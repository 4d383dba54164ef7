//! A context: the graphs that share a binary and its weights.
//!
//! *Invariant*: whatever the library may still read while the context lives (a mapped file) is kept as long.

use core::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use genie_types::{GraphInfo, TensorInfo};
use qnn_sys::QNN_PROPERTY_CONTEXT_SUPPORT_CONFIG_PERSISTENT_BINARY;

use crate::backend::Backend;
use crate::builder::GraphBuilder;
use crate::context_handle::ContextInner;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::library::BACKEND_ID_HTP;
use crate::mapped::MappedFile;
use crate::mapped_binary::MappedBinary;
use crate::mem::{Allocator, Registered};
use crate::options::{ContextOptions, GraphOptions, SpillGroup};
use crate::save;
use crate::save_watch::SaveWatch;
use crate::system::{self, BinaryInfo, GraphSpec};
use crate::table::{CallContext, CallError};

/// Graphs of one binary, or graphs under construction.
pub struct Context {
    inner: Arc<ContextInner>,
    binary: Option<BinaryInfo>,
    specs: Vec<GraphSpec>,
    mapped: Option<MappedBinary>,
}

impl Context {
    /// An empty context, to compose graphs in.
    ///
    /// # Errors
    /// What the library refuses.
    pub fn create(backend: &Arc<Backend>, options: &ContextOptions) -> Result<Self> {
        let library = backend.library();
        let mut scratch = options.scratch(library.backend_id());
        let configs = options.configs(false, library.backend_id() == BACKEND_ID_HTP);
        let mut configs = configs.with_scratch(scratch.as_mut());
        let mut raw = core::ptr::null_mut();
        let calls = backend.lock();
        // SAFETY: live backend and device (or none), a config list that lives until the call returns, an out pointer.
        unsafe {
            library.table.context_create(backend.raw(), backend.raw_device(), configs.list.as_ptr(), &raw mut raw)
        }
        .context(library.display_name(), || "create a context".into())?;
        drop(calls);
        Ok(Self {
            inner: ContextInner::new(raw, None, options.spill_group(), scratch.is_some(), backend),
            binary: None,
            specs: Vec::new(),
            mapped: None,
        })
    }

    /// A context from a file, which is mapped and stays so as long as the context lives. A backend that supports
    /// "persistent binaries" may refer to the bytes instead of copying them.
    ///
    /// *Trust*: to replace a binary that may be in use, write beside it and rename, as [`Context::save`] does. One that is
    /// changed in place gives the library other bytes than it checked; no reference of Rust's is to them, see the crate's page.
    ///
    /// # Errors
    /// A file that cannot be read, is no context binary, or does not fit this library or SoC.
    pub fn from_file(backend: &Arc<Backend>, path: impl AsRef<Path>, options: &ContextOptions) -> Result<Self> {
        let path = path.as_ref();
        let bytes = Bytes::Mapped(MappedFile::open(path)?);
        let len = bytes.as_raw().len();
        let mut context = Self::load(backend, bytes, options, &format!("context binary `{}`", path.display()))?;
        // Pages that may leave memory are to be read from the file again.
        let can_move = cfg!(target_os = "linux") && backend.library().is_embedded();
        if can_move && !options.host_lets_weights_go {
            context.mapped = Some(MappedBinary::new(Arc::downgrade(&context.inner), path, len));
        }
        Ok(context)
    }

    /// A context from bytes that are only lent for the call.
    ///
    /// # Errors
    /// Bytes that are no context binary, or do not fit this library or SoC.
    pub fn from_bytes(backend: &Arc<Backend>, bytes: &[u8], options: &ContextOptions) -> Result<Self> {
        Self::load(backend, Bytes::Lent(bytes), options, &format!("a context binary of {} bytes", bytes.len()))
    }

    fn load(backend: &Arc<Backend>, bytes: Bytes<'_>, options: &ContextOptions, what: &str) -> Result<Self> {
        let library = backend.library();
        // SAFETY: `bytes` holds them until the end of this function at least.
        let (info, specs) = unsafe { system::read(library, bytes.as_raw()) }?;
        let kept = matches!(bytes, Bytes::Mapped(_));
        // The emulator claims to support the option, then refuses every binary that comes with it.
        let persistent = kept
            && !library.is_emulator()
            && library.has_capability(QNN_PROPERTY_CONTEXT_SUPPORT_CONFIG_PERSISTENT_BINARY);
        let mut raw = core::ptr::null_mut();
        let raw_bytes = bytes.as_raw();
        let calls = backend.lock();
        let mut create = |persistent| {
            let mut configs = options.configs(persistent, library.backend_id() == BACKEND_ID_HTP);
            if persistent {
                configs = configs.with_mapped(options, library.backend_id());
            }
            // SAFETY: live backend and device (or none), configs and bytes that live until the call returns (mapped bytes
            // as long as the context, see `ContextInner`), an out pointer, no profile.
            unsafe {
                library.table.context_create_from_binary(
                    backend.raw(),
                    backend.raw_device(),
                    configs.list.as_ptr(),
                    raw_bytes.cast(),
                    raw_bytes.len() as u64,
                    &raw mut raw,
                    core::ptr::null_mut(),
                )
            }
        };
        match create(persistent) {
            // Another library may do the same.
            Err(CallError::Status(error)) if persistent && error.is_unsupported() => create(false),
            done => done,
        }
        .context(library.display_name(), || {
            let soc = info.soc.map_or(String::new(), |soc| format!(", SoC {soc}"));
            format!("load {what} (made by build {}{soc})", info.build_id)
        })?;
        drop(calls);
        let map = match bytes {
            Bytes::Mapped(map) => Some(map),
            Bytes::Lent(_) => None,
        };
        Ok(Self {
            inner: ContextInner::new(raw, map, options.spill_group(), false, backend),
            binary: Some(info),
            specs,
            mapped: None,
        })
    }

    /// Its spill buffer, for other contexts to use in turn: where it was loaded with [`ContextOptions::htp_spill_fill`].
    pub fn spill_group(&self) -> SpillGroup {
        SpillGroup(self.inner.clone())
    }

    /// What the binary says about itself; nothing for a context that is being composed.
    pub fn binary(&self) -> Option<&BinaryInfo> {
        self.binary.as_ref()
    }

    /// Its mapped file, which can be moved into memory: where the library reads weights from there, as the embedded backend does, on Linux.
    pub fn mapped_binary(&self) -> Option<&MappedBinary> {
        self.mapped.as_ref()
    }

    /// The graphs of the binary, in the file's order; none for a context that is being composed.
    pub fn graphs(&self) -> impl ExactSizeIterator<Item = &GraphInfo> {
        self.specs.iter().map(|spec| &spec.info)
    }

    /// A graph of the binary, ready to run.
    ///
    /// # Errors
    /// No such graph, or a tensor too large for one QNN buffer.
    pub fn graph(&self, name: &str) -> Result<Graph> {
        let spec = self.specs.iter().find(|spec| spec.info.name == name).ok_or_else(|| Error::NoGraph {
            name: name.to_owned(),
            known: self.specs.iter().map(|spec| spec.info.name.clone()).collect(),
        })?;
        Graph::retrieve(&self.inner, spec)
    }

    /// Begins a graph. Several may be under construction at a time.
    ///
    /// # Errors
    /// A name with a zero byte, what the library refuses.
    pub fn compose(&self, name: &str, options: &GraphOptions) -> Result<GraphBuilder> {
        GraphBuilder::begin(&self.inner, name, options)
    }

    /// Writes the serialised context to a file: into a mapped file beside it, which is then renamed.
    ///
    /// # Errors
    /// What the library refuses (graphs not finalised, say), what the file system refuses.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_watched(path, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Self::save`]; `watch` is given how far it is, a few megabytes at a time, and may end it. Within the calls of other
    /// libraries than the embedded backend nothing is reported, and an end waits until the call is over.
    ///
    /// # Errors
    /// [`Error::Stopped`], as soon as `watch` breaks; those of [`Self::save`]. A file that was there before stays.
    pub fn save_watched(&self, path: impl AsRef<Path>, watch: &mut SaveWatch<'_>) -> Result<()> {
        save::to_file(&self.inner, path.as_ref(), watch)
    }

    /// The serialised context.
    ///
    /// # Errors
    /// What the library refuses; a context with [`ContextOptions::host_scratch`], which is saved to a file only.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        save::to_bytes(&self.inner)
    }

    /// Allocates a tensor's buffer and registers it, if the memory can be shared and the library takes it.
    ///
    /// # Errors
    /// No memory, or a library that takes shared memory but refuses this one.
    pub fn allocate(&self, allocator: &dyn Allocator, info: &TensorInfo) -> Result<Registered> {
        Registered::new(&self.inner, allocator, info)
    }
}

impl core::fmt::Debug for Context {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let graphs: Vec<_> = self.graphs().map(|graph| &graph.name).collect();
        f.debug_struct("Context").field("graphs", &graphs).finish_non_exhaustive()
    }
}

enum Bytes<'b> {
    Mapped(MappedFile),
    Lent(&'b [u8]),
}

impl Bytes<'_> {
    fn as_raw(&self) -> *const [u8] {
        match self {
            Self::Mapped(file) => file.as_raw(),
            Self::Lent(bytes) => *bytes,
        }
    }
}

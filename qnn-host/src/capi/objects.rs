//! What the client's handles stand for, and the registries that hold them.
//!
//! ```text
//! Backend (threads, arena) ──< ContextShared (one per context: weights) ──< Graph
//!                └── Context: names and order of the graphs
//! ```
//! A graph keeps its core alive, a core its backend; nothing points back up, so dropping a context's graphs frees all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::container;
use crate::error::{Component, Error};
use crate::exec::Executable;
use crate::ir::{self, Tensor, TensorId};
use crate::package::{self, Packages};
use crate::pool::{Pool, PoolOptions};
use crate::prepare::PrepareOptions;
use crate::registry::{Kind, Registry};
use crate::step::Arena;

use super::draft::Draft;
use super::execute::Runner;
use super::log::Log;
use super::mem::Mem;
use super::platform::Platform;
use super::profile::Profile;
use super::queue::Queue;
use super::system::SystemContext;
use super::watch::Watch;
use super::weights::WeightStore;

pub(super) static LOGS: Registry<Log> = Registry::new(Kind::Log);
pub(super) static BACKENDS: Registry<Backend> = Registry::new(Kind::Backend);
pub(super) static DEVICES: Registry<Device> = Registry::new(Kind::Device);
pub(super) static CONTEXTS: Registry<Context> = Registry::new(Kind::Context);
pub(super) static GRAPHS: Registry<Graph> = Registry::new(Kind::Graph);
pub(super) static PROFILES: Registry<Profile> = Registry::new(Kind::Profile);
pub(super) static MEMS: Registry<Mem> = Registry::new(Kind::Mem);
pub(super) static SYSTEMS: Registry<SystemContext> = Registry::new(Kind::SystemContext);

/// The live object of a handle, or the error that names whose handle is bad.
pub(super) fn find<T>(registry: &Registry<T>, handle: *mut std::ffi::c_void) -> Result<Arc<T>, Error> {
    registry.get(handle).ok_or_else(|| bad_handle(registry, handle))
}

/// Takes the object out; its handle is dead from now on.
pub(super) fn take<T>(registry: &Registry<T>, handle: *mut std::ffi::c_void) -> Result<Arc<T>, Error> {
    registry.remove(handle).ok_or_else(|| bad_handle(registry, handle))
}

fn bad_handle<T>(registry: &Registry<T>, handle: *mut std::ffi::c_void) -> Error {
    let component = match registry.kind() {
        Kind::Log => Component::Log,
        Kind::Backend => Component::Backend,
        Kind::Device => Component::Device,
        Kind::Context => Component::Context,
        Kind::Graph => Component::Graph,
        Kind::Profile => Component::Profile,
        Kind::Mem => Component::Mem,
        Kind::SystemContext => Component::System,
    };
    Error::InvalidHandle { component, found: handle.addr() }
}

/// A backend: its log, its threads, and the memory that runs on them work in.
pub(super) struct Backend {
    pub(super) log: Option<Arc<Log>>,
    /// How its threads are made.
    pub(super) platform: Platform,
    /// Op packages that the client registered.
    pub(super) packages: Mutex<Packages>,
    pool: OnceLock<Arc<Pool>>,
    /// Scratch memory of runs, as large as the largest need of all graphs of all contexts. Its lock makes runs take turns, as
    /// the threads would make them anyway.
    pub(super) arena: Mutex<Arena>,
}

impl Backend {
    pub(super) fn new(log: Option<Arc<Log>>, platform: Platform) -> Self {
        Self { log, platform, packages: Mutex::default(), pool: OnceLock::new(), arena: Mutex::default() }
    }

    /// The threads, started when first needed.
    pub(super) fn pool(&self) -> Result<Arc<Pool>, Error> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool.clone());
        }
        let Platform { threads, pin } = self.platform.clone();
        let pool = Pool::new(&PoolOptions { threads, pin, ..PoolOptions::default() }).map_err(Error::Thread)?;
        Ok(self.pool.get_or_init(|| Arc::new(pool)).clone())
    }
}

/// A device: there is one, and it has nothing to set.
pub(super) struct Device;

/// What all graphs of a context share.
pub(super) struct ContextShared {
    pub(super) backend: Arc<Backend>,
    pub(super) weights: Mutex<WeightStore>,
    /// How graphs are prepared; holds what they make of their weights, so that variants share that too.
    pub(super) options: Mutex<PrepareOptions>,
    /// Static tensors made for the whole context; their ids carry [`CONTEXT_TENSOR`].
    pub(super) tensors: RwLock<Vec<Tensor>>,
    /// The context is being freed: waiting calls give up.
    pub(super) closed: AtomicBool,
    /// Executions that wait.
    pub(super) queue: Queue,
    /// The layout of the binary, kept between asking for its size and for its bytes. Locks: this one before the list of
    /// graphs, that before a graph's state.
    pub(super) binary: Mutex<Option<Arc<container::Plan>>>,
    /// Who watches the binary being laid out and written.
    pub(super) watch: Mutex<Option<Watch>>,
    /// Addresses of the persistent binary that the context was made from.
    pub(super) binary_at: Mutex<Option<std::ops::Range<usize>>>,
}

/// Marks the id of a context tensor.
pub(super) const CONTEXT_TENSOR: u32 = 1 << 31;

/// A context: named graphs over one core.
pub(super) struct Context {
    pub(super) core: Arc<ContextShared>,
    /// In the order they were made.
    pub(super) graphs: Mutex<Vec<Entry>>,
}

/// A graph of a context.
pub(super) struct Entry {
    pub(super) graph: Arc<Graph>,
    /// The handle, once given out.
    pub(super) handle: Option<usize>,
    /// May be retrieved (`ENABLE_GRAPHS` may have left it out).
    pub(super) enabled: bool,
}

impl Context {
    pub(super) fn new(backend: Arc<Backend>) -> Self {
        let core = ContextShared {
            backend,
            weights: Mutex::default(),
            options: Mutex::default(),
            tensors: RwLock::default(),
            closed: AtomicBool::new(false),
            queue: Queue::default(),
            binary: Mutex::default(),
            watch: Mutex::default(),
            binary_at: Mutex::default(),
        };
        Self { core: Arc::new(core), graphs: Mutex::default() }
    }
}

/// A graph, being composed or ready to run.
pub(super) struct Graph {
    pub(super) name: String,
    pub(super) core: Arc<ContextShared>,
    pub(super) state: RwLock<State>,
}

/// The two lives of a graph.
pub(super) enum State {
    /// Tensors and nodes are being added.
    Composing(Box<Draft>),
    /// Complete and checked, from a binary, not prepared yet. The first packages, as many as stated, know its nodes.
    Loaded(Arc<ir::SourceGraph>, usize),
    /// Prepared.
    Ready(Box<Runner>),
    /// The context was freed.
    Closed,
}

impl Graph {
    pub(super) fn new(core: Arc<ContextShared>, name: &str, state: State) -> Self {
        Self { name: name.to_owned(), core, state: RwLock::new(state) }
    }

    /// Works on the draft of a graph that is not finalized yet.
    pub(super) fn draft<R>(&self, body: impl FnOnce(&mut Draft) -> Result<R, Error>) -> Result<R, Error> {
        match &mut *self.state.write() {
            State::Composing(draft) => body(draft),
            State::Loaded(..) | State::Ready(_) => Err(Error::Finalized { graph: self.name.clone() }),
            State::Closed => Err(Error::Aborted { graph: self.name.clone() }),
        }
    }

    /// Works with the prepared form, made now if the graph was loaded and not used yet. The graph cannot be closed
    /// before `body` returns.
    pub(super) fn with_runner<R>(&self, body: impl FnOnce(&Runner) -> Result<R, Error>) -> Result<R, Error> {
        if matches!(&*self.state.read(), State::Loaded(..)) {
            let mut state = self.state.write();
            if let State::Loaded(ir, asked) = &*state {
                let runner = self.prepare(ir.clone(), Vec::new(), &vec![*asked; ir.nodes.len()])?;
                *state = State::Ready(Box::new(runner));
            }
        }
        match &*self.state.read() {
            State::Ready(runner) => body(runner),
            State::Composing(_) => Err(Error::NotFinalized { graph: self.name.clone() }),
            State::Loaded(..) | State::Closed => Err(Error::Aborted { graph: self.name.clone() }),
        }
    }

    /// Ends composing.
    pub(super) fn finalize(&self) -> Result<(), Error> {
        let mut state = self.state.write();
        match &mut *state {
            State::Composing(draft) => {
                draft.finish()?;
                let runner = self.prepare(Arc::new(draft.ir.clone()), draft.updateable.clone(), &draft.asked)?;
                *state = State::Ready(Box::new(runner));
                Ok(())
            }
            State::Loaded(ir, asked) => {
                let runner = self.prepare(ir.clone(), Vec::new(), &vec![*asked; ir.nodes.len()])?;
                *state = State::Ready(Box::new(runner));
                Ok(())
            }
            State::Ready(_) => Err(Error::Finalized { graph: self.name.clone() }),
            State::Closed => Err(Error::Aborted { graph: self.name.clone() }),
        }
    }

    /// Puts updated tensors into a draft, of a finalized graph into a new one, and takes the graph back to composing with it. Where `body`
    /// refuses, the graph stays as it is.
    pub(super) fn update(&self, body: impl FnOnce(&mut Draft) -> Result<(), Error>) -> Result<(), Error> {
        let mut state = self.state.write();
        let mut draft = match &*state {
            State::Composing(draft) => draft.clone(),
            State::Ready(runner) => {
                let packages = self.core.backend.packages.lock().clone();
                Box::new(Draft::reopen(&runner.ir, &runner.updateable, &packages, runner.asked)?)
            }
            State::Loaded(..) => return Err(Error::Finalized { graph: self.name.clone() }),
            State::Closed => return Err(Error::Aborted { graph: self.name.clone() }),
        };
        body(&mut draft)?;
        *state = State::Composing(draft);
        drop(state);
        *self.core.binary.lock() = None;
        Ok(())
    }

    /// Makes the form that runs. `asked`: for each node, how many packages were registered when it was last checked.
    fn prepare(&self, ir: Arc<ir::SourceGraph>, updateable: Vec<TensorId>, asked: &[usize]) -> Result<Runner, Error> {
        let failed = |source| Error::Finalize { graph: self.name.clone(), source: Box::new(source) };
        let pool = self.core.backend.pool()?;
        let packages = self.core.backend.packages.lock().clone();
        let all = packages.count();
        for (node, &asked) in ir.nodes.iter().zip(asked) {
            if let Some(package) = packages.find_after(asked, &node.op) {
                package::validate(package, &ir, node).map_err(|violation| failed(violation.into()))?;
            }
        }
        let options = PrepareOptions { packages, ..self.core.options.lock().clone() };
        let executable = Executable::prepare(&ir, &options).map_err(failed)?;
        executable.reserve(&mut self.core.backend.arena.lock(), pool.threads()).map_err(failed)?;
        Ok(Runner::new(ir, executable, pool, updateable, all))
    }

    /// Waits for runs to end and lets go of everything, client memory above all.
    pub(super) fn close(&self) {
        *self.state.write() = State::Closed;
    }

    /// True when the context is being freed.
    pub(super) fn closed(&self) -> bool {
        self.core.closed.load(Ordering::Acquire)
    }
}

//! The backends that the suite runs over, behind one trait.

use std::sync::Arc;

use qnn_api::library::runtime;
use qnn_api::{
    Backend, BackendOptions, Context, ContextOptions, Error, Graph, GraphBuilder, GraphOptions, HtpGraphOptions,
    Library, Result, TensorRef,
};

use super::problem::{Problem, Role};
use crate::backends;

/// The SoC that is emulated: SM8650 (V75).
pub const EMULATED_SOC: u32 = 57;

/// Something that composes and runs problems.
pub trait Runtime {
    /// How messages call it.
    fn name(&self) -> &'static str;

    /// Composes, finalises and executes; the outputs' bytes.
    ///
    /// # Errors
    /// What the backend refuses.
    fn run(&self, problem: &Problem) -> Result<Vec<Vec<u8>>>;
}

/// The host, linked into the test.
#[derive(Debug)]
pub struct Linked(Arc<Backend>);

/// The host as a shared library.
#[derive(Debug)]
pub struct Loaded(Arc<Backend>);

/// Qualcomm's `libQnnHtp.so` for x86-64: the HTP emulator.
#[derive(Debug)]
pub struct Emulator(Arc<Backend>);

impl Linked {
    /// Starts it.
    pub fn start() -> Self {
        Self(backends::linked())
    }
}

impl Loaded {
    /// Starts it.
    pub fn start() -> Self {
        Self(backends::loaded())
    }
}

impl Emulator {
    /// Starts it for [`EMULATED_SOC`].
    ///
    /// # Panics
    /// The runtime is not there or does not start; the message says how to get it.
    pub fn start() -> Self {
        Self(emulator())
    }

    /// The backend itself.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.0
    }
}

/// The emulator's backend.
///
/// # Panics
/// The runtime is not there or does not start; the message says how to get it.
pub fn emulator() -> Arc<Backend> {
    let path = runtime::find(runtime::HTP).unwrap_or_else(|| {
        panic!("needs the QNN runtime: `cargo xtask qnn-runtime`, or set {}", runtime::DIR_VARIABLE)
    });
    let library = Library::open(&path).unwrap_or_else(|e| panic!("`{}` does not load: {e}", path.display()));
    let options = BackendOptions { soc: Some(EMULATED_SOC), ..Default::default() };
    Backend::new(&library, &options).expect("the emulator starts")
}

impl Runtime for Linked {
    fn name(&self) -> &'static str {
        "linked host"
    }

    fn run(&self, problem: &Problem) -> Result<Vec<Vec<u8>>> {
        stored_and_loaded(&self.0, problem)
    }
}

impl Runtime for Loaded {
    fn name(&self) -> &'static str {
        "host by dlopen"
    }

    fn run(&self, problem: &Problem) -> Result<Vec<Vec<u8>>> {
        stored_and_loaded(&self.0, problem)
    }
}

impl Runtime for Emulator {
    fn name(&self) -> &'static str {
        "emulator"
    }

    fn run(&self, problem: &Problem) -> Result<Vec<Vec<u8>>> {
        let context = Context::create(&self.0, &ContextOptions::default())?;
        execute(&mut compose(&context, problem)?, problem)
    }
}

const NAME: &str = "problem";

/// Runs the fresh graph, then one that went through a context binary; both must answer alike.
fn stored_and_loaded(backend: &Arc<Backend>, problem: &Problem) -> Result<Vec<Vec<u8>>> {
    let context = Context::create(backend, &ContextOptions::default())?;
    let fresh = execute(&mut compose(&context, problem)?, problem)?;
    let stored = context.to_bytes()?;
    let loaded = Context::from_bytes(backend, &stored, &ContextOptions::default())?;
    let again = execute(&mut loaded.graph(NAME)?, problem)?;
    assert_eq!(fresh, again, "{}: a loaded graph answers otherwise", problem.title());
    Ok(fresh)
}

/// Composes and finalises the problem's graph.
///
/// # Errors
/// What the backend refuses.
pub fn compose(context: &Context, problem: &Problem) -> Result<Graph> {
    let htp = HtpGraphOptions { float16: true, ..Default::default() };
    let mut builder = context.compose(NAME, &GraphOptions { htp: Some(htp), ..Default::default() })?;
    add_nodes(&mut builder, problem)?;
    builder.finalize()
}

fn add_nodes(builder: &mut GraphBuilder, problem: &Problem) -> Result<()> {
    let mut refs: Vec<(&str, TensorRef)> = Vec::new();
    for tensor in &problem.tensors {
        let declared = match (&tensor.role, tensor.role.kind()) {
            (Role::Constant(bytes), _) => builder.constant(&tensor.info, bytes)?,
            (_, Some(kind)) => builder.tensor(&tensor.info, kind)?,
            (_, None) => unreachable!("only constants have no kind"),
        };
        refs.push((&tensor.info.name, declared));
    }
    let find = |name: &String| {
        let found = refs.iter().find(|(n, _)| n == name);
        found.unwrap_or_else(|| panic!("{}: no tensor `{name}` in the table", problem.title())).1
    };
    for (i, node) in problem.nodes.iter().enumerate() {
        let inputs: Vec<TensorRef> = node.inputs.iter().map(find).collect();
        let outputs: Vec<TensorRef> = node.outputs.iter().map(find).collect();
        builder.node(&format!("node{i}"), node.op, &node.params, &inputs, &outputs)?;
    }
    Ok(())
}

fn execute(graph: &mut Graph, problem: &Problem) -> Result<Vec<Vec<u8>>> {
    let mut outputs: Vec<Vec<u8>> = problem.output_infos().map(|info| vec![0xa5; info.size_bytes()]).collect();
    let mut session = graph.session();
    for (i, bytes) in problem.inputs().enumerate() {
        session.input(i, bytes)?;
    }
    for (i, bytes) in outputs.iter_mut().enumerate() {
        session.output(i, bytes)?;
    }
    session.run()?;
    Ok(outputs)
}

/// An error and its causes on one line.
pub fn words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = core::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

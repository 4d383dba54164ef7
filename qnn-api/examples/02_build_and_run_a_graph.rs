//! Builds a graph node by node, runs it, saves it, loads the file and runs it again: `y = transpose(x · wᵀ + b)`.
//!
//! ```text
//! cargo run -p qnn-api --example 02_build_and_run_a_graph [-- LIBRARY]       # else on the CPU backend, linked in
//! ```

use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use qnn_api::{Backend, BackendOptions, Context, ContextOptions, Graph, Library, Param, Result, TensorKind};

/// Two rows of four.
pub const X: [f32; 8] = [1.0, 2.0, -1.0, 0.5, 0.0, 1.0, 3.0, -2.0];
/// Three rows of four: one for each output column.
const W: [f32; 12] = [1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5, -1.0, 2.0, 0.0, 0.0];

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let library = match std::env::args().nth(1) {
        Some(path) => Library::open(path)?,
        None => Library::linked(qnn_host::providers())?,
    };
    let backend = Backend::new(&library, &BackendOptions::default())?;
    let folder = tempfile::tempdir()?;
    let (fresh, loaded) = build_run_save_load(&backend, &folder.path().join("linear.bin"))?;
    println!("fresh  {fresh:?}\nloaded {loaded:?}");
    Ok(())
}

/// The output of the graph that was just built, and of the one that was loaded from its file.
pub fn build_run_save_load(backend: &Arc<Backend>, file: &std::path::Path) -> Result<(Vec<f32>, Vec<f32>)> {
    let context = Context::create(backend, &ContextOptions::default())?;
    let fresh = run(&mut build(&context)?)?;
    context.save(file)?;

    let context = Context::from_file(backend, file, &ContextOptions::default())?;
    let loaded = run(&mut context.graph("linear")?)?;
    Ok((fresh, loaded))
}

/// Tensors first, then the nodes that read and write them.
fn build(context: &Context) -> Result<Graph> {
    let mut graph = context.compose("linear", &Default::default())?;
    let f32_tensor = |name: &str, dims: [usize; 2]| TensorInfo::new(name, dims, Dtype::F32);
    let x = graph.tensor(&f32_tensor("x", [2, 4]), TensorKind::Input)?;
    let w = graph.constant(&f32_tensor("w", [3, 4]), &bytes(&W))?;
    let b = graph.constant(&TensorInfo::new("b", [3], Dtype::F32), &bytes(&[0.25; 3]))?;
    let h = graph.tensor(&f32_tensor("h", [2, 3]), TensorKind::Native)?;
    let y = graph.tensor(&f32_tensor("y", [3, 2]), TensorKind::Output)?;
    graph.node("linear", "FullyConnected", &[], &[x, w, b], &[h])?;
    let perm = Param::U32Tensor { dims: vec![2], data: vec![1, 0] };
    graph.node("transpose", "Transpose", &[("perm", perm)], &[h], &[y])?;
    graph.finalize()
}

/// Buffers are lent to a session; once it is gone, they are read.
fn run(graph: &mut Graph) -> Result<Vec<f32>> {
    let (x, mut y) = (bytes(&X), vec![0; graph.info().outputs[0].size_bytes()]);
    let mut session = graph.session();
    session.input(0, &x)?.output(0, &mut y)?;
    session.run()?;
    Ok(y.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

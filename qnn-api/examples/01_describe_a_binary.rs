//! Describes a library and a context binary: versions, SoC, graphs, tensors. `--run` also runs every graph once on zeros.
//!
//! ```text
//! cargo run -p qnn-api --example 01_describe_a_binary                          # a small binary, made on the spot
//! cargo run -p qnn-api --example 01_describe_a_binary -- LIBRARY BINARY [--run]
//! ```

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use genie_types::{Dtype, TensorInfo};
use qnn_api::{Backend, BackendOptions, BinaryInfo, Context, ContextOptions, Library, TensorKind, binary_info};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [] => {
            let folder = tempfile::tempdir()?;
            let (library, binary) = (Library::linked(qnn_host::providers())?, folder.path().join("add.bin"));
            make_binary(&library, &binary)?;
            print!("{}", describe(&library, &binary, true)?);
        }
        [library, binary] => print!("{}", describe(&Library::open(library)?, binary.as_ref(), false)?),
        [library, binary, run] if run == "--run" => {
            print!("{}", describe(&Library::open(library)?, binary.as_ref(), true)?);
        }
        _ => return Err("usage: 01_describe_a_binary [LIBRARY BINARY [--run]]".into()),
    }
    Ok(())
}

/// A binary with one graph: `y = x + x`.
pub fn make_binary(library: &Arc<Library>, path: &Path) -> Result<()> {
    let backend = Backend::new(library, &BackendOptions::default())?;
    let context = Context::create(&backend, &ContextOptions::default())?;
    let mut builder = context.compose("add", &Default::default())?;
    let x = builder.tensor(&TensorInfo::new("x", [1, 4], Dtype::F32), TensorKind::Input)?;
    let y = builder.tensor(&TensorInfo::new("y", [1, 4], Dtype::F32), TensorKind::Output)?;
    builder.node("add", "ElementWiseAdd", &[], &[x, x], &[y])?;
    builder.finalize()?;
    Ok(context.save(path)?)
}

/// What the library and the binary report, as text.
pub fn describe(library: &Arc<Library>, binary: &Path, run: bool) -> Result<String> {
    let mut out = String::new();
    writeln!(out, "library {} ({}), core {}", library.display_name(), library.provider(), library.core_version())?;
    writeln!(out, "build {}, system interface from {:?}", library.build_id()?, library.system())?;
    let info = binary_info(library, &std::fs::read(binary)?)?;
    writeln!(out, "binary info v{}, build {}, core {}", info.format, info.build_id, info.core_version)?;
    writeln!(out, "SoC {:?}, blob {} of {} bytes", info.soc, info.blob_version, info.blob_bytes)?;
    for graph in &info.graphs {
        writeln!(out, "graph {}", graph.name)?;
        for (arrow, tensor) in graph.inputs.iter().map(|t| ("<-", t)).chain(graph.outputs.iter().map(|t| ("->", t))) {
            let TensorInfo { name, dims, dtype, quant, format, .. } = tensor;
            writeln!(out, "  {arrow} {name:<24} {dims:?} {dtype} {quant:?} {format:?}")?;
        }
    }
    if run {
        run_all(library, binary, &info, &mut out)?;
    }
    Ok(out)
}

/// Runs each graph once on zeros.
fn run_all(library: &Arc<Library>, binary: &Path, info: &BinaryInfo, out: &mut String) -> Result<()> {
    let backend = Backend::new(library, &BackendOptions { soc: info.soc, ..Default::default() })?;
    let context = Context::from_file(&backend, binary, &ContextOptions::default())?;
    for info in &info.graphs {
        let mut graph = context.graph(&info.name)?;
        let zeros = |tensors: &[TensorInfo]| tensors.iter().map(|t| vec![0_u8; t.size_bytes()]).collect::<Vec<_>>();
        let (inputs, mut outputs) = (zeros(&info.inputs), zeros(&info.outputs));
        let mut session = graph.session();
        for (i, bytes) in inputs.iter().enumerate() {
            session.input(i, bytes)?;
        }
        for (i, bytes) in outputs.iter_mut().enumerate() {
            session.output(i, bytes)?;
        }
        let start = Instant::now();
        session.run()?;
        let time = start.elapsed();
        let n_set = outputs.iter().flatten().filter(|&&byte| byte != 0).count();
        writeln!(out, "ran {} in {time:?}: {n_set} bytes of its outputs are not zero", info.name)?;
    }
    Ok(())
}

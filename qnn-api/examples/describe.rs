//! Says what a library is and what a context binary holds; with `run`, loads it and runs every graph once on zeros.
//!
//! `cargo run -p qnn-api --example describe -- LIBRARY BINARY [run]`

use std::time::Instant;

use genie_types::TensorInfo;
use qnn_api::{Backend, BackendOptions, Context, ContextOptions, Library, binary_info};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [library, binary, rest @ ..] = &args[..] else {
        return Err("usage: describe LIBRARY BINARY [run]".into());
    };
    let library = Library::open(library)?;
    println!("library {} ({}), core {}", library.shown(), library.provider(), library.core_version());
    println!("build {}, system interface from {:?}", library.build_id()?, library.system());
    let info = binary_info(&library, &std::fs::read(binary)?)?;
    println!(
        "binary info v{}, build {}, core {}, SoC {:?} {}, blob {} ({} bytes)",
        info.format, info.build_id, info.core_version, info.soc, info.soc_text, info.blob_version, info.blob_bytes
    );
    for graph in &info.graphs {
        println!("graph {}", graph.name);
        for (arrow, tensor) in graph.inputs.iter().map(|t| ("<-", t)).chain(graph.outputs.iter().map(|t| ("->", t))) {
            println!(
                "  {arrow} {:<24} {:?} {} {:?} {:?}",
                tensor.name, tensor.dims, tensor.dtype, tensor.quant, tensor.format
            );
        }
    }
    if rest.first().is_some_and(|arg| arg == "run") {
        let backend = Backend::new(&library, &BackendOptions { soc: info.soc, ..Default::default() })?;
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
            let n_set: usize = outputs.iter().flatten().filter(|&&byte| byte != 0).count();
            println!("ran {} in {time:?}: {n_set} bytes of its outputs are not zero", info.name);
        }
    }
    Ok(())
}

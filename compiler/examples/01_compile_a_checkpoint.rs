//! Compiles a checkpoint into a bundle and lists what is in it: `cargo run -p compiler --example 01_compile_a_checkpoint`.
//!
//! With two arguments, a model (Hugging Face directory or GGUF file) and an output directory, it compiles that model; without
//! them a small random one, into a temporary directory.

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Manifest, Silent, Splits, Weights, compile};
use qnn_api::{Backend, BackendOptions, Library};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let place = tempfile::tempdir()?;
    let (model, bundle) = match args.as_slice() {
        [model, bundle] => (model.into(), bundle.into()),
        _ => (place.path().join("model"), place.path().join("bundle")),
    };
    if args.is_empty() {
        TestModel::tiny(Family::Llama).write(&model)?;
    }
    let manifest = run(&model, &bundle)?;
    for graph in &manifest.graphs {
        println!("{}: AR-{} CL-{} in {}", graph.name, graph.ar, graph.cl, graph.file);
    }
    for file in &manifest.files {
        println!("{:>10} bytes  {}", file.bytes, file.path);
    }
    Ok(())
}

/// Compiles variants for decode (AR-1) and prefill (AR-32) in two splits, with int8 weights.
pub fn run(model: &Path, bundle: &Path) -> Result<Manifest, Box<dyn Error>> {
    let host = Library::linked(qnn_host::providers())?;
    let backend = Backend::new(&host, &BackendOptions::default())?;
    let options = CompileOptions {
        ars: vec![1, 32],
        cls: vec![128, 256],
        splits: Splits::DecoderLmhead,
        weights: Some(Weights::W8),
        ..CompileOptions::new(model, bundle)
    };
    Ok(compile(&options, &backend, &mut Silent)?)
}

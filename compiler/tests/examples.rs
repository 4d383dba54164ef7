//! Runs every example.

#[allow(dead_code)] // the example's `main`
#[path = "../examples/01_compile_a_checkpoint.rs"]
mod compile_a_checkpoint;
#[allow(dead_code)] // the example's `main`
#[path = "../examples/02_peak_memory.rs"]
mod peak_memory;

use compiler::{Family, testmodel::TestModel};

#[test]
fn a_checkpoint_becomes_the_bundle_of_its_manifest() {
    let place = tempfile::tempdir().unwrap();
    let (model, bundle) = (place.path().join("model"), place.path().join("bundle"));
    TestModel::tiny(Family::Llama).write(&model).unwrap();
    let manifest = compile_a_checkpoint::run(&model, &bundle).unwrap();
    let names: Vec<&str> = manifest.graphs.iter().map(|graph| graph.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[7]), (8, "ar1_cl128_1_of_2", "ar32_cl256_2_of_2"));
    manifest.verify_files(&bundle).unwrap();
}

#[test]
fn the_memory_of_a_compilation_is_measured() {
    peak_memory::run(2, 400).unwrap();
}

//! Runs what `examples/` shows and checks its output.

#[path = "../examples/02_build_and_run_a_graph.rs"]
#[allow(dead_code)] // its `main`
mod build;
#[path = "../examples/01_describe_a_binary.rs"]
#[allow(dead_code)] // its `main`
mod describe;

use qnn_api::{Backend, BackendOptions, Library};

#[test]
fn a_binary_is_described_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let (library, path) = (Library::linked(qnn_host::providers()).unwrap(), folder.path().join("add.bin"));
    describe::make_binary(&library, &path).unwrap();
    let text = describe::describe(&library, &path, true).unwrap();
    for line in ["library linked in (HOST_OPEN_GENIE)", "graph add\n  <- x ", "\n  -> y ", "\nran add in "] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn a_graph_is_built_run_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library::linked(qnn_host::providers()).unwrap();
    let backend = Backend::new(&library, &BackendOptions::default()).unwrap();
    let (fresh, loaded) = build::build_run_save_load(&backend, &folder.path().join("linear.bin")).unwrap();
    // By hand: rows of x times rows of w, plus 0.25, columns first.
    assert_eq!(fresh, [1.75, -1.75, 1.5, 1.25, 3.25, 2.25]);
    assert_eq!(loaded, fresh);
}

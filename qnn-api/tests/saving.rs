//! Saving a context of the embedded backend reports bytes within its calls, and ends at any of them.

use core::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use qnn_api::{
    Backend, BackendOptions, Context, ContextOptions, Error, GraphOptions, Library, SavePart, SaveReport, TensorKind,
};

/// Numbers of the only weight: 40 MB, which are several of the backend's parts and of ours.
const N: usize = 10 << 20;

fn backend() -> Arc<Backend> {
    let library = Library::linked(qnn_host::providers()).unwrap();
    Backend::new(&library, &BackendOptions::default()).unwrap()
}

/// A context with one large weight in a scratch folder, as the compiler makes them.
fn context(backend: &Arc<Backend>, folder: &Path) -> Context {
    let options = ContextOptions { host_scratch: Some(folder.to_owned()), ..ContextOptions::default() };
    let context = Context::create(backend, &options).unwrap();
    let mut graph = context.compose("g", &GraphOptions::default()).unwrap();
    let info = |name: &str| TensorInfo::new(name, vec![1, N], Dtype::F32);
    let input = graph.tensor(&info("in"), TensorKind::Input).unwrap();
    let output = graph.tensor(&info("out"), TensorKind::Output).unwrap();
    let bytes: Vec<u8> = (0..N as u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let weight = graph.constant(&info("w"), &bytes).unwrap();
    graph.node("add", "ElementWiseAdd", &[], &[input, weight], &[output]).unwrap();
    graph.finalize().unwrap();
    context
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_context_that_is_saved_tells_of_every_part_and_ends_at_any() {
    let (backend, folder) = (backend(), tempfile::tempdir().unwrap());
    let path = folder.path().join("model.bin");
    std::fs::write(&path, "the old one").unwrap();

    let mut reports: Vec<SaveReport> = Vec::new();
    let context_once = context(&backend, folder.path());
    let elsewhere = folder.path().join("whole.bin");
    context_once
        .save_watched(&elsewhere, &mut |report| {
            reports.push(report);
            ControlFlow::Continue(())
        })
        .unwrap();
    let length = elsewhere.metadata().unwrap().len();
    Context::from_file(&backend, &elsewhere, &ContextOptions::default()).unwrap().graph("g").unwrap();
    std::fs::remove_file(&elsewhere).unwrap();
    for (part, least) in [(SavePart::LayOut, 4 * N as u64), (SavePart::Write, length), (SavePart::Flush, length)] {
        let of: Vec<&SaveReport> = reports.iter().filter(|report| report.part == part).collect();
        let total = of[0].total_bytes;
        assert!(of.len() >= 3, "{part:?} is reported {} times", of.len());
        assert!(total >= least && of.iter().all(|report| report.total_bytes == total), "{part:?}: {total}");
        assert!(of.is_sorted_by_key(|report| report.done_bytes), "{part:?}");
        assert_eq!(of.last().unwrap().done_bytes, total, "{part:?}");
    }
    let order = [SavePart::LayOut, SavePart::Write, SavePart::Flush];
    assert!(reports.is_sorted_by_key(|report| order.iter().position(|part| *part == report.part)));

    for end in 0..reports.len() {
        // A layout is kept, so each end has a context of its own.
        let context = context(&backend, folder.path());
        let mut reported = 0;
        let error = context.save_watched(&path, &mut |_| {
            reported += 1;
            if reported > end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(error, Err(Error::Stopped { .. })), "at {:?}: {error:?}", reports[end]);
        assert_eq!(reported, end + 1, "nothing is reported after the end");
        assert_eq!(names(folder.path()), ["model.bin"], "nothing is left");
        assert_eq!(std::fs::read(&path).unwrap(), b"the old one");
        // What was stopped can be saved after all.
        if end + 1 == reports.len() {
            context.save(&path).unwrap();
            assert_eq!(path.metadata().unwrap().len(), length);
        }
    }
}

#[test]
fn a_panic_of_who_watches_passes_by_the_library() {
    let (backend, folder) = (backend(), tempfile::tempdir().unwrap());
    let context = context(&backend, folder.path());
    let path = folder.path().join("model.bin");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = context.save_watched(&path, &mut |_| panic!("no more"));
    }));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"no more"));
    assert!(names(folder.path()).is_empty());
    context.save(&path).unwrap();
}

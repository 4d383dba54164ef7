//! Saving a context of the embedded backend reports bytes within its calls, and ends at any of them.

use core::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use genie_types::{Dtype, Quant, TensorInfo};
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

/// A weight of 32 MB as it is, and in blocks, which are packed.
fn weights() -> [TensorInfo; 2] {
    let blocks = (0..1 << 20).map(|i| (0.5 + (i % 64) as f32, 0)).collect();
    let blocks = Quant::Block { block_dims: vec![1, 32], scale_offsets: blocks };
    let (rows, cols) = (1 << 12, 1 << 13);
    [
        TensorInfo::new("w", vec![rows, cols / 4], Dtype::F32),
        TensorInfo::new("w", vec![rows, cols], Dtype::SFixed8).with_quant(blocks),
    ]
}

/// What a layer of these weights makes of ones.
fn product(backend: &Arc<Backend>, folder: &Path, info: &TensorInfo, watch: &mut dyn FnMut() -> bool) -> Vec<u8> {
    let options = ContextOptions { host_scratch: Some(folder.to_owned()), ..ContextOptions::default() };
    let context = Context::create(backend, &options).unwrap();
    let mut graph = context.compose("g", &GraphOptions::default()).unwrap();
    let vector = |name: &str, n: usize| TensorInfo::new(name, vec![1, n], Dtype::F32);
    let input = graph.tensor(&vector("in", info.dims[1]), TensorKind::Input).unwrap();
    let output = graph.tensor(&vector("out", info.dims[0]), TensorKind::Output).unwrap();
    let bytes: Vec<u8> = (0..info.size_bytes()).map(|i| (i * 37 % 61) as u8).collect();
    let mut watch = || if watch() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let weight = match graph.constant_watched(info, &bytes, &mut watch) {
        Ok(weight) => weight,
        Err(error) => {
            assert!(matches!(&error, Error::ConstantStopped { .. }), "{error}");
            assert_eq!(error.to_string(), "graph `g`: tensor `w` is not declared: stopped on request");
            graph.constant(info, &bytes).expect("the graph is as it was")
        }
    };
    graph.node("fc", "FullyConnected", &[], &[input, weight], &[output]).unwrap();
    let mut graph = graph.finalize().unwrap();
    let ones: Vec<u8> = (0..info.dims[1]).flat_map(|_| 1f32.to_ne_bytes()).collect();
    let mut found = vec![0; 4 * info.dims[0]];
    let mut session = graph.session();
    session.input(0, &ones).unwrap().output(0, &mut found).unwrap().run().unwrap();
    found
}

#[test]
fn a_weight_that_is_kept_is_asked_for_and_ends_at_any_question() {
    let (backend, folder) = (backend(), tempfile::tempdir().unwrap());
    for info in weights() {
        let mut asked = 0;
        let expected = product(&backend, folder.path(), &info, &mut || {
            asked += 1;
            true
        });
        assert!(asked >= 16, "asked {asked} times");
        // The first, the last, and some between.
        for end in (0..asked).step_by(11).chain([asked - 1]) {
            let mut n = 0;
            let found = product(&backend, folder.path(), &info, &mut || {
                n += 1;
                n <= end
            });
            assert_eq!(n, end + 1, "nothing is asked after the end");
            assert!(found == expected, "{:?}: another result after an end at {end} of {asked}", info.dtype);
        }
    }
    assert!(names(folder.path()).is_empty(), "nothing is left");
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

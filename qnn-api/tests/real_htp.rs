//! The handles over Qualcomm's own `libQnnHtp.so`: on a host, the HTP emulator.
//!
//! Run with `cargo xtask qnn-runtime && cargo test -p qnn-api --test '*_htp' -- --ignored`.

use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use qnn_api::library::runtime;
use qnn_api::*;

const SM8650: u32 = 57;

fn backend() -> Arc<Backend> {
    backend_for(Some(SM8650))
}

fn backend_for(soc: Option<u32>) -> Arc<Backend> {
    let library = Library::open_by_name(runtime::HTP)
        .unwrap_or_else(|e| panic!("{e}; {}", e.hint().map_or_else(String::new, |hint| hint.to_string())));
    Backend::new(&library, &BackendOptions { soc, ..Default::default() }).unwrap()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

const X: [f32; 8] = [1.0, 2.0, -1.0, 0.5, 0.0, 1.0, 3.0, -2.0];
const W: [f32; 12] = [1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5, -1.0, 2.0, 0.0, 0.0];

/// `y = W x + b`, of two rows.
fn expected() -> Vec<f32> {
    let row =
        |x: &[f32]| W.chunks(4).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + 0.25).collect::<Vec<_>>();
    X.chunks(4).flat_map(row).collect()
}

/// Composes the graph; its weights are gone before it is finalised.
fn compose(context: &Context, name: &str) -> Result<Graph> {
    let htp = HtpGraphOptions { float16: true, vtcm_mb: Some(8), optimization: Some(3), hvx_threads: None };
    let mut graph = context.compose(name, &GraphOptions { htp: Some(htp), ..Default::default() })?;
    let f32_tensor = |name: &str, dims: &[usize]| TensorInfo::new(name, dims, Dtype::F32);
    let x = graph.tensor(&f32_tensor("x", &[2, 4]), TensorKind::Input)?;
    let w = {
        let mut weights = bytes(&W);
        let w = graph.constant(&f32_tensor("w", &[3, 4]), &weights)?;
        weights.fill(0xff);
        w
    };
    let b = graph.constant(&f32_tensor("b", &[3]), &bytes(&[0.25; 3]))?;
    let h = graph.tensor(&f32_tensor("h", &[2, 3]), TensorKind::Native)?;
    let t = graph.tensor(&f32_tensor("t", &[3, 2]), TensorKind::Native)?;
    let y = graph.tensor(&f32_tensor("y", &[2, 3]), TensorKind::Output)?;
    graph.node("linear", "FullyConnected", &[], &[x, w, b], &[h])?;
    // There and back, for the sake of tensor parameters.
    let perm = || [("perm", Param::U32Tensor { dims: vec![2], data: vec![1, 0] })];
    graph.node("there", "Transpose", &perm(), &[h], &[t])?;
    graph.node("back", "Transpose", &perm(), &[t], &[y])?;
    graph.finalize()
}

fn run(graph: &mut Graph, profile: Option<&Profile>) -> Vec<u8> {
    let (x, mut y) = (bytes(&X), vec![0; 24]);
    let mut session = graph.session();
    session.input(0, &x).unwrap().output(0, &mut y).unwrap();
    match profile {
        Some(profile) => session.run_profiled(profile).unwrap(),
        None => session.run().unwrap(),
    }
    y
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn reports_what_it_is() {
    let backend = backend();
    let library = backend.library();
    assert_eq!(library.provider(), "HTP_QTI_AISW");
    assert!(library.path().unwrap().ends_with(runtime::HTP), "{:?}", library.path());
    assert!(library.core_version() >= Version { major: 2, minor: 18, patch: 0 });
    assert!(library.build_id().unwrap().starts_with('v'), "{:?}", library.build_id());
    assert!(library.system().unwrap().0.ends_with("libQnnSystem.so"));
    assert_eq!(library.is_emulator(), cfg!(target_arch = "x86_64"));
    assert_eq!(backend.device().unwrap().soc(), Some(SM8650));
    let operations = backend.operations().unwrap();
    assert!(operations.iter().any(|op| op.ends_with("::RotaryEmbedding")), "{} operations", operations.len());
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn composes_runs_saves_and_loads() {
    let backend = backend();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.bin");
    let fresh = {
        let context = Context::create(&backend, &ContextOptions::default()).unwrap();
        let mut graph = compose(&context, "tiny").unwrap();
        let y = run(&mut graph, None);
        context.save(&path).unwrap();
        y
    };
    for (ours, theirs) in floats(&fresh).iter().zip(expected()) {
        assert!((ours - theirs).abs() < 5e-3, "{ours} against {theirs}");
    }

    let info = binary_info(backend.library(), &std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(info.soc, Some(SM8650));
    assert_eq!(info.build_id, backend.library().build_id().unwrap());
    let names: Vec<_> = info.graphs.iter().map(|graph| graph.name.as_str()).collect();
    assert_eq!(names, ["tiny"]);
    assert_eq!(info.graphs[0].inputs, [TensorInfo::new("x", [2, 4], Dtype::F32)]);
    assert_eq!(info.graphs[0].outputs, [TensorInfo::new("y", [2, 3], Dtype::F32)]);

    let context = Context::from_file(&backend, &path, &ContextOptions::default()).unwrap();
    let mut graph = context.graph("tiny").unwrap();
    drop(context);
    assert_eq!(run(&mut graph, None), fresh);
    // Handles may move to another thread.
    let elsewhere = std::thread::spawn(move || run(&mut graph, None)).join().unwrap();
    assert_eq!(elsewhere, fresh);

    let context = Context::from_bytes(&backend, &std::fs::read(&path).unwrap(), &ContextOptions::default()).unwrap();
    assert_eq!(run(&mut context.graph("tiny").unwrap(), None), fresh);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn profiles_and_votes() {
    let backend = backend();
    let context =
        Context::create(&backend, &ContextOptions { priority: Some(Priority::High), ..Default::default() }).unwrap();
    let mut graph = compose(&context, "tiny").unwrap();
    let profile = Profile::new(&backend, ProfileLevel::Detailed).unwrap();
    run(&mut graph, Some(&profile));
    let events = profile.events().unwrap();
    assert!(!events.is_empty());
    assert!(events.iter().any(|event| event.unit == ProfileUnit::Microseconds && !event.name.is_empty()), "{events:?}");

    let mut vote = PowerVote::cast(&backend, PerfPolicy::Burst).unwrap();
    for policy in PerfPolicy::ALL {
        vote.change(policy).unwrap();
        assert_eq!(vote.policy(), policy);
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn refusals_carry_the_librarys_message() {
    let backend = backend();
    let context = Context::create(&backend, &ContextOptions::default()).unwrap();
    let mut graph = context.compose("odd", &GraphOptions::default()).unwrap();
    let x = graph.tensor(&TensorInfo::new("x", [2, 4], Dtype::F32), TensorKind::Input).unwrap();
    let y = graph.tensor(&TensorInfo::new("y", [2, 4], Dtype::F32), TensorKind::Output).unwrap();
    // The emulator looks at ops when it is asked to prepare them.
    let added = graph.node("n", "NoSuchOp", &[], &[x], &[y]);
    let error = added.and_then(|()| graph.finalize().map(drop)).unwrap_err();
    let source = error.qnn().unwrap();
    // Its number (1002, out of memory) is misleading; its message is not.
    assert!(source.library_message.as_deref().is_some_and(|message| message.contains("NoSuchOp")), "{error}: {source}");
    for garbage in
        [&b"no binary at all, but longer than any header could reasonably be expected to be here"[..], b"", &[0; 4096]]
    {
        let error = binary_info(backend.library(), garbage).unwrap_err();
        assert!(error.qnn().is_some(), "{error:?}");
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn two_graphs_are_composed_side_by_side() {
    let backend = backend();
    let context = Context::create(&backend, &ContextOptions::default()).unwrap();
    let mut first = compose(&context, "first").unwrap();
    let mut second = compose(&context, "second").unwrap();
    assert_eq!(run(&mut first, None), run(&mut second, None));
    let saved = context.to_bytes().unwrap();
    let loaded = Context::from_bytes(&backend, &saved, &ContextOptions::default()).unwrap();
    let mut names: Vec<_> = loaded.graphs().map(|graph| graph.name.clone()).collect();
    names.sort();
    assert_eq!(names, ["first", "second"]);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_binary_runs_on_a_backend_without_a_soc() {
    let (saved, fresh) = {
        let context = Context::create(&backend(), &ContextOptions::default()).unwrap();
        let mut graph = compose(&context, "tiny").unwrap();
        (context.to_bytes().unwrap(), run(&mut graph, None))
    };
    let context = Context::from_bytes(&backend_for(None), &saved, &ContextOptions::default()).unwrap();
    assert_eq!(run(&mut context.graph("tiny").unwrap(), None), fresh);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_file_is_listed_helpers_from_the_runtimes_own_folders_first() {
    let backend = backend();
    let files = backend.library().files();
    let place = |name: &str| {
        let found =
            files.iter().position(|file| file.file_name().is_some_and(|f| f.to_string_lossy().starts_with(name)));
        found.unwrap_or_else(|| panic!("no `{name}` among {files:?}"))
    };
    // The C++ runtime, each piece before those that need it, then the preparer, then the backend.
    let order = ["libunwind", "libc++abi", "libc++-", "libHtpPrepare.so", "libQnnHtp.so", "libQnnSystem.so"].map(place);
    assert!(order.is_sorted(), "{files:?}");
    let home = runtime::find(runtime::HTP).unwrap().canonicalize().unwrap();
    let home = home.parent().and_then(std::path::Path::parent).unwrap();
    for at in order {
        assert!(
            files[at].canonicalize().unwrap().starts_with(home),
            "{} is not of {}",
            files[at].display(),
            home.display()
        );
    }
    assert!(std::env::var_os("LD_LIBRARY_PATH").is_none_or(|p| !p.to_string_lossy().contains("onnxruntime")));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn binaries_are_made_for_the_chip_that_was_asked_for() {
    for soc in [43, 57, 69, 87, 60] {
        let backend = backend_for(Some(soc));
        let context = Context::create(&backend, &ContextOptions::default()).unwrap();
        let mut graph = compose(&context, "tiny").unwrap();
        let info = binary_info(backend.library(), &context.to_bytes().unwrap()).unwrap();
        assert_eq!((info.soc, info.dsp_arch), (Some(soc), Soc::by_id(soc).map(|soc| soc.dsp_arch)), "{soc}");
        for (ours, theirs) in floats(&run(&mut graph, None)).iter().zip(expected()) {
            assert!((ours - theirs).abs() < 5e-3, "{soc}: {ours} against {theirs}");
        }
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn buffers_come_through_the_allocator() {
    let backend = backend();
    let context = Context::create(&backend, &ContextOptions::default()).unwrap();
    let mut graph = compose(&context, "tiny").unwrap();
    let info = graph.info().clone();
    let mut x = context.allocate(&PlainMemory, &info.inputs[0]).unwrap();
    let mut y = context.allocate(&PlainMemory, &info.outputs[0]).unwrap();
    assert!(!x.is_shared() && !y.is_shared(), "a host has no memory to share");
    x.bytes_mut().copy_from_slice(&bytes(&X));
    let mut session = graph.session();
    session.input_mem(0, &x).unwrap().output_mem(0, &mut y).unwrap();
    session.run().unwrap();
    assert_eq!(y.bytes(), run(&mut graph, None));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn cut_binaries_are_refused_with_an_error() {
    let backend = backend();
    let whole = {
        let context = Context::create(&backend, &ContextOptions::default()).unwrap();
        compose(&context, "tiny").unwrap();
        context.to_bytes().unwrap()
    };
    for part in [1, 10, 50, 90, 99] {
        let cut = &whole[..whole.len() * part / 100];
        let error = Context::from_bytes(&backend, cut, &ContextOptions::default()).map(drop).unwrap_err();
        let text = error.qnn().map(ToString::to_string).unwrap_or_else(|| error.to_string());
        assert!(!text.contains("unknown error"), "{part} %: {text}");
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn two_backends_in_two_threads_do_not_disturb_each_other() {
    let work = || {
        let context = Context::create(&backend(), &ContextOptions::default()).unwrap();
        let mut graph = compose(&context, "tiny").unwrap();
        let first = run(&mut graph, None);
        (0..20).for_each(|_| assert_eq!(run(&mut graph, None), first));
        first
    };
    let threads = [std::thread::spawn(work), std::thread::spawn(work), std::thread::spawn(work)];
    let [a, b, c] = threads.map(|thread| thread.join().unwrap());
    assert!(a == b && b == c);
}

/// The number is not in the headers that `qnn-sys` was made from: by what the library says, it is this one.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn bfloat16_is_known_by_its_number() {
    let backend = backend();
    let context = Context::create(&backend, &ContextOptions::default()).unwrap();
    let mut graph = context.compose("tiny", &GraphOptions::default()).unwrap();
    let x = TensorInfo::new("x", [1, 4], Dtype::Bf16);
    let Err(Error::Qnn { source, .. }) = graph.tensor(&x, TensorKind::Input) else {
        panic!("expected a refusal: the chip {SM8650} has no bfloat16")
    };
    let said = source.library_message.unwrap_or_default();
    assert!(said.contains("BFLOAT16 is unsupported on the current device"), "{said}");
}

//! Every kind of `Param` as an op of a package sees it: when its node is validated, when the op is made and when it runs, before and after
//! a context binary. The package is in C (`recorder_package.c` of `testkit`) and writes down what it sees.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use half::f16;
use qnn_api::{
    Backend, BackendOptions, Context, ContextOptions, Graph, GraphBuilder, Library, Param, TensorKind, TensorRef,
};

/// The folder of `cpu_op_package.h`.
const INCLUDE: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../testkit/c");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/c/recorder_package.c");

/// A backend with the package, which writes into `folder/log`.
fn with_package(folder: &Path) -> Arc<Backend> {
    let library = folder.join("recorder.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library);
    cc.args([&format!("-DLOG=\"{}\"", folder.join("log").display()), INCLUDE, SOURCE]);
    assert!(cc.status().expect("the C compiler that Rust links with").success());
    let host = Library::linked(qnn_host::providers()).unwrap();
    let backend = Backend::new(&host, &BackendOptions::default()).unwrap();
    backend.register_op_package(&library, "RecorderProvider", Some("CPU")).unwrap();
    backend
}

/// What the package wrote since the last time.
fn seen(folder: &Path) -> Vec<String> {
    let log = folder.join("log");
    let lines = std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    std::fs::remove_file(log).unwrap();
    lines
}

/// A parameter, as `validateOpConfig` is to see it, and as the op is.
struct Case {
    name: &'static str,
    param: Param,
    config: &'static str,
    node: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |name, param, config, node| Case { name, param, config, node };
    let table = |name, dtype, dims: &[usize], data: Vec<u8>, both| {
        case(name, Param::Tensor { dtype, dims: dims.to_vec(), data }, both, both)
    };
    let dims = || vec![2, 1];
    let bytes = |words: &[i16]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let wide = |words: &[i64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    vec![
        case("half", Param::F32(0.5), "scalar 0x0232 0.5", "number 0.5"),
        case("tenth", Param::F64(0.1), "scalar 0x0264 0.10000000000000001", "number 0.10000000000000001"),
        // The embedded backend widens narrow numbers: what `validateOpConfig` sees is of 32 bits.
        case("quarter", Param::F16(f16::from_f32(-0.25)), "scalar 0x0232 -0.25", "number -0.25"),
        case("byte", Param::U8(200), "scalar 0x0132 200", "number 200"),
        case("small", Param::I8(-128), "scalar 0x0032 -128", "number -128"),
        case("word", Param::U16(u16::MAX), "scalar 0x0132 65535", "number 65535"),
        case("short", Param::I16(i16::MIN), "scalar 0x0032 -32768", "number -32768"),
        case("count", Param::U32(u32::MAX), "scalar 0x0132 4294967295", "number 4294967295"),
        case("axis", Param::I32(-1), "scalar 0x0032 -1", "number -1"),
        case("large", Param::U64(1 << 63), "scalar 0x0164 9223372036854775808", "number 9.2233720368547758e+18"),
        case("far", Param::I64(-(1 << 40)), "scalar 0x0064 -1099511627776", "number -1099511627776"),
        case("on", Param::Bool(true), "scalar 0x0508 1", "number 1"),
        case("mode", Param::Text("row-major é".into()), "scalar 0x0608 `row-major é`", "text `row-major é`"),
        case("empty", Param::Text(String::new()), "scalar 0x0608 ``", "text ``"),
        case(
            "u32s",
            Param::U32Tensor { dims: dims(), data: vec![7, u32::MAX] },
            "tensor 0x0132 [2,1] 7 4294967295",
            "tensor 0x0132 [2,1] 7 4294967295",
        ),
        case(
            "i32s",
            Param::I32Tensor { dims: dims(), data: vec![-7, i32::MAX] },
            "tensor 0x0032 [2,1] -7 2147483647",
            "tensor 0x0032 [2,1] -7 2147483647",
        ),
        case(
            "f32s",
            Param::F32Tensor { dims: dims(), data: vec![0.25, -3.5] },
            "tensor 0x0232 [2,1] 0.25 -3.5",
            "tensor 0x0232 [2,1] 0.25 -3.5",
        ),
        // Of half precision a package gets float32.
        table("f16s", Dtype::F16, &[2], bytes(&[0x3800, -0x4000]), "tensor 0x0232 [2] 0.5 -2"),
        table("i8s", Dtype::I8, &[3], vec![1, 2, 255], "tensor 0x0008 [3] 1 2 -1"),
        table("u8s", Dtype::U8, &[1, 3], vec![0, 128, 255], "tensor 0x0108 [1,3] 0 128 255"),
        table("i16s", Dtype::I16, &[2], bytes(&[5, -6]), "tensor 0x0016 [2] 5 -6"),
        table("i64s", Dtype::I64, &[2], wide(&[i64::MAX, -1]), "tensor 0x0064 [2] 9223372036854775807 -1"),
        table("u64s", Dtype::U64, &[1], wide(&[-1]), "tensor 0x0164 [1] 18446744073709551615"),
        table("flags", Dtype::Bool8, &[2], vec![1, 0], "tensor 0x0508 [2] 1 0"),
    ]
}

/// The lines of some calls.
fn lines(calls: &[&str]) -> Vec<String> {
    let line = |call: &str, case: &Case| {
        format!("{call} {} {}", case.name, if call == "config" { case.config } else { case.node })
    };
    calls.iter().flat_map(|call| cases().into_iter().map(move |case| line(call, &case))).collect()
}

/// A graph without nodes, and what its node is to have.
fn begin(context: &Context) -> (GraphBuilder, [TensorRef; 2]) {
    let mut graph = context.compose("seen", &Default::default()).unwrap();
    let x = graph.tensor(&TensorInfo::new("x", [4], Dtype::F32), TensorKind::Input).unwrap();
    let y = graph.tensor(&TensorInfo::new("y", [4], Dtype::F32), TensorKind::Output).unwrap();
    (graph, [x, y])
}

fn run(graph: &mut Graph) {
    let (x, mut y) = ([0; 16], [0; 16]);
    let mut session = graph.session();
    session.input(0, &x).unwrap().output(0, &mut y).unwrap();
    session.run().unwrap();
}

#[test]
fn every_parameter_arrives_before_and_after_a_binary() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let backend = with_package(folder);
    let context = Context::create(&backend, &ContextOptions::default()).unwrap();
    let (mut graph, [x, y]) = begin(&context);
    // Gone as soon as the node is added, as those of a caller may be.
    let params: Vec<(&str, Param)> = cases().into_iter().map(|case| (case.name, case.param)).collect();
    graph.node("n", "Recorder::Seen", &params, &[x], &[y]).unwrap();
    drop(params);
    run(&mut graph.finalize().unwrap());
    assert_eq!(seen(folder), lines(&["config", "node", "run"]), "composed");

    let binary = context.to_bytes().unwrap();
    let context = Context::from_bytes(&backend, &binary, &ContextOptions::default()).unwrap();
    run(&mut context.graph("seen").unwrap());
    assert_eq!(seen(folder), lines(&["config", "node", "run"]), "loaded");
}

/// The error's words, causes included.
fn words(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", words(cause)))
}

#[test]
fn what_cannot_be_passed_on_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let backend = with_package(folder.path());
    let tensor = |dtype, n, data: usize| Param::Tensor { dtype, dims: vec![n], data: vec![0; data] };
    for (op, param, expected) in [
        // By this crate.
        ("Recorder::Seen", Param::Text("a\0b".into()), "expected a text without a zero byte, found \"a\\0b\""),
        ("Recorder::Seen", tensor(Dtype::I16, 2, 3), "parameter `p` [2]: expected 4 bytes of int16, found 3"),
        // By the library.
        ("Recorder::Seen", tensor(Dtype::F64, 1, 8), "cannot declare tensor `n_p` of graph `seen`"),
        ("Recorder::Seen", Param::U64(u64::MAX), "expected an integer that a double holds"),
        ("Relu", Param::Text("a".into()), "expected a number or bool8, found a scalar of type 0x0608"),
        ("Relu", Param::F32Tensor { dims: vec![1], data: vec![1.0] }, "expected an integer tensor"),
    ] {
        let context = Context::create(&backend, &ContextOptions::default()).unwrap();
        let (mut graph, [x, y]) = begin(&context);
        let found = words(&graph.node("n", op, &[("p", param)], &[x], &[y]).unwrap_err());
        assert!(found.contains(expected), "expected {expected}, found {found}");
    }
}

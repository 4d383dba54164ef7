//! Packages loaded by the host, linked and by `dlopen`: ours equals the host's own op byte by byte, in place and not, before
//! and after a binary; bad ones are refused by number and cause.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use genie_types::{Dtype, Quant, TensorInfo};
use qnn_api::{Backend, BackendOptions, Context, ContextOptions, Graph, Library, Param, Result, TensorKind};

const PROVIDER: &str = "LLaMAPackageInterfaceProvider";
/// What `--op-package` asks for where the file's name alone is given.
const PROVIDER_OF_FILE: &str = "OpenGeniePackageInterfaceProvider";
const PROVIDER_V2: &str = "OpenGeniePackageInterfaceProviderV2";
const UPDATE: &str = "LLaMAPackage::PDKVCacheUpdate";

/// A library that cargo built along with this test.
fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its program");
    let name = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let folders = program.ancestors().skip(1).take(3).flat_map(|f| [f.to_path_buf(), f.join("examples")]);
    let mut found = folders.map(|f| f.join(&name)).filter(|path| path.exists());
    found.next().unwrap_or_else(|| panic!("`{name}` is not beside `{}`", program.display()))
}

fn ours() -> PathBuf {
    built("QnnOpenGeniePackage_CPU")
}

fn linked() -> Arc<Backend> {
    backend(&Library::linked(qnn_host::providers()).expect("the host is linked"))
}

fn backend(library: &Arc<Library>) -> Arc<Backend> {
    Backend::new(library, &BackendOptions::default()).expect("the backend starts")
}

/// The error's words, causes included.
fn words<T>(result: Result<T>) -> String {
    let Err(error) = result else { panic!("expected an error") };
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        words += &format!(": {next}");
        cause = next.source();
    }
    words
}

const HEADS: usize = 2;
const DIM: usize = 6;
const ROWS: usize = 11;
const NEW: usize = 4;

/// One update of keys and values; the second input is the past's keys.
fn compose(context: &Context, dtype: Dtype) -> Result<Graph> {
    let mut g = context.compose("update", &Default::default())?;
    let quant = if dtype == Dtype::UFixed8 { Quant::PerTensor { scale: 0.02, offset: -128 } } else { Quant::None };
    let cache = |name: &str, dims: [usize; 4]| TensorInfo::new(name, dims, dtype).with_quant(quant.clone());
    let scalar = |name: &str| TensorInfo::new(name, [1], Dtype::I32);
    let mut inputs = vec![g.tensor(&TensorInfo::new("dep", [3], Dtype::F32), TensorKind::Input)?];
    for (name, keys, n) in
        [("past_k", true, ROWS), ("past_v", false, ROWS), ("new_k", true, NEW), ("new_v", false, NEW)]
    {
        let dims = if keys { [1, HEADS, DIM, n] } else { [1, HEADS, n, DIM] };
        inputs.push(g.tensor(&cache(name, dims), TensorKind::Input)?);
    }
    for name in ["to", "from", "n", "enable"] {
        inputs.push(g.tensor(&scalar(name), TensorKind::Input)?);
    }
    let k = g.tensor(&cache("out_k", [1, HEADS, DIM, ROWS]), TensorKind::Output)?;
    let v = g.tensor(&cache("out_v", [1, HEADS, ROWS, DIM]), TensorKind::Output)?;
    g.node("update", UPDATE, &[], &inputs, &[k, v])?;
    g.finalize()
}

/// Bytes that differ.
fn noise(seed: usize, n: usize) -> Vec<u8> {
    // Plain floats whatever the type: no exponent bits that make one not a number.
    (0..n).map(|i| ((i * 7 + seed * 13 + i / 5) % 61) as u8).collect()
}

/// Both caches after a run; in place where asked for.
fn run(graph: &mut Graph, rule: [i32; 4], in_place: bool) -> Result<[Vec<u8>; 2]> {
    let sizes: Vec<usize> = graph.info().inputs.iter().map(TensorInfo::size_bytes).collect();
    let mut all: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| noise(i, n)).collect();
    for (i, value) in rule.iter().enumerate() {
        all[5 + i] = value.to_ne_bytes().to_vec();
    }
    let mut outs = [vec![0xEE; sizes[1]], vec![0xEE; sizes[2]]];
    let (mut k, mut v) = (all[1].clone(), all[2].clone());
    let mut session = graph.session();
    for (i, bytes) in all.iter().enumerate().filter(|(i, _)| !in_place || !(1..3).contains(i)) {
        session.input(i, bytes)?;
    }
    let [out_k, out_v] = &mut outs;
    if in_place {
        for (i, bytes) in [&mut k, &mut v].into_iter().enumerate() {
            // SAFETY: a session keeps the address and nothing else; the bytes are not looked at before it is gone.
            let again = unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr(), bytes.len()) };
            session.input(1 + i, bytes)?.output(i, again)?;
        }
    } else {
        session.output(0, out_k)?.output(1, out_v)?;
    }
    session.run()?;
    Ok(if in_place { [k, v] } else { outs })
}

/// The rule, written once more: rows of keys are columns.
fn expected(graph: &Graph, rule: [i32; 4]) -> [Vec<u8>; 2] {
    let info = graph.info();
    let bytes = |i: usize| noise(i, info.inputs[i].size_bytes());
    let size = info.inputs[1].size_bytes() / (HEADS * DIM * ROWS);
    let (mut k, mut v) = (bytes(1), bytes(2));
    let [to, from, n, enable] = rule.map(|x| x as usize);
    for h in 0..HEADS {
        for j in 0..if enable == 0 { 0 } else { n } {
            for d in 0..DIM {
                let put = |out: &mut [u8], at: usize, new: &[u8], of: usize| {
                    out[at * size..(at + 1) * size].copy_from_slice(&new[of * size..(of + 1) * size]);
                };
                put(&mut k, (h * DIM + d) * ROWS + to + j, &bytes(3), (h * DIM + d) * NEW + from + j);
                put(&mut v, (h * ROWS + to + j) * DIM + d, &bytes(4), (h * NEW + from + j) * DIM + d);
            }
        }
    }
    [k, v]
}

const RULES: [[i32; 4]; 6] = [[0, 0, 4, 1], [7, 0, 4, 1], [10, 3, 1, 1], [5, 1, 2, 1], [3, 1, 2, 0], [11, 0, 0, 1]];

#[test]
fn our_package_equals_the_host_and_the_rule() {
    let library = Library::open(built("qnn_host")).expect("the shared host loads");
    for (name, start) in [("linked", linked()), ("dlopen", backend(&library))] {
        for provider in [None, Some(PROVIDER), Some(PROVIDER_OF_FILE), Some(PROVIDER_V2)] {
            // A backend of its own for each: a name can be registered once.
            let host = backend(start.library());
            if let Some(provider) = provider {
                host.register_op_package(&ours(), provider, Some("CPU")).expect("our package loads");
            }
            for dtype in [Dtype::F32, Dtype::F16, Dtype::UFixed8] {
                let context = Context::create(&host, &ContextOptions::default()).expect("a context");
                let mut fresh = compose(&context, dtype).expect("composes");
                let binary = context.to_bytes().expect("a binary");
                let loaded = Context::from_bytes(&host, &binary, &ContextOptions::default()).expect("loads");
                let mut loaded = loaded.graph("update").expect("the graph is there");
                for rule in RULES {
                    let wanted = expected(&fresh, rule);
                    for graph in [&mut fresh, &mut loaded] {
                        for in_place in [false, true] {
                            let found = run(graph, rule, in_place).expect("runs");
                            assert!(found == wanted, "{name} {provider:?} {dtype:?} {rule:?}, in place: {in_place}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rows_that_do_not_fit_fail_by_the_packages_number() {
    let host = linked();
    host.register_op_package(&ours(), PROVIDER, None).expect("our package loads");
    let context = Context::create(&host, &ContextOptions::default()).expect("a context");
    let mut graph = compose(&context, Dtype::F32).expect("composes");
    for rule in [[8, 0, 4, 1], [0, 1, 4, 1], [-1, 0, 2, 1], [0, 0, -1, 1]] {
        let found = words(run(&mut graph, rule, true));
        assert!(found.contains("3200") && found.contains("node `update`"), "{found}");
    }
    assert!(run(&mut graph, RULES[0], true).is_ok(), "a failed run leaves the op usable");
}

#[test]
fn operands_are_checked_by_the_package_when_a_node_is_added() {
    let host = linked();
    host.register_op_package(&ours(), PROVIDER, None).expect("our package loads");
    let context = Context::create(&host, &ContextOptions::default()).expect("a context");
    let mut g = context.compose("bad", &Default::default()).expect("a graph");
    let x = g.tensor(&TensorInfo::new("x", [4], Dtype::F32), TensorKind::Input).expect("a tensor");
    let y = g.tensor(&TensorInfo::new("y", [4], Dtype::F32), TensorKind::Output).expect("a tensor");
    let found = words(g.node("n", UPDATE, &[], &[x], &[y]));
    assert!(
        found.contains("6005") && found.contains("expected what op package `LLaMAPackage` accepts, found error 3110"),
        "{found}"
    );
}

fn register(path: &Path, provider: &str, target: Option<&str>) -> String {
    words(linked().register_op_package(path, provider, target))
}

#[test]
fn bad_packages_are_refused_by_number_and_cause() {
    let bad = built("bad_packages");
    for (path, provider, target, code, cause) in [
        (Path::new("/no/such/package.so"), PROVIDER, None, 4005, "cannot be loaded"),
        (&bad, "NoSuchProvider", None, 4006, "has no function `NoSuchProvider`"),
        (&bad, "GoodProvider", Some("HTP"), 4003, "expected an op package for target `CPU`, found target `HTP`"),
        (&bad, "OldProvider", None, 4008, "interface version 1.3.0, expected 1.4 or 2.0"),
        (&bad, "NewProvider", None, 4008, "interface version 3.0.0, expected 1.4 or 2.0"),
        (&bad, "FailingProvider", None, 4007, "`interface provider` failed with 1100"),
        (&bad, "BadInitProvider", None, 4007, "`init` failed with 3100"),
        (&bad, "BadInfoProvider", None, 4007, "`getInfo` failed with 3101"),
        (&bad, "EmptyProvider", None, 4007, "expected at least one op, found none"),
        (&bad, "QnnNameProvider", None, 4007, "expected a name that is not QNN's own, found qti.aisw"),
        (&bad, "NoCreateProvider", None, 4007, "expected its interface to have `createOpImpl`, found null"),
        (&bad, "BadStartProviderV2", None, 4007, "`create` failed with 3100"),
        (&bad, "NoStartProviderV2", None, 4007, "expected its interface to have `create`, found null"),
        (&bad, "NoCreateProviderV2", None, 4007, "expected its interface to have `createOpImpl`, found null"),
        (&bad, "NoFreeProviderV2", None, 4007, "expected its interface to have `freeOpImpl`, found null"),
        (&bad, "NoInfoProviderV2", None, 4007, "expected its interface to have `getInfo`, found null"),
        (&bad, "BadInfoProviderV2", None, 4007, "`getInfo` failed with 3101"),
    ] {
        let found = register(path, provider, target);
        assert!(found.contains(&code.to_string()) && found.contains(cause), "{provider}: {found}");
    }
    let host = linked();
    host.register_op_package(&bad, "GoodProvider", None).expect("this one is fine");
    let found = words(host.register_op_package(&bad, "GoodProvider", None));
    assert!(found.contains("4009") && found.contains("found `BadPackage` again"), "{found}");
}

/// `y = op(relu(x))`, and `z = relu(y)` if the result is to be read by another node.
fn compose_small(context: &Context, op: &str, inner: bool) -> Result<Graph> {
    let mut g = context.compose("small", &Default::default())?;
    let f = |name: &str| TensorInfo::new(name, [5], Dtype::F32);
    let x = g.tensor(&f("x"), TensorKind::Input)?;
    let r = g.tensor(&f("r"), TensorKind::Native)?;
    g.node("relu", "Relu", &[], &[x], &[r])?;
    let y = g.tensor(&f("y"), if inner { TensorKind::Native } else { TensorKind::Output })?;
    g.node("theirs", &format!("BadPackage::{op}"), &[("factor", Param::F32(2.0))], &[r], &[y])?;
    if inner {
        let z = g.tensor(&f("z"), TensorKind::Output)?;
        g.node("last", "ElementWiseAdd", &[], &[y, x], &[z])?;
    }
    g.finalize()
}

fn run_small(graph: &mut Graph) -> Result<Vec<f32>> {
    let x: Vec<u8> = [-1.0f32, 2.0, 0.5, -3.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let mut y = vec![0; x.len()];
    let mut session = graph.session();
    session.input(0, &x)?.output(0, &mut y)?;
    session.run()?;
    Ok(y.as_chunks::<4>().0.iter().map(|&b| f32::from_ne_bytes(b)).collect())
}

#[test]
fn ops_of_a_package_work_between_ops_of_the_host() {
    let host = linked();
    host.register_op_package(&built("bad_packages"), "GoodProvider", None).expect("the package loads");
    for (inner, wanted) in [(false, [0.0, 4.0, 1.0, 0.0, 8.0]), (true, [-1.0, 6.0, 1.5, -3.0, 12.0])] {
        let context = Context::create(&host, &ContextOptions::default()).expect("a context");
        let mut graph = compose_small(&context, "Twice", inner).expect("composes");
        for _ in 0..3 {
            assert_eq!(run_small(&mut graph).expect("runs"), wanted);
        }
    }
}

#[test]
fn ops_that_fail_are_errors_by_number_and_cause() {
    let host = linked();
    host.register_op_package(&built("bad_packages"), "GoodProvider", None).expect("the package loads");
    let compose = |op| {
        let context = Context::create(&host, &ContextOptions::default()).expect("a context");
        compose_small(&context, op, false)
    };
    for (op, code, cause) in [
        ("RefusesNode", "6005", "found error 3110"),
        ("FailsToMake", "6022", "`createOpImpl` of `BadPackage::FailsToMake` failed with 1000"),
        ("NoSuchOp", "6005", "expected `qti.aisw`, or a package registered with this backend that has the op"),
    ] {
        let found = words(compose(op));
        assert!(found.contains(code) && found.contains(cause), "{op}: {found}");
    }
    let mut graph = compose("FailsToRun").expect("composes");
    let found = words(run_small(&mut graph));
    assert!(found.contains("3200") && found.contains("node `theirs`") && found.contains("`opImplFn`"), "{found}");
}

#[test]
fn a_binary_never_loads_a_package_by_itself() {
    let with = linked();
    with.register_op_package(&built("bad_packages"), "GoodProvider", None).expect("the package loads");
    let context = Context::create(&with, &ContextOptions::default()).expect("a context");
    compose_small(&context, "Twice", true).expect("composes");
    let binary = context.to_bytes().expect("a binary");
    let found = words(Context::from_bytes(&linked(), &binary, &ContextOptions::default()));
    assert!(found.contains("op package") && found.contains("found `BadPackage`"), "{found}");
    let again = linked();
    again.register_op_package(&built("bad_packages"), "GoodProvider", None).expect("the package loads");
    let loaded = Context::from_bytes(&again, &binary, &ContextOptions::default()).expect("loads");
    assert_eq!(run_small(&mut loaded.graph("small").expect("there")).expect("runs"), [-1.0, 6.0, 1.5, -3.0, 12.0]);
}

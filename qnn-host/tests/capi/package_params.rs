//! Parameters of a package's op arrive whole: when a node is validated, when the op is made and when it runs, before and after
//! a context binary. The package is in C (see `recorder`) and writes down what it sees.

use std::ptr::null_mut;

use qnn_sys::*;

use crate::client::{Client, Op, Param, Tensor, call, floats};
use crate::recorder::{seen, with_package};

fn table(name: &str, dtype: u32, dims: &[u32], data: Vec<u8>) -> Param {
    Param::tensor(Tensor::new(name, QNN_TENSOR_TYPE_STATIC, dtype, dims, data))
}

/// A parameter, as `validateOpConfig` is to see it, and as the op is.
struct Case {
    param: Param,
    config: &'static str,
    node: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |param, config, node| Case { param, config, node };
    let same = |param, both| Case { param, config: both, node: both };
    let halves: Vec<u8> = [0x3800u16, 0xc000].iter().flat_map(|h| h.to_ne_bytes()).collect();
    let (large, small) = (i64::MAX, i64::MIN);
    vec![
        case(Param::text("mode", "row-major é"), "mode scalar 0x0608 `row-major é`", "mode text `row-major é`"),
        case(Param::text("empty", ""), "empty scalar 0x0608 ``", "empty text ``"),
        case(Param::f64("tenth", 0.1), "tenth scalar 0x0264 0.10000000000000001", "tenth number 0.10000000000000001"),
        case(
            Param::f64("huge", 1e300),
            "huge scalar 0x0264 1.0000000000000001e+300",
            "huge number 1.0000000000000001e+300",
        ),
        case(Param::f32("half", 0.5), "half scalar 0x0232 0.5", "half number 0.5"),
        case(Param::u32("count", 7), "count scalar 0x0132 7", "count number 7"),
        case(Param::i64("far", -(1 << 40)), "far scalar 0x0064 -1099511627776", "far number -1099511627776"),
        same(
            table("f32s", QNN_DATATYPE_FLOAT_32, &[2, 1], floats(&[0.25, -3.5])),
            "f32s tensor 0x0232 [2,1] 0.25 -3.5",
        ),
        same(table("f16s", QNN_DATATYPE_FLOAT_16, &[2], halves), "f16s tensor 0x0232 [2] 0.5 -2"),
        same(table("i8s", QNN_DATATYPE_INT_8, &[3], vec![1, 2, 3]), "i8s tensor 0x0008 [3] 1 2 3"),
        same(table("u8s", QNN_DATATYPE_UINT_8, &[1, 3], vec![0, 128, 255]), "u8s tensor 0x0108 [1,3] 0 128 255"),
        same(
            table("i16s", QNN_DATATYPE_INT_16, &[2], [5i16, -6].iter().flat_map(|v| v.to_ne_bytes()).collect()),
            "i16s tensor 0x0016 [2] 5 -6",
        ),
        same(table("i32s", QNN_DATATYPE_INT_32, &[1], 9i32.to_ne_bytes().to_vec()), "i32s tensor 0x0032 [1] 9"),
        same(Param::u32s("u32s", &[u32::MAX, 0]), "u32s tensor 0x0132 [2] 4294967295 0"),
        same(
            table("i64s", QNN_DATATYPE_INT_64, &[2], [large, small].iter().flat_map(|v| v.to_ne_bytes()).collect()),
            "i64s tensor 0x0064 [2] 9223372036854775807 -9223372036854775808",
        ),
        same(
            table("u64s", QNN_DATATYPE_UINT_64, &[1], u64::MAX.to_ne_bytes().to_vec()),
            "u64s tensor 0x0164 [1] 18446744073709551615",
        ),
        same(table("flags", QNN_DATATYPE_BOOL_8, &[2], vec![1, 0]), "flags tensor 0x0508 [2] 1 0"),
    ]
}

/// The lines of some calls.
fn lines(cases: &[Case], calls: &[&str]) -> Vec<String> {
    let line = |call: &str, case: &Case| format!("{call} {}", if call == "config" { case.config } else { case.node });
    calls.iter().flat_map(|call| cases.iter().map(move |case| line(call, case))).collect()
}

/// A graph of one node; what adding the node said.
fn compose(client: &Client, context: Qnn_ContextHandle_t, op: &str, params: &[Param]) -> (Qnn_GraphHandle_t, u64) {
    let graph = client.graph(context, c"seen");
    let (x, y) = (client.make(graph, Tensor::input("x", &[4])), client.make(graph, Tensor::output("y", &[4])));
    (graph, client.add(graph, "n", op, params, &[&x], &[&y]))
}

fn run(client: &Client, graph: Qnn_GraphHandle_t) {
    let (values, mut out) = (floats(&[0.0; 4]), [0; 16]);
    let (mut x, mut y) = (Tensor::input("x", &[4]), Tensor::output("y", &[4]));
    (x.v1().id, y.v1().id) = (1, 2);
    let code = client.run(graph, &[x.reading(&values)], &mut [y.writing(&mut out)]);
    assert_eq!(code, 0, "{}", client.message(code));
}

#[test]
fn every_parameter_arrives_before_and_after_a_binary() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let client = with_package(folder);
    let cases = cases();
    let params: Vec<Param> = self::cases().into_iter().map(|case| case.param).collect();

    let (x, y) = (Tensor::input("x", &[4]), Tensor::output("y", &[4]));
    let op = Op::new("n", "Recorder::Seen", &params, &[&x], &[&y]);
    let code = call!(client.table, backendValidateOpConfig(client.backend, op.raw));
    assert_eq!(code, 0, "{}", client.message(code));
    assert_eq!(seen(folder), lines(&cases, &["config"]), "validated alone");

    let context = client.context();
    let (graph, code) = compose(&client, context, "Recorder::Seen", &params);
    assert_eq!(code, 0, "{}", client.message(code));
    drop(params);
    let code = call!(client.table, graphFinalize(graph, null_mut(), null_mut()));
    assert_eq!(code, 0, "{}", client.message(code));
    run(&client, graph);
    assert_eq!(seen(folder), lines(&cases, &["config", "node", "run"]), "composed");
    let binary = client.binary(context);
    assert_eq!(
        binary[8..12],
        qnn_host::container::NEWEST_VERSION.to_le_bytes(),
        "older programs refuse it by its format"
    );
    client.free(context);

    let context = client.load(&binary, false).unwrap();
    run(&client, client.retrieve(context, c"seen"));
    assert_eq!(seen(folder), lines(&cases, &["config", "node", "run"]), "loaded");
    assert!(client.binary(context) == binary, "saved again it is the same");
    client.free(context);
}

#[test]
fn graphs_without_such_parameters_keep_the_format_of_before() {
    let folder = tempfile::tempdir().unwrap();
    let client = with_package(folder.path());
    let context = client.context();
    let (graph, code) = compose(&client, context, "Recorder::Seen", &[Param::f32("half", 0.5), Param::u32("count", 7)]);
    assert_eq!(code, 0, "{}", client.message(code));
    assert_eq!(call!(client.table, graphFinalize(graph, null_mut(), null_mut())), 0);
    assert_eq!(client.binary(context)[8..12], qnn_host::container::FORMAT_VERSION.to_le_bytes());
    client.free(context);
}

#[test]
fn what_cannot_be_passed_on_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let client = with_package(folder.path());
    let mut encoded = Tensor::new("coded", QNN_TENSOR_TYPE_STATIC, QNN_DATATYPE_UFIXED_POINT_8, &[2], vec![1, 2]);
    encoded.v1().quantizeParams = Qnn_QuantizeParams_t {
        encodingDefinition: QNN_DEFINITION_DEFINED,
        quantizationEncoding: QNN_QUANTIZATION_ENCODING_SCALE_OFFSET,
        anon0: Qnn_QuantizeParams_t_anon0 { scaleOffsetEncoding: Qnn_ScaleOffset_t { scale: 0.5, offset: 0 } },
    };
    let halves = || table("t", QNN_DATATYPE_FLOAT_16, &[1], vec![0, 0]);
    for (op, param, words) in [
        ("Recorder::Seen", Param::no_text("t"), "stringValue"),
        ("Recorder::Seen", Param::bad_text("t"), "stringValue` in UTF-8"),
        ("Recorder::Seen", table("t", QNN_DATATYPE_FLOAT_32, &[2], vec![0; 4]), "found 4 bytes of F32 for [2]"),
        ("Recorder::Seen", Param::tensor(encoded), "without an encoding, found UFixed8 with an encoding"),
        ("Recorder::Seen", Param::i64("t", (1 << 53) + 1), "expected an integer that a double holds"),
        // QNN's own ops take what they took.
        ("Relu", Param::text("t", "a"), "parameter `t`: expected a number or bool8, found a scalar of type 0x0608"),
        ("Relu", halves(), "parameter `t`: expected an integer tensor, found a tensor of F16"),
    ] {
        let context = client.context();
        let (_, code) = compose(&client, context, op, &[param]);
        assert_eq!(code, if words.contains("stringValue") { 6000 } else { 6005 }, "{words}");
        let found = client.message(code);
        assert!(found.contains(words), "expected {words}, found {found}");
        client.free(context);
    }
}

#[test]
fn a_table_may_be_a_tensor_of_the_graph() {
    let folder = tempfile::tempdir().unwrap();
    let client = with_package(folder.path());
    let context = client.context();
    let graph = client.graph(context, c"seen");
    let (x, y) = (client.make(graph, Tensor::input("x", &[4])), client.make(graph, Tensor::output("y", &[4])));
    let table = Param::tensor(client.make(graph, Tensor::weights("kept", &[2], &[0.5, -2.0])));
    let code = client.add(graph, "n", "Recorder::Seen", &[table], &[&x], &[&y]);
    assert_eq!(code, 0, "{}", client.message(code));
    assert_eq!(call!(client.table, graphFinalize(graph, null_mut(), null_mut())), 0);
    let expected = ["config kept tensor 0x0232 [2] 0.5 -2", "node kept tensor 0x0232 [2] 0.5 -2"];
    assert_eq!(seen(folder.path()), expected);
    let binary = client.binary(context);
    client.free(context);
    let context = client.load(&binary, false).unwrap();
    client.retrieve(context, c"seen");
    assert_eq!(seen(folder.path()), expected);
    client.free(context);
}

//! How often a package is asked whether it accepts a node: once for each that is added, and once for each of a binary that is loaded;
//! again where it does not know the node as it is.

use std::path::Path;
use std::ptr::null_mut;

use qnn_sys::*;

use crate::client::{Client, Tensor, call};
use crate::recorder::{register, seen, with_package};

/// The calls, in order.
const CONFIG: &str = "config";
const NODE: &str = "node";

fn finalize(client: &Client, graph: Qnn_GraphHandle_t) {
    let code = call!(client.table, graphFinalize(graph, null_mut(), null_mut()));
    assert_eq!(code, 0, "{}", client.message(code));
}

fn add(client: &Client, graph: Qnn_GraphHandle_t, name: &str, inputs: &[&Tensor], outputs: &[&Tensor]) {
    let code = client.add(graph, name, "Recorder::Seen", &[], inputs, outputs);
    assert_eq!(code, 0, "{}", client.message(code));
}

/// A backend with the package, a context with a graph, and the graph's input.
fn begin(folder: &Path) -> (Client, Qnn_ContextHandle_t, Qnn_GraphHandle_t, Tensor) {
    let client = with_package(folder);
    let context = client.context();
    let graph = client.graph(context, c"two");
    let x = client.make(graph, Tensor::input("x", &[4]));
    (client, context, graph, x)
}

#[test]
fn a_node_is_validated_once_when_it_is_added_and_once_when_it_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (client, context, graph, x) = begin(folder);
    let h = client.make(graph, Tensor::native("h", &[4]));
    let y = client.make(graph, Tensor::output("y", &[4]));
    add(&client, graph, "first", &[&x], &[&h]);
    assert_eq!(seen(folder), [CONFIG]);
    add(&client, graph, "second", &[&h], &[&y]);
    assert_eq!(seen(folder), [CONFIG]);
    finalize(&client, graph);
    assert_eq!(seen(folder), [NODE, NODE]);

    let binary = client.binary(context);
    client.free(context);
    let context = client.load(&binary, false).unwrap();
    assert_eq!(seen(folder), [CONFIG, CONFIG]);
    client.retrieve(context, c"two");
    client.retrieve(context, c"two");
    assert_eq!(seen(folder), [NODE, NODE]);
    client.free(context);
}

/// A static tensor of 8 bits, whose encoding may be replaced.
fn codes(scale: f32) -> Tensor {
    let data = vec![1, 2, 3, 4];
    let mut codes = Tensor::new("w", QNN_TENSOR_TYPE_UPDATEABLE_STATIC, QNN_DATATYPE_UFIXED_POINT_8, &[4], data);
    codes.v1().quantizeParams = Qnn_QuantizeParams_t {
        encodingDefinition: QNN_DEFINITION_DEFINED,
        quantizationEncoding: QNN_QUANTIZATION_ENCODING_SCALE_OFFSET,
        anon0: Qnn_QuantizeParams_t_anon0 { scaleOffsetEncoding: Qnn_ScaleOffset_t { scale, offset: 0 } },
    };
    codes
}

#[test]
fn a_new_encoding_is_shown_to_the_package_and_new_values_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (client, context, graph, x) = begin(folder);
    let w = client.make(graph, codes(0.5));
    let (y, z) = (client.make(graph, Tensor::output("y", &[4])), client.make(graph, Tensor::output("z", &[4])));
    add(&client, graph, "reads it", &[&x, &w], &[&y]);
    add(&client, graph, "does not", &[&x], &[&z]);
    finalize(&client, graph);
    assert_eq!(seen(folder), [CONFIG, CONFIG, NODE, NODE]);

    for (scale, expected) in [(0.5, &[NODE, NODE][..]), (0.25, &[CONFIG, NODE, NODE]), (0.25, &[NODE, NODE])] {
        let mut update = codes(scale);
        update.v1().id = w.id();
        let mut list = [&raw const update.raw];
        let code = call!(client.table, tensorUpdateGraphTensors(graph, list.as_mut_ptr(), 1));
        assert_eq!(code, 0, "{}", client.message(code));
        assert_eq!(seen(folder), [""; 0], "nothing happens before the graph is finalized");
        finalize(&client, graph);
        assert_eq!(seen(folder), expected, "scale {scale}");
    }
    client.free(context);
}

/// A graph of one cache update, which the host has too.
fn update(client: &Client, context: Qnn_ContextHandle_t) -> Qnn_GraphHandle_t {
    let graph = client.graph(context, c"update");
    let cache = |name, dims: [u32; 4]| client.make(graph, Tensor::input(name, &dims));
    let scalar =
        |name| client.make(graph, Tensor::new(name, QNN_TENSOR_TYPE_APP_WRITE, QNN_DATATYPE_INT_32, &[1], Vec::new()));
    let inputs = [
        client.make(graph, Tensor::input("after", &[3])),
        cache("past_k", [1, 2, 6, 11]),
        cache("past_v", [1, 2, 11, 6]),
        cache("new_k", [1, 2, 6, 4]),
        cache("new_v", [1, 2, 4, 6]),
        scalar("to"),
        scalar("from"),
        scalar("n"),
        scalar("enable"),
    ];
    let k = client.make(graph, Tensor::output("k", &[1, 2, 6, 11]));
    let v = client.make(graph, Tensor::output("v", &[1, 2, 11, 6]));
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let code = client.add(graph, "update", "LLaMAPackage::PDKVCacheUpdate", &[], &inputs, &[&k, &v]);
    assert_eq!(code, 0, "{}", client.message(code));
    graph
}

#[test]
fn a_package_that_comes_later_is_asked_when_it_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let client = Client::new();
    let context = client.context();
    let graph = update(&client, context);
    let binary = {
        let context = client.context();
        finalize(&client, update(&client, context));
        let binary = client.binary(context);
        client.free(context);
        binary
    };
    let loaded = client.load(&binary, false).unwrap();
    register(&client, folder, "LLaMAPackage", "PDKVCacheUpdate");
    assert_eq!(seen(folder), [""; 0]);
    finalize(&client, graph);
    assert_eq!(seen(folder), [CONFIG, NODE], "composed");
    client.retrieve(loaded, c"update");
    assert_eq!(seen(folder), [CONFIG, NODE], "loaded");
    client.free(loaded);
    client.free(context);
}

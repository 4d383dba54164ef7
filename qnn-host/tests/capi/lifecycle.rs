//! From composing to a loaded binary, and what happens to buffers on the way.

use std::ptr::null_mut;

use qnn_sys::*;

use crate::client::*;

#[test]
fn composed_run_saved_and_loaded() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    small.check(&client, small.graph);

    let bytes = client.binary(context);
    assert!(qnn_host::container::is_ours(&bytes));
    client.free(context);

    for persistent in [false, true] {
        let mut kept = bytes.clone();
        let context = client.load(&kept, persistent).unwrap();
        if !persistent {
            kept.fill(0);
        }
        let graph = client.retrieve(context, c"small");
        assert_eq!(graph, client.retrieve(context, c"small"), "a graph has one handle");
        small.check(&client, graph);
        if !persistent {
            // A loaded context can be saved again, and nothing is lost.
            assert_eq!(client.binary(context), bytes);
        }
        client.free(context);
    }
}

#[test]
fn a_persistent_binary_needs_no_alignment() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let bytes = client.binary(context);
    client.free(context);
    for shift in [1, 2, 7] {
        let mut memory = vec![0u8; shift];
        memory.extend(&bytes);
        let context = client.load(&memory[shift..], true).unwrap();
        small.check(&client, client.retrieve(context, c"small"));
        // Saving over the bytes that the context still reads is refused.
        let to = memory.as_mut_ptr().cast();
        let (n, mut written) = (bytes.len() as u64, 0);
        let code = call!(client.table, contextGetBinary(context, to, n, &raw mut written));
        assert_eq!(code, 5000);
        assert!(client.message(code).contains("off the binary that the context was made from"));
        client.free(context);
    }
}

#[test]
fn variants_share_their_weights() {
    let client = Client::new();
    let context = client.context();
    let one = Small::ready(&client, context, c"ar1", 1);
    let alone = qnn_host::container::summary(&client.binary(context)).unwrap();
    let eight = Small::ready(&client, context, c"ar8", 8);
    let both = qnn_host::container::summary(&client.binary(context)).unwrap();
    assert_eq!((alone.blobs, alone.weights_bytes), (both.blobs, both.weights_bytes));
    one.check(&client, one.graph);
    eight.check(&client, eight.graph);

    let bytes = client.binary(context);
    let loaded = client.load(&bytes, true).unwrap();
    one.check(&client, client.retrieve(loaded, c"ar1"));
    eight.check(&client, client.retrieve(loaded, c"ar8"));
    client.free(loaded);
    client.free(context);
}

#[test]
fn buffers_need_no_alignment_and_may_be_longer() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let x = small.sample();
    for shift in [1, 2, 3, 5] {
        let mut from = vec![0u8; shift];
        from.extend(floats(&x));
        let mut to = vec![0x77u8; shift + 24 + 9];
        let input = small.x.reading(&from[shift..]);
        let code = client.run(small.graph, &[input], &mut [small.y.writing(&mut to[shift..])]);
        assert_eq!(code, 0, "{}", client.message(code));
        expect(&as_floats(&to[shift..shift + 24]), &reference(&x));
        assert!(to[..shift].iter().chain(&to[shift + 24..]).all(|&b| b == 0x77), "written outside of the tensor");
    }
    client.free(context);
}

#[test]
fn an_output_over_an_input_is_computed_aside() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let x = small.sample();
    for (at, to) in [(0, 0), (0, 8), (8, 0), (0, 31)] {
        let mut memory = vec![0u8; 64];
        memory[at..at + 32].copy_from_slice(&floats(&x));
        let start = memory.as_mut_ptr();
        let (from, into) = (small.x.with(start.wrapping_add(at), 32), small.y.with(start.wrapping_add(to), 24));
        let code = client.run(small.graph, &[from], &mut [into]);
        assert_eq!(code, 0, "{}", client.message(code));
        expect(&as_floats(&memory[to..to + 24]), &reference(&x));
    }
    client.free(context);
}

#[test]
fn only_enabled_graphs_are_retrievable() {
    let client = Client::new();
    let context = client.context();
    Small::ready(&client, context, c"a", 1);
    Small::ready(&client, context, c"b", 2);
    let bytes = client.binary(context);
    client.free(context);

    let mut names = [c"b".as_ptr(), std::ptr::null()];
    let option = QnnContext_Config_t {
        option: QNN_CONTEXT_CONFIG_ENABLE_GRAPHS,
        anon0: QnnContext_Config_t_anon0 { enableGraphs: names.as_mut_ptr() },
    };
    let mut list = [&raw const option, std::ptr::null()];
    let mut loaded = null_mut();
    let (from, n) = (bytes.as_ptr().cast(), bytes.len() as u64);
    let code = call!(
        client.table,
        contextCreateFromBinary(client.backend, null_mut(), list.as_mut_ptr(), from, n, &raw mut loaded, null_mut())
    );
    assert_eq!(code, 0, "{}", client.message(code));
    client.retrieve(loaded, c"b");
    let mut graph = null_mut();
    let code = call!(client.table, graphRetrieve(loaded, c"a".as_ptr(), &raw mut graph));
    assert_eq!(code, 6002);
    assert_eq!(client.message(code), r#"QnnGraph_retrieve: the context has no graph `a`; it has ["b"]"#);
    client.free(loaded);
}

#[test]
fn a_graph_may_be_added_to_a_loaded_context() {
    let client = Client::new();
    let context = client.context();
    let first = Small::ready(&client, context, c"first", 1);
    let bytes = client.binary(context);
    client.free(context);
    let context = client.load(&bytes, true).unwrap();
    let second = Small::ready(&client, context, c"second", 3);
    second.check(&client, second.graph);
    first.check(&client, client.retrieve(context, c"first"));
    let again = qnn_host::container::summary(&client.binary(context)).unwrap();
    assert_eq!(again.blobs, qnn_host::container::summary(&bytes).unwrap().blobs);
    client.free(context);
}

#[test]
fn context_tensors_and_updates() {
    let client = Client::new();
    let context = client.context();
    // A static tensor of the context, used by two graphs.
    let mut w = Tensor::weights("w", &[3, 4], &WEIGHTS);
    assert_eq!(call!(client.table, tensorCreateContextTensor(context, &raw mut w.raw)), 0);
    let x = floats(&[1.0, 0.0, 0.0, 0.0]);
    for name in [c"a", c"b"] {
        let graph = client.graph(context, name);
        let input = client.make(graph, Tensor::input("x", &[1, 4]));
        let bias = Tensor::new(
            "bias",
            QNN_TENSOR_TYPE_UPDATEABLE_STATIC,
            QNN_DATATYPE_FLOAT_32,
            &[3],
            floats(&[1.0, 2.0, 3.0]),
        );
        let mut bias = client.make(graph, bias);
        let output = client.make(graph, Tensor::output("y", &[1, 3]));
        assert_eq!(client.add(graph, "fc", "FullyConnected", &[], &[&input, &w, &bias], &[&output]), 0);
        assert_eq!(call!(client.table, graphFinalize(graph, null_mut(), null_mut())), 0);
        let mut y = vec![0u8; 12];
        assert_eq!(client.run(graph, &[input.reading(&x)], &mut [output.writing(&mut y)]), 0);
        expect(&as_floats(&y), &[1.1, 1.5, 4.0]);

        // New data, then finalized again. The binary must not be the one from before.
        let before = client.binary(context);
        let mut new = floats(&[10.0, 20.0, 30.0]);
        bias.v1().anon0.clientBuf = Qnn_ClientBuffer_t { data: new.as_mut_ptr().cast(), dataSize: 12 };
        let mut list = [&raw const bias.raw];
        let code = call!(client.table, tensorUpdateGraphTensors(graph, list.as_mut_ptr(), 1));
        assert_eq!(code, 0, "{}", client.message(code));
        assert_eq!(client.run(graph, &[input.reading(&x)], &mut [output.writing(&mut y)]), 6023, "not finalized again");
        assert_eq!(call!(client.table, graphFinalize(graph, null_mut(), null_mut())), 0);
        assert_eq!(client.run(graph, &[input.reading(&x)], &mut [output.writing(&mut y)]), 0);
        expect(&as_floats(&y), &[10.1, 19.5, 31.0]);
        assert!(client.binary(context) != before);
    }
    client.free(context);
}

#[test]
fn a_refused_update_leaves_the_graph_as_it_is() {
    let client = Client::new();
    let context = client.context();
    let graph = client.graph(context, c"g");
    let x = client.make(graph, Tensor::input("x", &[1, 4]));
    let updateable = |name, dims: &[u32], values: &[f32]| {
        Tensor::new(name, QNN_TENSOR_TYPE_UPDATEABLE_STATIC, QNN_DATATYPE_FLOAT_32, dims, floats(values))
    };
    let w = client.make(graph, updateable("w", &[3, 4], &WEIGHTS));
    let bias = client.make(graph, updateable("bias", &[3], &[1.0, 2.0, 3.0]));
    let y = client.make(graph, Tensor::output("y", &[1, 3]));
    assert_eq!(client.add(graph, "fc", "FullyConnected", &[], &[&x, &w, &bias], &[&y]), 0);

    let of = |id, mut tensor: Tensor| {
        tensor.v1().id = id;
        tensor
    };
    let good = of(w.id(), updateable("w", &[3, 4], &[7.0; 12]));
    let refused = [
        of(99, updateable("none", &[3, 4], &WEIGHTS)),
        of(bias.id(), updateable("bias", &[4], &[1.0; 4])),
        of(x.id(), Tensor::input("x", &[1, 4])),
    ];
    let update = |tensors: &[&Tensor]| {
        let mut list: Vec<_> = tensors.iter().map(|tensor| &raw const tensor.raw).collect();
        call!(client.table, tensorUpdateGraphTensors(graph, list.as_mut_ptr(), list.len() as u64))
    };
    let run = || {
        let mut out = vec![0u8; 12];
        let code = client.run(graph, &[x.reading(&floats(&[1.0, 0.0, 0.0, 0.0]))], &mut [y.writing(&mut out)]);
        assert_eq!(code, 0, "{}", client.message(code));
        as_floats(&out)
    };
    // While it is composed, and when it is finalized.
    for finalized in [false, true] {
        for bad in &refused {
            assert_ne!(update(&[&good, bad]), 0);
            assert_ne!(update(&[bad]), 0);
        }
        if !finalized {
            assert_eq!(call!(client.table, graphFinalize(graph, null_mut(), null_mut())), 0);
        }
        expect(&run(), &[1.1, 1.5, 4.0]);
    }
    assert_eq!(update(&[&good, &of(bias.id(), updateable("bias", &[3], &[0.5; 3]))]), 0);
    assert_eq!(call!(client.table, graphFinalize(graph, null_mut(), null_mut())), 0);
    expect(&run(), &[7.5; 3]);
    client.free(context);
}

#[test]
fn the_system_interface_describes_a_binary() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let bytes = client.binary(context);
    let (table, mut handle) = (system(), null_mut());
    assert_eq!(call!(table, systemContextCreate(&raw mut handle)), 0);
    let mut info = std::ptr::null();
    let mut size = 7;
    let from = bytes.as_ptr().cast_mut().cast();
    let n = bytes.len() as u64;
    assert_eq!(call!(table, systemContextGetBinaryInfo(handle, from, n, &raw mut info, &raw mut size)), 0);
    assert_eq!(size, 0);
    // A second description leaves the first where it is.
    let mut other = std::ptr::null();
    assert_eq!(call!(table, systemContextGetMetaData(handle, from.cast_const(), n, &raw mut other)), 0);
    assert_ne!(info, other);

    // SAFETY: the description is version 3 and lives as long as the system context, as do its strings and tensors.
    unsafe {
        assert_eq!((*info).version, QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3);
        let v3 = &(*info).anon0.contextBinaryInfoV3;
        assert_eq!(v3.contextBlobSize, n);
        assert_eq!(std::ffi::CStr::from_ptr(v3.buildId).to_str().unwrap(), qnn_host::BUILD_ID);
        assert_eq!(v3.numGraphs, 1);
        let graph = &(*v3.graphs).anon0.graphInfoV3;
        assert_eq!(std::ffi::CStr::from_ptr(graph.graphName), c"small");
        assert_eq!((graph.numGraphInputs, graph.numGraphOutputs), (1, 1));
        let (x, y) = (&(*graph.graphInputs).anon0.v1, &(*graph.graphOutputs).anon0.v1);
        assert_eq!(std::ffi::CStr::from_ptr(x.name), c"x");
        assert_eq!((x.id, x.r#type, x.dataType), (small.x.id(), QNN_TENSOR_TYPE_APP_WRITE, QNN_DATATYPE_FLOAT_32));
        assert_eq!(std::slice::from_raw_parts(x.dimensions, x.rank as usize), [2, 4]);
        assert_eq!((y.id, y.r#type), (small.y.id(), QNN_TENSOR_TYPE_APP_READ));
    }
    let mut footprint = 0;
    assert_eq!(call!(table, systemTensorGetMemoryFootprint(small.x.raw, &raw mut footprint)), 0);
    assert_eq!(footprint, 32);

    let cut = bytes.len() as u64 - 1;
    assert_eq!(call!(table, systemContextGetBinaryInfo(handle, from, cut, &raw mut info, &raw mut size)), 30010);
    assert_eq!(call!(table, systemContextFree(handle)), 0);
    assert_eq!(call!(table, systemContextFree(handle)), 30000);
    assert_eq!(call!(table, systemContextGetBinaryInfo(handle, from, n, &raw mut info, &raw mut size)), 30000);
    client.free(context);
}

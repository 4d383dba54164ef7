//! Clients that break the contract: each misuse returns its error number and message, and nothing crashes.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use proptest::prelude::*;
use qnn_sys::*;

use crate::client::*;

/// A call that must fail with error `expected` and a message that contains `message`.
fn refused(client: &Client, code: u64, expected: u64, message: &str) {
    let words = if code == 0 { "success".to_owned() } else { client.message(code) };
    assert_eq!(code, expected, "{words}");
    assert!(words.contains(message), "expected `{message}` in `{words}`");
}

fn bogus(n: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(n)
}

#[test]
fn handles_are_validated() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let mut out = null_mut();
    for handle in [null_mut(), bogus(1), bogus(0xdead_beef), bogus(usize::MAX), small.graph, client.backend] {
        refused(&client, call!(t, contextFree(handle, null_mut())), 5002, "expected a live Context handle");
        refused(&client, call!(t, graphCreate(handle, c"g".as_ptr(), null_mut(), &raw mut out)), 5002, "Context");
        let mut n = 0;
        refused(&client, call!(t, contextGetBinarySize(handle, &raw mut n)), 5002, "Context");
    }
    for handle in [null_mut(), bogus(8), context, client.backend] {
        refused(&client, client.run(handle, &[], &mut []), 6001, "expected a live Graph handle");
        refused(&client, call!(t, graphFinalize(handle, null_mut(), null_mut())), 6001, "Graph");
        refused(&client, call!(t, graphSetConfig(handle, null_mut())), 6001, "Graph");
        let mut tensor = Tensor::input("z", &[1]);
        refused(&client, call!(t, tensorCreateGraphTensor(handle, &raw mut tensor.raw)), 6001, "Graph");
        refused(&client, client.add(handle, "n", "Sigmoid", &[], &[], &[]), 6001, "Graph");
    }
    for handle in [null_mut(), context, small.graph] {
        refused(&client, call!(t, backendFree(handle)), 4011, "expected a live Backend handle");
        refused(&client, call!(t, contextCreate(handle, null_mut(), null_mut(), &raw mut out)), 4011, "Backend");
        refused(&client, call!(t, profileCreate(handle, 1, &raw mut out)), 4011, "Backend");
        refused(&client, call!(t, logFree(handle)), 11004, "Log");
        refused(&client, call!(t, profileFree(handle)), 12000, "Profile");
        refused(&client, call!(t, deviceFree(handle)), 14000, "Device");
        refused(&client, call!(t, memDeRegister(&raw const handle, 1)), 8001, "Mem");
    }
    client.free(context);
}

#[test]
fn freed_things_stay_freed() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 1);
    let mut profile = null_mut();
    assert_eq!(call!(t, profileCreate(client.backend, QNN_PROFILE_LEVEL_BASIC, &raw mut profile)), 0);
    client.free(context);
    refused(&client, call!(t, contextFree(context, null_mut())), 5002, "expected a live Context handle");
    let bytes = floats(&small.sample());
    let mut y = vec![0; 12];
    let code = client.run(small.graph, &[small.x.reading(&bytes)], &mut [small.y.writing(&mut y)]);
    refused(&client, code, 6001, "expected a live Graph handle");
    assert_eq!(call!(t, profileFree(profile)), 0);
    refused(&client, call!(t, profileFree(profile)), 12000, "Profile");
    let (mut ids, mut n) = (null(), 0);
    refused(&client, call!(t, profileGetEvents(profile, &raw mut ids, &raw mut n)), 12000, "Profile");
}

#[test]
fn nulls_are_named() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 1);
    let open = client.graph(context, c"open");
    let (mut out, mut n) = (null_mut(), 0u64);
    refused(&client, call!(t, backendCreate(null_mut(), null_mut(), null_mut())), 4004, "`backend`");
    refused(&client, call!(t, contextCreate(client.backend, null_mut(), null_mut(), null_mut())), 5000, "`context`");
    refused(&client, call!(t, graphCreate(context, null(), null_mut(), &raw mut out)), 6000, "`graphName`");
    refused(&client, call!(t, graphCreate(context, c"n".as_ptr(), null_mut(), null_mut())), 6000, "`graphHandle`");
    refused(&client, call!(t, graphRetrieve(context, null(), &raw mut out)), 6000, "`graphName`");
    refused(&client, call!(t, graphRetrieve(context, c"small".as_ptr(), null_mut())), 6000, "`graphHandle`");
    refused(&client, call!(t, tensorCreateGraphTensor(open, null_mut())), 7004, "`tensor`");
    refused(&client, call!(t, contextGetBinarySize(context, null_mut())), 5003, "graph `open` is not finalized");
    let code =
        call!(t, contextCreateFromBinary(client.backend, null_mut(), null_mut(), null(), 9, &raw mut out, null_mut()));
    refused(&client, code, 5000, "`binaryBuffer`");
    let code = call!(t, graphExecute(small.graph, null(), 1, null_mut(), 1, null_mut(), null_mut()));
    refused(&client, code, 6000, "`inputs`");
    refused(&client, call!(t, logCreate(None, 1, null_mut())), 11003, "`logger`");
    refused(&client, call!(t, backendGetApiVersion(null_mut())), 4004, "`pVersion`");
    refused(&client, call!(t, backendGetBuildId(null_mut())), 4004, "`id`");
    refused(&client, call!(t, memRegister(context, null(), 1, &raw mut out)), 8000, "`memDescriptors`");
    refused(&client, call!(t, memRegister(context, null(), 0, &raw mut out)), 8000, "expected a descriptor");
    let mut op = Op::new("n", "Sigmoid", &[], &[], &[]);
    op.raw.anon0.v1.name = null();
    refused(&client, call!(t, graphAddNode(open, op.raw)), 6000, "`opConfig.name`");
    let mut op = Op::new("n", "Sigmoid", &[], &[], &[]);
    op.raw.anon0.v1.numOfInputs = 3;
    op.raw.anon0.v1.inputTensors = null_mut();
    refused(&client, call!(t, graphAddNode(open, op.raw)), 6000, "`inputTensors`");
    let none = Client::new();
    assert_eq!(call!(none.table, errorGetMessage(6001, null_mut())), 10000);
    assert_eq!(call!(none.table, errorGetMessage(424_242, (&raw mut out).cast())), 10001);
    let empty = client.context();
    assert_eq!(call!(t, contextGetBinarySize(empty, &raw mut n)), 0);
    let mut buffer = vec![0u8; n as usize];
    let to = buffer.as_mut_ptr().cast::<c_void>();
    let mut written = 0;
    refused(&client, call!(t, contextGetBinary(empty, null_mut(), n, &raw mut written)), 5000, "`binaryBuffer`");
    refused(&client, call!(t, contextGetBinary(empty, to, n, null_mut())), 5000, "`writtenBufferSize`");
    refused(&client, call!(t, contextGetBinary(empty, to, n - 1, &raw mut written)), 5000, "expected a buffer of");
    client.free(empty);
    client.free(context);
}

#[test]
fn a_misaligned_place_for_a_handle_leaves_nothing_behind() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let mut out: [Qnn_GraphHandle_t; 2] = [null_mut(); 2];
    let odd = out.as_mut_ptr().wrapping_byte_add(1);
    refused(
        &client,
        call!(t, graphCreate(context, c"n".as_ptr(), null_mut(), odd)),
        6000,
        "`graphHandle` to be aligned",
    );
    assert_eq!(call!(t, graphCreate(context, c"n".as_ptr(), null_mut(), out.as_mut_ptr())), 0, "the name is free");
    client.free(context);
}

#[test]
fn tensors_are_checked_when_made() {
    let client = Client::new();
    let context = client.context();
    let graph = client.graph(context, c"g");
    client.make(graph, Tensor::input("taken", &[1]));
    let f32s = QNN_DATATYPE_FLOAT_32;
    /// The tensor, what is done to it, the error number and the message.
    type Case = (Tensor, fn(&mut Qnn_TensorV1_t), u64, &'static str);
    let cases: Vec<Case> = vec![
        (Tensor::input("taken", &[2]), |_| {}, 7003, "graph `g` has a tensor `taken` already"),
        (Tensor::input("a", &[2, 0]), |_| {}, 7004, "expected extents of at least 1, found [2, 0]"),
        (Tensor::input("a", &[]), |_| {}, 7004, "expected rank 1 to 8, found rank 0"),
        (Tensor::input("a", &[1; 9]), |_| {}, 7004, "expected rank 1 to 8, found rank 9"),
        (Tensor::input("a", &[u32::MAX; 4]), |_| {}, 7004, "fits the address space"),
        (Tensor::input("a", &[2]), |t| t.dimensions = null_mut(), 7004, "`dimensions`"),
        (Tensor::input("a", &[2]), |t| t.dataType = 0x0777, 7005, "element type 0x0777"),
        (Tensor::input("a", &[2]), |t| t.dataFormat = 8, 7005, "data format 8"),
        (Tensor::input("a", &[2]), |t| t.r#type = 99, 7005, "tensor type 99"),
        (Tensor::new("a", QNN_TENSOR_TYPE_APP_READWRITE, f32s, &[2], vec![]), |_| {}, 7005, "tensor type 2"),
        (Tensor::weights("a", &[3], &[1.0, 2.0]), |_| {}, 7004, "expected 12 bytes of data for [3], found 8"),
        (Tensor::new("a", QNN_TENSOR_TYPE_STATIC, f32s, &[3], vec![]), |_| {}, 7004, "found 0"),
        (Tensor::weights("a", &[2], &[1.0, 2.0]), |t| t.memType = 7, 7005, "tensor memory type 7"),
        (
            Tensor::input("a", &[2]),
            |t| {
                t.quantizeParams.encodingDefinition = QNN_DEFINITION_DEFINED;
                t.quantizeParams.quantizationEncoding = 77;
            },
            7005,
            "encoding 77",
        ),
        (
            Tensor::input("a", &[2]),
            |t| {
                t.quantizeParams.encodingDefinition = QNN_DEFINITION_DEFINED;
                t.quantizeParams.quantizationEncoding = QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET;
                t.quantizeParams.anon0.axisScaleOffsetEncoding =
                    Qnn_AxisScaleOffset_t { axis: -1, numScaleOffsets: 0, scaleOffset: null_mut() };
            },
            7004,
            "expected an encoding axis of at least 0, found -1",
        ),
    ];
    for (mut tensor, change, number, message) in cases {
        change(tensor.v1());
        refused(&client, call!(client.table, tensorCreateGraphTensor(graph, &raw mut tensor.raw)), number, message);
    }
    let mut odd = Tensor::input("a", &[2]);
    odd.raw.version = 9;
    refused(&client, call!(client.table, tensorCreateGraphTensor(graph, &raw mut odd.raw)), 7005, "tensor version 9");
    client.free(context);
}

#[test]
fn nodes_are_checked_when_added_and_bad_ones_leave_no_trace() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let graph = client.graph(context, c"g");
    let x = client.make(graph, Tensor::input("x", &[2, 4]));
    let y = client.make(graph, Tensor::output("y", &[2, 4]));
    let narrow = client.make(graph, Tensor::native("narrow", &[2, 3]));
    let mut stranger = Tensor::input("stranger", &[2, 4]);
    stranger.v1().id = 77;
    let never = Tensor::input("never made", &[2, 4]);

    refused(
        &client,
        client.add(graph, "n", "Silu", &[], &[&x], &[&y]),
        6005,
        "expected an op this backend has, found `Silu`",
    );
    refused(
        &client,
        client.add(graph, "n", "Sigmoid", &[], &[&x, &x], &[&y]),
        6005,
        "number of inputs: expected 1, found 2",
    );
    refused(
        &client,
        client.add(graph, "n", "Sigmoid", &[], &[&x], &[&narrow]),
        6005,
        "output 0 `narrow`: expected dims [2, 4]",
    );
    refused(&client, client.add(graph, "n", "Sigmoid", &[], &[&stranger], &[&y]), 6004, "found 77 (`stranger`)");
    refused(&client, client.add(graph, "n", "Sigmoid", &[], &[&never], &[&y]), 6004, "found 0 (`never made`)");
    let other = client.make(graph, Tensor::native("other", &[2, 3]));
    refused(
        &client,
        client.add(graph, "n", "Sigmoid", &[], &[&narrow], &[&other]),
        6005,
        "input 0 `narrow`: expected a tensor",
    );
    refused(
        &client,
        client.add(graph, "n", "Softmax", &[Param::u32("axis", 2)], &[&x], &[&y]),
        6005,
        "an axis below rank 2",
    );
    refused(
        &client,
        client.add(graph, "n", "Softmax", &[Param::u32s("axis", &[1])], &[&x], &[&y]),
        6005,
        "parameter `axis`",
    );
    let mut op = Op::new("n", "Sigmoid", &[], &[&x], &[&y]);
    op.raw.anon0.v1.packageName = c"my.package".as_ptr();
    refused(
        &client,
        call!(t, graphAddNode(graph, op.raw)),
        6005,
        "op package: expected `qti.aisw`, or a package registered with this backend that has the op, found `my.package`",
    );
    op.raw.version = 5;
    refused(&client, call!(t, graphAddNode(graph, op.raw)), 6000, "expected op config version 1, found 5");

    refused(
        &client,
        call!(t, graphFinalize(graph, null_mut(), null_mut())),
        6007,
        "expected at least one node, found none",
    );
    assert_eq!(client.add(graph, "n", "Sigmoid", &[], &[&x], &[&y]), 0);
    refused(&client, client.add(graph, "m", "Sigmoid", &[], &[&x], &[&y]), 6005, "one that a node makes already");
    refused(&client, client.add(graph, "n", "Sigmoid", &[], &[&x], &[&narrow]), 6005, "name: expected one that is new");
    let extra = client.make(graph, Tensor::output("extra", &[2, 4]));
    refused(&client, call!(t, graphFinalize(graph, null_mut(), null_mut())), 6007, "found `extra` unmade");
    assert_eq!(client.add(graph, "m", "Sigmoid", &[], &[&x], &[&extra]), 0);
    refused(&client, client.run(graph, &[], &mut []), 6023, "graph `g` is not finalized");
    assert_eq!(call!(t, graphFinalize(graph, null_mut(), null_mut())), 0);
    refused(&client, call!(t, graphFinalize(graph, null_mut(), null_mut())), 6024, "graph `g` is finalized already");
    refused(&client, client.add(graph, "o", "Sigmoid", &[], &[&x], &[&narrow]), 6024, "finalized already");
    let mut late = Tensor::input("late", &[1]);
    refused(&client, call!(t, tensorCreateGraphTensor(graph, &raw mut late.raw)), 6024, "finalized already");
    let mut again = null_mut();
    refused(&client, call!(t, graphCreate(context, c"g".as_ptr(), null_mut(), &raw mut again)), 6003, "found `g`");
    refused(&client, call!(t, graphCreate(context, c"".as_ptr(), null_mut(), &raw mut again)), 6003, "found ``");
    client.free(context);
}

#[test]
fn buffers_are_checked_at_every_run() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let x = floats(&small.sample());
    let mut y = vec![0u8; 24];
    let (input, output) = (small.x.reading(&x), small.y.writing(&mut y));
    let run = |i: &[Qnn_Tensor_t], o: &[Qnn_Tensor_t]| client.run(small.graph, i, &mut o.to_vec());
    let change = |tensor: Qnn_Tensor_t, change: fn(&mut Qnn_TensorV1_t)| {
        let mut tensor = tensor;
        // SAFETY: made as version 1.
        change(unsafe { &mut tensor.anon0.v1 });
        tensor
    };
    refused(&client, run(&[], &[output]), 6000, "graph `small`: expected 1 inputs, found 0");
    refused(&client, run(&[input, input], &[output]), 6000, "expected 1 inputs, found 2");
    refused(&client, run(&[input], &[]), 6000, "expected 1 outputs, found 0");
    refused(&client, run(&[output], &[output]), 6004, "tensor `y`: expected an input of the graph");
    refused(&client, run(&[input], &[input]), 6004, "tensor `x`: expected an output of the graph");
    refused(
        &client,
        run(&[change(input, |t| t.id = 99)], &[output]),
        6004,
        "expected the id of a tensor of the graph, found 99",
    );
    refused(&client, run(&[change(input, |t| t.id = 0)], &[output]), 6004, "found 0");
    refused(&client, run(&[change(input, |t| t.id = u32::MAX)], &[output]), 6004, "found 4294967295");
    refused(
        &client,
        run(&[change(input, |t| t.dataType = QNN_DATATYPE_FLOAT_16)], &[output]),
        6004,
        "expected element type F32",
    );
    refused(&client, run(&[change(input, |t| t.rank = 1)], &[output]), 6004, "expected dims [2, 4], found [2]");
    refused(&client, run(&[change(input, |t| t.dimensions = null_mut())], &[output]), 7004, "`dimensions`");
    refused(&client, run(&[change(input, |t| t.memType = 2)], &[output]), 7005, "tensor memory type 2");
    refused(
        &client,
        run(&[change(input, |t| t.anon0.clientBuf.data = null_mut())], &[output]),
        6004,
        "a buffer of 32 bytes, found null",
    );
    refused(
        &client,
        run(&[change(input, |t| t.anon0.clientBuf.dataSize = 31)], &[output]),
        6004,
        "expected a buffer of 32 bytes, found 31",
    );
    refused(
        &client,
        run(&[input], &[change(output, |t| t.anon0.clientBuf.dataSize = 0)]),
        6004,
        "expected a buffer of 24 bytes, found 0",
    );
    let memory = change(input, |t| {
        t.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
        t.anon0.memHandle = std::ptr::without_provenance_mut(64);
    });
    refused(&client, run(&[memory], &[output]), 8001, "expected a live Mem handle");
    // After all of that it still works.
    small.check(&client, small.graph);
    client.free(context);
}

#[test]
fn outputs_must_not_share_bytes() {
    let client = Client::new();
    let context = client.context();
    let graph = client.graph(context, c"two");
    let x = client.make(graph, Tensor::input("x", &[4]));
    let a = client.make(graph, Tensor::output("a", &[4]));
    let b = client.make(graph, Tensor::output("b", &[4]));
    assert_eq!(client.add(graph, "n", "Sigmoid", &[], &[&x], &[&a]), 0);
    assert_eq!(client.add(graph, "m", "Tanh", &[], &[&x], &[&b]), 0);
    assert_eq!(call!(client.table, graphFinalize(graph, null_mut(), null_mut())), 0);
    let from = floats(&[0.0; 4]);
    let mut memory = vec![0u8; 40];
    let start = memory.as_mut_ptr();
    let code = client.run(graph, &[x.reading(&from)], &mut [a.with(start, 16), b.with(start.wrapping_add(15), 16)]);
    refused(&client, code, 6004, "tensor `b`: expected bytes of its own, found them shared with output `a`");
    let code = client.run(graph, &[x.reading(&from)], &mut [a.with(start, 16), b.with(start.wrapping_add(16), 16)]);
    assert_eq!(code, 0);
    assert_eq!(as_floats(&memory[..32]), [[0.5; 4], [0.0; 4]].concat());
    client.free(context);
}

#[test]
fn binaries_are_validated() {
    let client = Client::new();
    let context = client.context();
    Small::ready(&client, context, c"small", 2);
    let good = client.binary(context);
    client.free(context);
    /// What it is, how it is damaged, the error number and the message.
    type Case = (&'static str, fn(&mut Vec<u8>), u64, &'static str);
    let cases: [Case; 6] = [
        ("torn", |f| f.truncate(300), 5005, "is torn"),
        ("foreign", |f| f[..4].copy_from_slice(b"GGUF"), 5005, "not a context binary of this backend"),
        ("newer", |f| f[8] = 9, 5004, "format version 9"),
        ("header", |f| f[60] ^= 1, 5005, "checksum of the header"),
        ("metadata", |f| f[400] ^= 1, 5005, "checksum of the metadata"),
        ("weights", |f| f[4096] ^= 1, 5005, "checksum of weights blob 0"),
    ];
    for (what, change, number, message) in cases {
        for persistent in [false, true] {
            let mut bad = good.clone();
            change(&mut bad);
            let (code, words) = client.load(&bad, persistent).expect_err(what);
            assert_eq!(code, number, "{what}: {words}");
            assert!(words.contains(message), "{what}: {words}");
            let (from, n) = (bad.as_ptr().cast(), bad.len() as u64);
            let code = call!(client.table, contextValidateBinary(client.backend, null_mut(), null_mut(), from, n));
            assert_eq!(code, number, "{what}");
        }
    }
    let (from, n) = (good.as_ptr().cast(), good.len() as u64);
    assert_eq!(call!(client.table, contextValidateBinary(client.backend, null_mut(), null_mut(), from, n)), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_binaries_are_errors_never_crashes(cut in any::<u16>(), flips in prop::collection::vec(any::<(u16, u8)>(), 0..4)) {
        let client = Client::new();
        let context = client.context();
        Small::ready(&client, context, c"small", 2);
        let good = client.binary(context);
        client.free(context);
        let mut bad = good.clone();
        for (at, bits) in &flips {
            let at = *at as usize % bad.len();
            bad[at] ^= bits;
        }
        if flips.is_empty() {
            bad.truncate(cut as usize % good.len());
        }
        // Zeros between the sections are not checked; everything else is.
        let padding_only = bad.len() == good.len() && bad.iter().zip(&good).all(|(b, g)| b == g || *g == 0);
        match client.load(&bad, true) {
            Ok(context) => {
                prop_assert!(padding_only);
                client.free(context);
            }
            Err((code, words)) => prop_assert!((5004..=5005).contains(&code), "{words}"),
        }
    }
}

//! The objects around a context: capabilities, op validation, logs, profiles, devices, memory, messages, configs.

use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};

use parking_lot::Mutex;
use qnn_sys::*;

use crate::client::*;

#[test]
fn providers_name_themselves() {
    let provider = interface();
    // SAFETY: the name lives as long as the library.
    assert_eq!(unsafe { CStr::from_ptr(provider.providerName) }, c"HOST_OPEN_GENIE");
    assert_eq!((provider.apiVersion.coreApiVersion.major, provider.apiVersion.coreApiVersion.minor), (2, 40));
    let t = provider.table;
    let mut id: *const c_char = null();
    assert_eq!(call!(t, backendGetBuildId(&raw mut id)), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { CStr::from_ptr(id) }.to_str().unwrap(), qnn_host::BUILD_ID);
    // Slots that nothing fills report it.
    assert_eq!(call!(t, signalTrigger(null_mut())), 1000);
    assert_eq!(call!(t, backendRegisterOpPackage(null_mut(), null(), null(), null())), 4011);
    // SAFETY: null is refused.
    assert_eq!(unsafe { qnn_host::QnnInterface_getProviders(null_mut(), null_mut()) }, 1004);
}

#[test]
fn capabilities_are_reported() {
    let t = interface().table;
    for (key, answer) in [
        (QNN_PROPERTY_GROUP_CORE, 0),
        (QNN_PROPERTY_CONTEXT_SUPPORT_CONFIG_PERSISTENT_BINARY, 0),
        (QNN_PROPERTY_GRAPH_SUPPORT_ASYNC_EXECUTION, 0),
        (QNN_PROPERTY_BACKEND_SUPPORT_OP_PACKAGE, 0),
        (QNN_PROPERTY_GROUP_OP_PACKAGE, 0),
        (QNN_PROPERTY_GROUP_SIGNAL, 1000),
        (QNN_PROPERTY_TENSOR_SUPPORT_DYNAMIC_DIMENSIONS, 1000),
        (987_654, 2000),
    ] {
        assert_eq!(call!(t, propertyHasCapability(key)), answer, "key {key}");
    }
}

#[test]
fn operations_are_listed_and_validated() {
    let client = Client::new();
    let (mut n, mut list) = (0, null());
    assert_eq!(call!(client.table, backendGetSupportedOperations(client.backend, &raw mut n, &raw mut list)), 0);
    // SAFETY: `n` entries with strings that live as long as the library.
    let names: Vec<&CStr> =
        unsafe { std::slice::from_raw_parts(list, n as usize).iter().map(|o| CStr::from_ptr(o.name)).collect() };
    for op in [c"FullyConnected", c"RotaryEmbedding", c"Softmax"] {
        assert!(names.contains(&op), "{op:?}");
    }
    // Operands stand alone: no ids, no data.
    let (x, y) = (Tensor::input("x", &[2, 4]), Tensor::native("y", &[2, 3]));
    let w = Tensor::new("w", QNN_TENSOR_TYPE_STATIC, QNN_DATATYPE_FLOAT_32, &[3, 4], Vec::new());
    let op = Op::new("fc", "FullyConnected", &[], &[&x, &w], &[&y]);
    let validate = |op: &Op| call!(client.table, backendValidateOpConfig(client.backend, op.raw));
    let code = validate(&op);
    assert_eq!(code, 0, "{}", client.message(code));
    assert_eq!(validate(&Op::new("sq", "ElementWiseMultiply", &[], &[&x, &x], &[&x])), 0, "one tensor, three operands");
    let axes = [Param::u32s("axes", &[1])];
    let norm = Op::new("n", "RmsNorm", &axes, &[&x], &[&x]);
    let code = validate(&norm);
    assert_eq!(code, 0, "{}", client.message(code));
    let bad = Op::new("fc", "FullyConnected", &[], &[&x, &x], &[&y]);
    assert_eq!(validate(&bad), 3110);
    let words = client.message(3110);
    assert!(words.contains("node `fc` (FullyConnected), output 0 `y`: expected dims [2, 2], found [2, 3]"), "{words}");
    let flat = Tensor::input("flat", &[2, 0]);
    assert_eq!(validate(&Op::new("s", "Sigmoid", &[], &[&flat], &[&flat])), 3110);
}

static LOGGED: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

unsafe extern "C" fn record(text: *const c_char, level: u32, _time: u64, args: *mut c_void) {
    assert!(!args.is_null());
    // SAFETY: the backend sends a string.
    let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    LOGGED.lock().push((level, text));
}

#[test]
fn the_log_receives_failures_of_its_backend() {
    let t = interface().table;
    let (mut log, mut backend, mut context) = (null_mut(), null_mut(), null_mut());
    assert_eq!(call!(t, logCreate(Some(record), 1, &raw mut log)), 0);
    assert_eq!(call!(t, backendCreate(log, null_mut(), &raw mut backend)), 0);
    assert_eq!(call!(t, contextCreate(backend, null_mut(), null_mut(), &raw mut context)), 0);
    let mut graph = null_mut();
    assert_eq!(call!(t, graphRetrieve(context, c"50% of it".as_ptr(), &raw mut graph)), 6002);
    let logged = |what: &str| LOGGED.lock().iter().any(|(level, text)| *level == 1 && text.contains(what));
    assert!(logged("QnnGraph_retrieve: the context has no graph `50%% of it`"), "{:?}", LOGGED.lock());
    // A freed log is never called again.
    assert_eq!(call!(t, logFree(log)), 0);
    assert_eq!(call!(t, graphRetrieve(context, c"later".as_ptr(), &raw mut graph)), 6002);
    assert!(!logged("later"));
    assert_eq!(call!(t, logSetLogLevel(log, 2)), 11004);
    assert_eq!(call!(t, contextFree(context, null_mut())), 0);
    assert_eq!(call!(t, backendFree(backend)), 0);
}

#[test]
fn messages_can_be_kept() {
    let client = Client::new();
    assert_eq!(call!(client.table, contextFree(null_mut(), null_mut())), 5002);
    let mut words: *const c_char = null();
    assert_eq!(call!(client.table, errorGetVerboseMessage(5002, &raw mut words)), 0);
    // SAFETY: ours until freed.
    let text = unsafe { CStr::from_ptr(words) }.to_str().unwrap().to_owned();
    assert_eq!(text, "QnnContext_free: expected a live Context handle, found 0x0");
    assert_eq!(call!(client.table, errorFreeVerboseMessage(words)), 0);
    assert_eq!(call!(client.table, errorFreeVerboseMessage(words)), 10000, "freed twice");
    assert_eq!(call!(client.table, errorFreeVerboseMessage(null())), 10000);
    // An error number new to this thread yields its name.
    assert!(client.message(6021).contains("OPTIMIZATION_FAILED"), "{}", client.message(6021));
    let other = std::thread::spawn(|| {
        let client = Client::new();
        client.message(5002)
    });
    assert!(other.join().unwrap().contains("INVALID_HANDLE"), "messages belong to their thread");
}

#[test]
fn profiles_report_durations() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    for (level, below) in [(QNN_PROFILE_LEVEL_BASIC, false), (QNN_PROFILE_LEVEL_DETAILED, true)] {
        let mut profile = null_mut();
        assert_eq!(call!(t, profileCreate(client.backend, level, &raw mut profile)), 0);
        let events = || {
            let (mut ids, mut n) = (null(), 0);
            assert_eq!(call!(t, profileGetEvents(profile, &raw mut ids, &raw mut n)), 0);
            // SAFETY: `n` ids that stay until the profile is used again.
            unsafe { if n == 0 { Vec::new() } else { std::slice::from_raw_parts(ids, n as usize).to_vec() } }
        };
        assert!(events().is_empty());
        let run = || {
            let (x, mut y) = (floats(&small.sample()), vec![0u8; 24]);
            let (input, mut output) = (small.x.reading(&x), small.y.writing(&mut y));
            let code =
                call!(t, graphExecute(small.graph, &raw const input, 1, &raw mut output, 1, profile, null_mut()));
            assert_eq!(code, 0);
        };
        run();
        let first = events();
        assert_eq!(first.len(), 1);
        let mut data = QnnProfile_EventData_t { r#type: 0, unit: 0, value: 0, identifier: null() };
        assert_eq!(call!(t, profileGetEventData(first[0], &raw mut data)), 0);
        assert_eq!((data.r#type, data.unit), (QNN_PROFILE_EVENTTYPE_EXECUTE, QNN_PROFILE_EVENTUNIT_MICROSEC));
        // SAFETY: stays until the profile is used again.
        assert_eq!(unsafe { CStr::from_ptr(data.identifier) }, c"small");
        let (mut ids, mut n) = (null(), 0);
        assert_eq!(call!(t, profileGetSubEvents(first[0], &raw mut ids, &raw mut n)), 0);
        assert_eq!(n > 0, below, "{n} events below");
        run();
        assert_eq!(call!(t, profileGetEventData(first[0], &raw mut data)), 12000, "a stale event");
        assert_ne!(events(), first);
        assert_eq!(call!(t, profileFree(profile)), 0);
    }
    let mut profile = null_mut();
    assert_eq!(call!(t, profileCreate(client.backend, 77, &raw mut profile)), 1004);
    client.free(context);
}

#[test]
fn devices_and_configs_of_other_backends_are_accepted() {
    let client = Client::new();
    let t = client.table;
    let soc = htp::SocConfig::new(57);
    let custom = (&raw const soc).cast_mut().cast::<c_void>();
    let config = QnnDevice_Config_t {
        option: QNN_DEVICE_CONFIG_OPTION_CUSTOM,
        anon0: QnnDevice_Config_t_anon0 { customConfig: custom },
    };
    let mut device = null_mut();
    let mut list = [&raw const config, null()];
    assert_eq!(call!(t, deviceCreate(null_mut(), list.as_mut_ptr(), &raw mut device)), 0);
    let mut info = null();
    assert_eq!(call!(t, deviceGetInfo(device, &raw mut info)), 0);
    assert_eq!(call!(t, deviceGetPlatformInfo(null_mut(), &raw mut info)), 0);
    // SAFETY: lives as long as the library.
    assert_eq!(unsafe { (*info).anon0.v1.numHwDevices }, 1);
    assert_eq!(call!(t, deviceFreePlatformInfo(null_mut(), info)), 0);
    assert_eq!(call!(t, deviceFreePlatformInfo(null_mut(), null())), 1004);
    assert_eq!(call!(t, deviceGetInfrastructure(null())), 1000);

    let config = QnnContext_Config_t {
        option: QNN_CONTEXT_CONFIG_OPTION_CUSTOM,
        anon0: QnnContext_Config_t_anon0 { customConfig: custom },
    };
    let mut list = [&raw const config, null()];
    let mut context = null_mut();
    assert_eq!(call!(t, contextCreate(client.backend, device, list.as_mut_ptr(), &raw mut context)), 0);
    let config = QnnGraph_Config_t {
        option: QNN_GRAPH_CONFIG_OPTION_CUSTOM,
        anon0: QnnGraph_Config_t_anon0 { customConfig: custom },
    };
    let mut list = [&raw const config, null()];
    let mut graph = null_mut();
    assert_eq!(call!(t, graphCreate(context, c"g".as_ptr(), list.as_mut_ptr(), &raw mut graph)), 0);
    let config = QnnGraph_Config_t { option: 1234, ..config };
    let mut list = [&raw const config, null()];
    assert_eq!(call!(t, graphSetConfig(graph, list.as_mut_ptr())), 6000);
    assert!(client.message(6000).contains("config option 1234: expected 0 or 3 to 6"));
    client.free(context);
    assert_eq!(call!(t, deviceFree(device)), 0);
    assert_eq!(call!(t, deviceFree(device)), 14000);
    assert_eq!(call!(t, contextCreate(client.backend, device, null_mut(), &raw mut context)), 14000);
}

#[test]
fn registered_memory_is_used_in_place() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let x = small.sample();

    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&floats(&x)).unwrap();
    let mut dims = [2u32, 4];
    let shape = Qnn_MemShape_t { numDim: 2, dimSize: dims.as_mut_ptr(), shapeConfig: null() };
    let ion = |fd| Qnn_MemDescriptor_t {
        memShape: shape,
        dataType: QNN_DATATYPE_FLOAT_32,
        memType: QNN_MEM_TYPE_ION,
        anon0: Qnn_MemDescriptor_t_anon0 { ionInfo: Qnn_MemIonInfo_t { fd } },
    };
    let mut y = [0u8; 24];
    let mut out_dims = [6u32];
    let dma = Qnn_MemDescriptor_t {
        memShape: Qnn_MemShape_t { numDim: 1, dimSize: out_dims.as_mut_ptr(), shapeConfig: null() },
        dataType: QNN_DATATYPE_FLOAT_32,
        memType: QNN_MEM_TYPE_DMA_BUF,
        anon0: Qnn_MemDescriptor_t_anon0 { dmaBufInfo: Qnn_MemDmaBufInfo_t { fd: -1, data: y.as_mut_ptr().cast() } },
    };
    let list = [ion(file.as_raw_fd()), dma];
    let mut handles = [null_mut(); 2];
    let code = call!(t, memRegister(context, list.as_ptr(), 2, handles.as_mut_ptr()));
    assert_eq!(code, 0, "{}", client.message(code));
    let by_handle = |tensor: &Tensor, handle| {
        let mut raw = tensor.raw;
        raw.anon0.v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
        raw.anon0.v1.anon0.memHandle = handle;
        raw
    };
    let mut outputs = [by_handle(&small.y, handles[1])];
    let code = client.run(small.graph, &[by_handle(&small.x, handles[0])], &mut outputs);
    assert_eq!(code, 0, "{}", client.message(code));
    expect(&as_floats(&y), &reference(&x));

    assert_eq!(call!(t, memDeRegister(handles.as_ptr(), 1)), 0);
    assert_eq!(call!(t, memDeRegister(handles.as_ptr(), 1)), 8001);
    let mut handle = null_mut();
    assert_eq!(call!(t, memRegister(context, [ion(-1)].as_ptr(), 1, &raw mut handle)), 8003);
    file.set_len(31).unwrap();
    assert_eq!(call!(t, memRegister(context, [ion(file.as_raw_fd())].as_ptr(), 1, &raw mut handle)), 8003, "too short");
    // Not the custom type: its descriptor is a pointer, and this one holds a file's number.
    let unknown = Qnn_MemDescriptor_t { memType: 99, ..dma };
    assert_eq!(call!(t, memRegister(context, &raw const unknown, 1, &raw mut handle)), 8005);
    // Memory goes with its context.
    client.free(context);
    assert_eq!(call!(t, memDeRegister(handles[1..].as_ptr(), 1)), 8001);
}

#[test]
fn a_context_is_not_freed_under_a_profile_that_is_gone() {
    let client = Client::new();
    let t = client.table;
    let mut profile = null_mut();
    assert_eq!(call!(t, profileCreate(client.backend, QNN_PROFILE_LEVEL_BASIC, &raw mut profile)), 0);
    assert_eq!(call!(t, profileFree(profile)), 0);
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let code = call!(t, contextFree(context, profile));
    assert!(client.message(code).contains("expected a live Profile handle"), "{code}: {}", client.message(code));
    small.check(&client, small.graph);
    client.free(context);
    let mut out = vec![0; 24];
    let bytes = floats(&small.sample());
    let code = client.run(small.graph, &[small.x.reading(&bytes)], &mut [small.y.writing(&mut out)]);
    assert_ne!(code, 0, "its graphs went with it");
}

/// How often this process has a file mapped.
#[cfg(target_os = "linux")]
fn mappings(file: &std::fs::File) -> usize {
    use std::os::unix::fs::MetadataExt;
    let inode = file.metadata().unwrap().ino().to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count()
}

#[test]
#[cfg(target_os = "linux")]
fn a_failed_execution_lets_go_of_registered_memory() {
    let client = Client::new();
    let t = client.table;
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 2);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&floats(&small.sample())).unwrap();
    let mut dims = [2u32, 4];
    let memory = Qnn_MemDescriptor_t {
        memShape: Qnn_MemShape_t { numDim: 2, dimSize: dims.as_mut_ptr(), shapeConfig: null() },
        dataType: QNN_DATATYPE_FLOAT_32,
        memType: QNN_MEM_TYPE_ION,
        anon0: Qnn_MemDescriptor_t_anon0 { ionInfo: Qnn_MemIonInfo_t { fd: file.as_raw_fd() } },
    };
    let mut handle = null_mut();
    assert_eq!(call!(t, memRegister(context, &raw const memory, 1, &raw mut handle)), 0);
    assert_eq!(mappings(&file), 1);
    let mut x = small.x.raw;
    x.anon0.v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
    x.anon0.v1.anon0.memHandle = handle;
    let mut too_short = vec![0; 4];
    assert_ne!(client.run(small.graph, &[x], &mut [small.y.writing(&mut too_short)]), 0);
    assert_eq!(call!(t, memDeRegister(&raw const handle, 1)), 0);
    assert_eq!(mappings(&file), 0, "it is not mapped any more");
    client.free(context);
}

//! The fake's core interface.

use core::ffi::{CStr, c_char, c_void};
use core::fmt::Write;

use qnn_sys::*;

use super::{MESSAGE, new_handle, number, record, with};

/// Contexts serialise to this.
pub(crate) const BINARY: &[u8] = b"FAKE3 and some weights";

/// Every slot the tests need; the rest returns "not supported".
pub(super) fn table() -> QnnInterfaceTable {
    QnnInterfaceTable {
        propertyHasCapability: Some(has_capability),
        backendCreate: Some(backend_create),
        backendFree: Some(backend_free),
        backendGetBuildId: Some(build_id),
        contextCreate: Some(context_create),
        contextCreateFromBinary: Some(context_from_binary),
        contextFree: Some(context_free),
        contextApplyBinarySection: Some(apply_section),
        contextGetBinarySize: Some(binary_size),
        contextGetBinary: Some(binary),
        graphCreate: Some(graph_create),
        tensorCreateGraphTensor: Some(tensor_create),
        graphAddNode: Some(add_node),
        graphFinalize: Some(finalize),
        graphRetrieve: Some(retrieve),
        graphExecute: Some(execute),
        logCreate: Some(log_create),
        logFree: Some(log_free),
        deviceCreate: Some(device_create),
        deviceFree: Some(device_free),
        errorGetMessage: Some(message),
        memRegister: Some(mem_register),
        memDeRegister: Some(mem_de_register),
        profileCreate: None,
        ..stub::interface()
    }
}

/// # Safety
/// A C string.
unsafe fn text(name: *const c_char) -> String {
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// # Safety
/// An out pointer.
unsafe fn give(code: u64, out: *mut *mut c_void) -> u64 {
    if code == 0 {
        // SAFETY: as the caller says.
        unsafe { *out = new_handle() };
    }
    code
}

unsafe extern "C" fn has_capability(key: u32) -> u64 {
    if with(|state| state.capabilities.contains(&key)) { 0 } else { 1000 }
}

unsafe extern "C" fn message(_code: u64, out: *mut *const c_char) -> u64 {
    assert_eq!(MESSAGE, "the fake was set to fail");
    // SAFETY: an out pointer.
    unsafe { *out = c"the fake was set to fail".as_ptr() };
    0
}

unsafe extern "C" fn build_id(out: *mut *const c_char) -> u64 {
    // SAFETY: an out pointer.
    unsafe { *out = c"v9.9".as_ptr() };
    0
}

unsafe extern "C" fn backend_create(
    log: *mut c_void,
    _c: *mut *const QnnBackend_Config_t,
    out: *mut *mut c_void,
) -> u64 {
    // SAFETY: QNN's contract for this slot.
    unsafe { give(record("backendCreate", || format!("log {}", number(log))), out) }
}

unsafe extern "C" fn backend_free(backend: *mut c_void) -> u64 {
    record("backendFree", || number(backend).to_string())
}

unsafe extern "C" fn log_create(_callback: QnnLog_Callback_t, level: QnnLog_Level_t, out: *mut *mut c_void) -> u64 {
    // SAFETY: QNN's contract for this slot.
    unsafe { give(record("logCreate", || level.to_string()), out) }
}

unsafe extern "C" fn log_free(log: *mut c_void) -> u64 {
    record("logFree", || number(log).to_string())
}

unsafe extern "C" fn device_create(
    _log: *mut c_void,
    config: *mut *const QnnDevice_Config_t,
    out: *mut *mut c_void,
) -> u64 {
    let what = || {
        if config.is_null() {
            return "default".to_owned();
        }
        // SAFETY: a null-terminated list of custom configs of sixteen bytes, as this crate sends them.
        unsafe {
            assert!((*config.add(1)).is_null());
            format!("{:?}", *(**config).anon0.customConfig.cast::<[u32; 4]>())
        }
    };
    // SAFETY: QNN's contract for this slot.
    unsafe { give(record("deviceCreate", what), out) }
}

unsafe extern "C" fn device_free(device: *mut c_void) -> u64 {
    record("deviceFree", || number(device).to_string())
}

/// # Safety
/// Null, or a null-terminated list.
unsafe fn context_options(mut config: *mut *const QnnContext_Config_t) -> String {
    let mut options = Vec::new();
    // SAFETY: as the caller says.
    while let Some(one) = (!config.is_null()).then(|| unsafe { (*config).as_ref() }).flatten() {
        options.push(one.option);
        config = config.wrapping_add(1);
    }
    format!("options {options:?}")
}

unsafe extern "C" fn context_create(
    _backend: *mut c_void,
    _device: *mut c_void,
    config: *mut *const QnnContext_Config_t,
    out: *mut *mut c_void,
) -> u64 {
    // SAFETY: QNN's contract for this slot.
    unsafe { give(record("contextCreate", || context_options(config)), out) }
}

unsafe extern "C" fn context_from_binary(
    _backend: *mut c_void,
    _device: *mut c_void,
    config: *mut *const QnnContext_Config_t,
    _bytes: *const c_void,
    n_bytes: u64,
    out: *mut *mut c_void,
    _profile: *mut c_void,
) -> u64 {
    // SAFETY: QNN's contract for this slot.
    unsafe { give(record("contextCreateFromBinary", || format!("{n_bytes} bytes, {}", context_options(config))), out) }
}

unsafe extern "C" fn context_free(context: *mut c_void, _profile: *mut c_void) -> u64 {
    record("contextFree", || number(context).to_string())
}

unsafe extern "C" fn binary_size(_context: *mut c_void, out: *mut u64) -> u64 {
    // SAFETY: an out pointer. The bound is larger than what is written, as in Qualcomm's libraries.
    unsafe { *out = BINARY.len() as u64 + 100 };
    record("contextGetBinarySize", String::new)
}

unsafe extern "C" fn binary(_context: *mut c_void, bytes: *mut c_void, n_bytes: u64, written: *mut u64) -> u64 {
    assert!(n_bytes >= BINARY.len() as u64);
    // SAFETY: that many writable bytes, and an out pointer.
    unsafe {
        bytes.cast::<u8>().copy_from_nonoverlapping(BINARY.as_ptr(), BINARY.len());
        *written = BINARY.len() as u64;
    }
    record("contextGetBinary", String::new)
}

unsafe extern "C" fn graph_create(
    _context: *mut c_void,
    name: *const c_char,
    _config: *mut *const QnnGraph_Config_t,
    out: *mut *mut c_void,
) -> u64 {
    // SAFETY: QNN's contract for this slot.
    unsafe { give(record("graphCreate", || text(name)), out) }
}

unsafe extern "C" fn tensor_create(graph: *mut c_void, tensor: *mut Qnn_Tensor_t) -> u64 {
    // SAFETY: QNN's contract for this slot; version 1 is what this crate sends.
    let t = unsafe { &mut (*tensor).anon0.v1 };
    t.id = with(|state| {
        state.next_tensor += 1;
        state.next_tensor
    });
    let (id, kind) = (t.id, t.r#type);
    record("tensorCreateGraphTensor", || {
        // SAFETY: a C string, `rank` extents, and a client buffer or zeros.
        let (name, dims, size) = unsafe {
            (text(t.name), core::slice::from_raw_parts(t.dimensions, t.rank as usize), t.anon0.clientBuf.dataSize)
        };
        format!("#{id} g{} `{name}` type {kind} {dims:?} {size} bytes", number(graph))
    })
}

unsafe extern "C" fn add_node(_graph: *mut c_void, config: Qnn_OpConfig_t) -> u64 {
    // SAFETY: QNN's contract for this slot; version 1 is what this crate sends.
    let c = unsafe { config.anon0.v1 };
    record("graphAddNode", || {
        let mut out = String::new();
        // SAFETY: C strings and arrays of the stated lengths.
        unsafe {
            let _ = write!(out, "`{}` {}::{}", text(c.name), text(c.packageName), text(c.typeName));
            for p in core::slice::from_raw_parts(c.params, c.numOfParams as usize) {
                let value = match p.paramType {
                    QNN_PARAMTYPE_SCALAR => {
                        let Qnn_Scalar_t { dataType: ty, anon0: value } = p.anon0.scalarParam;
                        match ty {
                            QNN_DATATYPE_STRING => format!("{ty:#x}:`{}`", text(value.stringValue)),
                            QNN_DATATYPE_FLOAT_64 | QNN_DATATYPE_INT_64 | QNN_DATATYPE_UINT_64 => {
                                format!("{ty:#x}:{:#x}", value.uint64Value)
                            }
                            _ => format!("{ty:#x}:{:#x}", value.uint32Value),
                        }
                    }
                    _ => {
                        let t = p.anon0.tensorParam.anon0.v1;
                        let n = t.anon0.clientBuf.dataSize as usize / 4;
                        let data: Vec<u32> =
                            (0..n).map(|i| t.anon0.clientBuf.data.cast::<u32>().add(i).read_unaligned()).collect();
                        format!("#{}{data:?}", t.id)
                    }
                };
                let _ = write!(out, " {}={value}", text(p.name));
            }
            for (arrow, first, n) in [("<-", c.inputTensors, c.numOfInputs), ("->", c.outputTensors, c.numOfOutputs)] {
                let ids: Vec<_> =
                    core::slice::from_raw_parts(first, n as usize).iter().map(|t| t.anon0.v1.id).collect();
                let _ = write!(out, " {arrow} {ids:?}");
            }
        }
        out
    })
}

unsafe extern "C" fn finalize(graph: *mut c_void, _profile: *mut c_void, _signal: *mut c_void) -> u64 {
    record("graphFinalize", || number(graph).to_string())
}

unsafe extern "C" fn retrieve(_context: *mut c_void, name: *const c_char, out: *mut *mut c_void) -> u64 {
    // SAFETY: QNN's contract for this slot.
    unsafe { give(record("graphRetrieve", || text(name)), out) }
}

unsafe extern "C" fn execute(
    _graph: *mut c_void,
    inputs: *const Qnn_Tensor_t,
    n_inputs: u32,
    outputs: *mut Qnn_Tensor_t,
    n_outputs: u32,
    _profile: *mut c_void,
    _signal: *mut c_void,
) -> u64 {
    // SAFETY: QNN's contract for this slot: arrays of those lengths, every tensor with a buffer of its size.
    unsafe {
        let inputs = core::slice::from_raw_parts(inputs, n_inputs as usize);
        let outputs = core::slice::from_raw_parts(outputs, n_outputs as usize);
        let first = inputs[0].anon0.v1.anon0.clientBuf;
        for output in outputs {
            let out = output.anon0.v1.anon0.clientBuf;
            for i in 0..out.dataSize as usize {
                let byte = first.data.cast::<u8>().add(i % first.dataSize as usize).read();
                out.data.cast::<u8>().add(i).write(byte.wrapping_add(1));
            }
        }
    }
    record("graphExecute", || format!("{n_inputs} in, {n_outputs} out"))
}

unsafe extern "C" fn apply_section(
    _context: *mut c_void,
    _graph: *mut c_void,
    section: u32,
    buffer: *const QnnContext_Buffer_t,
    _profile: *mut c_void,
    _signal: *mut c_void,
) -> u64 {
    // SAFETY: QNN's contract for this slot: a raw buffer of version 1 with that many bytes.
    let (version, bytes) = unsafe {
        let buffer = &*buffer;
        let raw = buffer.anon0.v1.anon0.binaryBuf;
        (buffer.version, core::slice::from_raw_parts(raw.data.cast::<u8>(), raw.dataSize as usize))
    };
    record("contextApplyBinarySection", || {
        format!("section {section}, buffer {version}: {}", String::from_utf8_lossy(bytes))
    })
}

unsafe extern "C" fn mem_register(
    _context: *mut c_void,
    descriptor: *const Qnn_MemDescriptor_t,
    n: u32,
    out: *mut *mut c_void,
) -> u64 {
    // SAFETY: QNN's contract for this slot; ION is what this crate sends.
    let fd = unsafe { (*descriptor).anon0.ionInfo.fd };
    // SAFETY: as above.
    unsafe { give(record("memRegister", || format!("{n} fd {fd}")), out) }
}

unsafe extern "C" fn mem_de_register(handles: *const *mut c_void, n: u32) -> u64 {
    // SAFETY: `n` handles.
    record("memDeRegister", || format!("{n} {}", number(unsafe { *handles })))
}

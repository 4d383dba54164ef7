//! Contexts as bytes: written, validated, loaded.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use qnn_sys as q;
use qnn_sys::{
    Qnn_BackendHandle_t, Qnn_ContextBinaryCallback_t, Qnn_ContextBinarySize_t, Qnn_ContextHandle_t, Qnn_DeviceHandle_t,
    Qnn_ErrorHandle_t, Qnn_ProfileHandle_t, Qnn_SignalHandle_t, QnnContext_Config_t, QnnContext_Params_t,
};

use crate::bytes::Bytes;
use crate::container::{self, FormatError, Image, Verify};
use crate::error::{Component, Error};
use crate::ir::Node;
use crate::pages;
use crate::validate;

use super::context::{self, Options, check_device};
use super::guard::{guard, set_error_log};
use super::log::Level;
use super::objects::{BACKENDS, Backend, CONTEXTS, Context, Entry, Graph, State, find};
use super::packed_forms;
use super::profile::timed;
use super::{raw, trace};

const CONTEXT: Component = Component::Context;

/// The binary's layout, made when first needed.
fn plan(context: &Context) -> Result<Arc<container::Plan>, Error> {
    let mut kept = context.core.binary.lock();
    if let Some(plan) = &*kept {
        return Ok(plan.clone());
    }
    let mut graphs = Vec::new();
    for entry in context.graphs.lock().iter() {
        graphs.push(match &*entry.graph.state.read() {
            State::Ready(runner) => (*runner.ir).clone(),
            State::Loaded(ir, _) => (**ir).clone(),
            State::Composing(_) | State::Closed => {
                return Err(Error::ContextNotFinalized { graph: entry.graph.name.clone() });
            }
        });
    }
    let shared = context.core.options.lock().shared.clone();
    let packed = packed_forms::collect(&graphs, &shared);
    let watch = *context.core.watch.lock();
    let mut go_on = |done, total| watch.is_none_or(|watch| watch.tell(done, total));
    let plan = container::plan_watched(&Image { graphs, packed }, &mut go_on).map_err(Error::Binary)?;
    let plan = Arc::new(plan);
    *kept = Some(plan.clone());
    Ok(plan)
}

pub(super) unsafe extern "C" fn get_size(
    context: Qnn_ContextHandle_t,
    out: *mut Qnn_ContextBinarySize_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnContext_getBinarySize", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        let size = plan(&context)?.total_bytes() as u64;
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, size, CONTEXT, "binaryBufferSize") }
    })
}

pub(super) unsafe extern "C" fn get(
    context: Qnn_ContextHandle_t,
    buffer: *mut c_void,
    size: Qnn_ContextBinarySize_t,
    written: *mut Qnn_ContextBinarySize_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnContext_getBinary", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        let argument = |what: String| Error::Argument { component: CONTEXT, what };
        let plan = plan(&context)?;
        let needed = plan.total_bytes();
        if buffer.is_null() {
            return Err(Error::Null { component: CONTEXT, what: "binaryBuffer" });
        }
        if written.is_null() {
            return Err(Error::Null { component: CONTEXT, what: "writtenBufferSize" });
        }
        if size < needed as u64 {
            return Err(argument(format!("expected a buffer of {needed} bytes, found {size}")));
        }
        let to = buffer.addr()..buffer.addr().saturating_add(needed);
        let source = context.core.binary_at.lock().clone();
        if source.is_some_and(|from| from.start < to.end && to.start < from.end) {
            return Err(argument("expected a buffer off the binary that the context was made from".to_owned()));
        }
        // SAFETY: QNN's contract: the buffer is the client's and has `size` bytes, of which `needed` are taken; it does
        // not overlap what is read, as just checked (all other bytes are ours).
        let to = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), needed) };
        let is_mapped = context.core.weights.lock().has_scratch();
        let watch = *context.core.watch.lock();
        let mut stopped = false;
        let done = |part: &[u8], end: usize| {
            if is_mapped {
                // SAFETY: who gives a folder for weights takes binaries into shared mappings of files (`HostScratchConfig`).
                unsafe { pages::forget(part) };
            }
            stopped = watch.is_some_and(|watch| !watch.tell(end as u64, needed as u64));
            !stopped
        };
        let n = plan.write_in_parts(to, done);
        if stopped {
            return Err(Error::Binary(FormatError::Stopped));
        }
        let n = n.ok_or_else(|| argument("the binary outgrew its buffer".to_owned()))?;
        // SAFETY: QNN's contract: valid for writing.
        unsafe { raw::write(written, n as u64, CONTEXT, "writtenBufferSize") }
    })
}

/// The client's binary as bytes, copied unless it is persistent.
///
/// # Safety
/// `size` bytes must be readable, and if `persistent` stay unchanged until the context is freed.
unsafe fn bytes(buffer: *const c_void, size: u64, persistent: bool) -> Result<Bytes, Error> {
    let size = usize::try_from(size)
        .map_err(|_| Error::Argument { component: CONTEXT, what: format!("expected a possible size, found {size}") })?;
    // SAFETY: the caller's promise.
    let given = unsafe { raw::slice(buffer.cast::<u8>(), size, CONTEXT, "binaryBuffer") }?;
    Ok(if persistent {
        // SAFETY: the caller's promise.
        unsafe { Bytes::from_client(given.as_ptr(), given.len()) }
    } else {
        Bytes::copy_from(given)
    })
}

/// Makes a context of a binary.
///
/// # Safety
/// As for [`bytes`].
unsafe fn load(backend: Arc<Backend>, options: &Options, buffer: *const c_void, size: u64) -> Result<Context, Error> {
    if buffer.is_null() {
        return Err(Error::Null { component: CONTEXT, what: "binaryBuffer" });
    }
    // Reading the head first spares the copy of something foreign.
    // SAFETY: the caller's promise.
    let head = unsafe { bytes(buffer, size, true) }?;
    container::summary(&head).map_err(Error::Binary)?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(buffer, size, options.persistent) }?;
    let verify = if options.persistent { Verify::Small } else { Verify::All };
    let image = container::decode(&bytes, verify).map_err(Error::Binary)?;
    if let Some(wanted) = &options.enabled
        && let Some(name) = wanted.iter().find(|name| !image.graphs.iter().any(|g| g.name == **name))
    {
        let known = image.graphs.iter().map(|g| g.name.clone()).collect();
        return Err(Error::NoSuchGraph { name: name.clone(), known });
    }
    let packages = backend.packages.lock().clone();
    for graph in image.graphs.iter().filter(|g| options.enabled.as_ref().is_none_or(|wanted| wanted.contains(&g.name)))
    {
        // What only a package can check, and what a package takes over from the host.
        let of_package = |node: &&Node| validate::is_foreign(node) || packages.find(&node.op).is_some();
        for node in graph.nodes.iter().filter(of_package) {
            let refused = |source| Error::Binary(FormatError::Graph { graph: graph.name.clone(), source });
            validate::check_op(graph, node, &packages).map_err(refused)?;
        }
    }
    let context = Context::new(backend);
    context.core.queue.limit(options.queue_depth);
    if options.persistent {
        context.core.options.lock().lets_weights_go = options.mapped;
        *context.core.binary_at.lock() = Some(buffer.addr()..buffer.addr() + bytes.len());
    }
    packed_forms::provide(&image, &context.core.options.lock().shared);
    let mut graphs = context.graphs.lock();
    for ir in image.graphs {
        let enabled = options.enabled.as_ref().is_none_or(|wanted| wanted.contains(&ir.name));
        let name = ir.name.clone();
        let asked = if enabled { packages.count() } else { 0 };
        let graph = Arc::new(Graph::new(context.core.clone(), &name, State::Loaded(Arc::new(ir), asked)));
        graphs.push(Entry { graph, handle: None, enabled });
    }
    drop(graphs);
    if let Some(log) = context.core.backend.log.as_ref().filter(|log| log.enabled(Level::Info)) {
        let how = if options.persistent { "in place" } else { "copied" };
        log.write(
            Level::Info,
            &format!("context of {} bytes ({how}), {} graphs", bytes.len(), context.graphs.lock().len()),
        );
    }
    Ok(context)
}

fn no_signal(signal: Qnn_SignalHandle_t) -> Result<(), Error> {
    if signal.is_null() {
        return Ok(());
    }
    Err(Error::Unsupported { component: CONTEXT, what: "signals".to_owned() })
}

#[expect(clippy::too_many_arguments, reason = "QNN's argument list")]
fn create_from(
    call: &'static str,
    backend: Qnn_BackendHandle_t,
    device: Qnn_DeviceHandle_t,
    config: *mut *const QnnContext_Config_t,
    buffer: *const c_void,
    size: u64,
    out: *mut Qnn_ContextHandle_t,
    profile: Qnn_ProfileHandle_t,
    signal: Qnn_SignalHandle_t,
) -> Qnn_ErrorHandle_t {
    guard(call, || {
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        check_device(device)?;
        no_signal(signal)?;
        if out.is_null() {
            return Err(Error::Null { component: CONTEXT, what: "context" });
        }
        // SAFETY: QNN's contract for the list.
        let options = unsafe { context::read(config.cast_const()) }?;
        trace::note(|| format!("{size} bytes, profile {}, signal {}", !profile.is_null(), !signal.is_null()));
        timed(profile, q::QNN_PROFILE_EVENTTYPE_BACKEND, "context load", |_| {
            // SAFETY: QNN's contract for the buffer, and the meaning of the persistent-binary config.
            let context = unsafe { load(backend, &options, buffer, size) }?;
            let handle = CONTEXTS.add(Arc::new(context));
            // SAFETY: QNN's contract: valid for writing.
            unsafe { raw::write(out, handle, CONTEXT, "context") }.inspect_err(|_| {
                CONTEXTS.remove(handle);
            })
        })
    })
}

pub(super) unsafe extern "C" fn create(
    backend: Qnn_BackendHandle_t,
    device: Qnn_DeviceHandle_t,
    config: *mut *const QnnContext_Config_t,
    buffer: *const c_void,
    size: Qnn_ContextBinarySize_t,
    out: *mut Qnn_ContextHandle_t,
    profile: Qnn_ProfileHandle_t,
) -> Qnn_ErrorHandle_t {
    let none = std::ptr::null_mut();
    create_from("QnnContext_createFromBinary", backend, device, config, buffer, size, out, profile, none)
}

pub(super) unsafe extern "C" fn create_with_signal(
    backend: Qnn_BackendHandle_t,
    device: Qnn_DeviceHandle_t,
    config: *mut *const QnnContext_Config_t,
    buffer: *const c_void,
    size: Qnn_ContextBinarySize_t,
    out: *mut Qnn_ContextHandle_t,
    profile: Qnn_ProfileHandle_t,
    signal: Qnn_SignalHandle_t,
) -> Qnn_ErrorHandle_t {
    create_from("QnnContext_createFromBinaryWithSignal", backend, device, config, buffer, size, out, profile, signal)
}

/// Without a callback this is the plain form; with one it is not supported, as nothing here is streamed.
pub(super) unsafe extern "C" fn create_with_callback(
    backend: Qnn_BackendHandle_t,
    device: Qnn_DeviceHandle_t,
    config: *mut *const QnnContext_Config_t,
    callback: *const Qnn_ContextBinaryCallback_t,
    buffer: *const c_void,
    size: Qnn_ContextBinarySize_t,
    out: *mut Qnn_ContextHandle_t,
    profile: Qnn_ProfileHandle_t,
    signal: Qnn_SignalHandle_t,
) -> Qnn_ErrorHandle_t {
    const CALL: &str = "QnnContext_createFromBinaryWithCallback";
    if !callback.is_null() {
        return guard(CALL, || {
            find(&BACKENDS, backend).map(|b| set_error_log(b.log.as_ref()))?;
            Err(Error::Unsupported { component: CONTEXT, what: "binaries handed over by callback".to_owned() })
        });
    }
    create_from(CALL, backend, device, config, buffer, size, out, profile, signal)
}

/// Loads several binaries, one after the other, before it returns; QNN allows that a notification comes early.
pub(super) unsafe extern "C" fn create_list(
    backend: Qnn_BackendHandle_t,
    device: Qnn_DeviceHandle_t,
    params: *mut *const QnnContext_Params_t,
    config: *mut *const QnnContext_Config_t,
    signal: Qnn_SignalHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnContext_createFromBinaryListAsync", || {
        set_error_log(find(&BACKENDS, backend)?.log.as_ref());
        check_device(device)?;
        no_signal(signal)?;
        // SAFETY: QNN's contract for the lists.
        unsafe { context::read(config.cast_const()) }?;
        // SAFETY: as above.
        let list = unsafe { raw::list(params.cast_const(), CONTEXT, "contextParams") }?;
        if let Some(odd) = list.iter().find(|p| p.version != q::QNN_CONTEXT_PARAMS_VERSION_1) {
            let what = format!("expected context params version 1, found {}", odd.version);
            return Err(Error::Argument { component: CONTEXT, what });
        }
        for entry in list {
            // SAFETY: the version decides which member it is, and it is plain data.
            let p = unsafe { &entry.anon0.v1 };
            let mut handle: Qnn_ContextHandle_t = std::ptr::null_mut();
            let status = create_from(
                "QnnContext_createFromBinaryListAsync",
                backend,
                device,
                p.config,
                p.binaryBuffer,
                p.binaryBufferSize,
                &raw mut handle,
                p.profile,
                std::ptr::null_mut(),
            );
            let Some(notify) = p.notifyFunc else { continue };
            if let Ok(context) = find(&CONTEXTS, handle) {
                let names: Vec<String> = context.graphs.lock().iter().map(|e| e.graph.name.clone()).collect();
                for name in names {
                    let graph = super::graph::retrieve_handle(&context, &name).unwrap_or(std::ptr::null_mut());
                    let text = CString::new(name).unwrap_or_default();
                    // SAFETY: the client's callback, called as QNN requires; the name outlives the call.
                    unsafe {
                        notify(
                            handle,
                            graph,
                            text.as_ptr(),
                            q::QNN_CONTEXT_NOTIFY_TYPE_GRAPH_INIT,
                            p.notifyParam,
                            status,
                        )
                    };
                }
            }
            let (none, kind) = (std::ptr::null_mut(), q::QNN_CONTEXT_NOTIFY_TYPE_CONTEXT_INIT);
            // SAFETY: as above.
            unsafe { notify(handle, none, std::ptr::null(), kind, p.notifyParam, status) };
        }
        Ok(())
    })
}

/// Checks a binary as thoroughly as we can: every checksum, every graph.
pub(super) unsafe extern "C" fn validate(
    backend: Qnn_BackendHandle_t,
    device: Qnn_DeviceHandle_t,
    config: *mut *const QnnContext_Config_t,
    buffer: *const c_void,
    size: Qnn_ContextBinarySize_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnContext_validateBinary", || {
        set_error_log(find(&BACKENDS, backend)?.log.as_ref());
        check_device(device)?;
        // SAFETY: QNN's contract for the list.
        unsafe { context::read(config.cast_const()) }?;
        if buffer.is_null() {
            return Err(Error::Null { component: CONTEXT, what: "binaryBuffer" });
        }
        // SAFETY: QNN's contract: readable during the call, and nothing is kept beyond it.
        let bytes = unsafe { bytes(buffer, size, true) }?;
        container::decode(&bytes, Verify::All).map(drop).map_err(Error::Binary)
    })
}

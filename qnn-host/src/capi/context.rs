//! Contexts: made, configured, freed.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qnn_sys as q;
use qnn_sys::host::{
    HOST_CONTEXT_OPTION_MAPPED, HOST_CONTEXT_OPTION_SCRATCH, HOST_CONTEXT_OPTION_WATCH, HostScratchConfig,
};
use qnn_sys::{
    Qnn_BackendHandle_t, Qnn_ContextHandle_t, Qnn_DeviceHandle_t, Qnn_ErrorHandle_t, Qnn_ProfileHandle_t,
    QnnContext_Config_t,
};

use crate::error::{Component, Error};

use super::guard::{guard, set_error_log};
use super::objects::{BACKENDS, CONTEXTS, Context, DEVICES, GRAPHS, MEMS, State, find, take};
use super::profile::{timed, timed_by};
use super::watch::Watch;
use super::{profile as profiles, raw, trace};

const CONTEXT: Component = Component::Context;

/// What a context's config list sets.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// The binary stays where it is until the context is freed, so it need not be copied.
    pub(super) persistent: bool,
    /// Only these graphs may be retrieved; `None` means all.
    pub(super) enabled: Option<Vec<String>>,
    /// Most executions that may wait at a time; 0 means as many as like.
    pub(super) queue_depth: usize,
    /// Where weights are kept in a file while graphs are composed.
    pub(super) scratch: Option<PathBuf>,
    /// The binary is a mapped file, of which nothing needs to stay in memory.
    pub(super) mapped: bool,
    /// Who watches the binary being written from now on, if that changes.
    pub(super) watch: Option<Option<Watch>>,
}

/// Reads a config list. Hints that mean nothing here, and options of other backends, are passed over.
///
/// # Safety
/// A list as QNN requires.
pub(super) unsafe fn read(config: *const *const QnnContext_Config_t) -> Result<Options, Error> {
    let mut options = Options::default();
    // SAFETY: the caller's promise.
    for entry in unsafe { raw::list(config, CONTEXT, "config") }? {
        let custom = entry.option == q::QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
        // SAFETY: plain data, and the option decides which member it is; what it leads to is the client's promise.
        unsafe { trace::note_config(entry.option, custom.then(|| entry.anon0.customConfig.cast_const())) };
        match entry.option {
            q::QNN_CONTEXT_CONFIG_OPTION_CUSTOM => {
                // SAFETY: plain data, and the option decides which member it is; what it leads to is the client's promise.
                match unsafe { number(entry.anon0.customConfig) } {
                    Some(HOST_CONTEXT_OPTION_MAPPED) => options.mapped = true,
                    Some(HOST_CONTEXT_OPTION_SCRATCH) => {
                        // SAFETY: as above, of the struct with that number.
                        options.scratch = Some(unsafe { scratch(entry.anon0.customConfig) }?);
                    }
                    Some(HOST_CONTEXT_OPTION_WATCH) => {
                        // SAFETY: as above.
                        options.watch = Some(unsafe { Watch::read(entry.anon0.customConfig) }?);
                    }
                    _ => {}
                }
            }
            q::QNN_CONTEXT_CONFIG_OPTION_PRIORITY
            | q::QNN_CONTEXT_CONFIG_OPTION_ERROR_REPORTING
            | q::QNN_CONTEXT_CONFIG_OPTION_OEM_STRING
            | q::QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT
            | q::QNN_CONTEXT_CONFIG_BINARY_COMPATIBILITY
            | q::QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT
            | q::QNN_CONTEXT_CONFIG_GRAPH_RETENTION_ORDER => {}
            q::QNN_CONTEXT_CONFIG_ASYNC_EXECUTION_QUEUE_DEPTH => {
                // SAFETY: plain data, and the option decides which member it is.
                let depth = unsafe { entry.anon0.asyncExeQueueDepth };
                // SAFETY: the only member there is.
                options.queue_depth = unsafe { depth.anon0.depth } as usize;
            }
            q::QNN_CONTEXT_CONFIG_PERSISTENT_BINARY => {
                // SAFETY: as above.
                options.persistent = unsafe { entry.anon0.isPersistentBinary } != 0;
            }
            q::QNN_CONTEXT_CONFIG_ENABLE_GRAPHS => {
                // SAFETY: as above.
                let names = unsafe { entry.anon0.enableGraphs };
                // SAFETY: the caller's promise: a null-terminated list of strings.
                let names = unsafe { raw::pointers(names.cast_const(), CONTEXT, "enableGraphs") }?;
                let names = names.into_iter().map(|name| {
                    // SAFETY: as above, for each string.
                    unsafe { raw::text(name, CONTEXT, "enableGraphs[]") }.map(str::to_owned)
                });
                options.enabled = Some(names.collect::<Result<_, _>>()?);
            }
            option => return Err(Error::Config { component: CONTEXT, option, what: "expected 0 to 10".to_owned() }),
        }
    }
    Ok(options)
}

/// The number of a custom config.
///
/// # Safety
/// `custom` must be null, misaligned or lead to a custom config, all of which begin with their number.
unsafe fn number(custom: *const c_void) -> Option<u32> {
    let number = custom.cast::<u32>();
    // SAFETY: not null, aligned; the rest is the caller's promise.
    (!number.is_null() && number.is_aligned()).then(|| unsafe { *number })
}

/// The folder of a [`HostScratchConfig`].
///
/// # Safety
/// `custom` must lead to one, if it is aligned as one.
unsafe fn scratch(custom: *const c_void) -> Result<PathBuf, Error> {
    let config = custom.cast::<HostScratchConfig>();
    if !config.is_aligned() {
        return Err(Error::Argument {
            component: CONTEXT,
            what: "expected an aligned config, found another".to_owned(),
        });
    }
    // SAFETY: aligned; the rest is the caller's promise.
    let folder = unsafe { raw::text((*config).folder, CONTEXT, "folder") }?;
    Ok(PathBuf::from(folder))
}

/// A device handle may be left out; a given one must be live.
pub(super) fn check_device(device: Qnn_DeviceHandle_t) -> Result<(), Error> {
    if device.is_null() { Ok(()) } else { find(&DEVICES, device).map(drop) }
}

pub(super) unsafe extern "C" fn create(
    backend: Qnn_BackendHandle_t,
    device: Qnn_DeviceHandle_t,
    config: *mut *const QnnContext_Config_t,
    out: *mut Qnn_ContextHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnContext_create", || {
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        check_device(device)?;
        // SAFETY: QNN's contract for the list.
        let options = unsafe { read(config.cast_const()) }?;
        let context = Context::new(backend);
        context.core.queue.limit(options.queue_depth);
        if let Some(folder) = &options.scratch {
            context.core.weights.lock().use_folder(folder).map_err(|error| Error::Argument {
                component: CONTEXT,
                what: format!(
                    "expected a folder for weights that can be written, found `{}`: {error}",
                    folder.display()
                ),
            })?;
        }
        let handle = CONTEXTS.add(Arc::new(context));
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, handle, CONTEXT, "context") }.inspect_err(|_| {
            CONTEXTS.remove(handle);
        })
    })
}

pub(super) unsafe extern "C" fn set_config(
    context: Qnn_ContextHandle_t,
    config: *mut *const QnnContext_Config_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnContext_setConfig", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        // SAFETY: QNN's contract for the list.
        let options = unsafe { read(config.cast_const()) }?;
        if options.persistent || options.enabled.is_some() {
            return Err(Error::Config {
                component: CONTEXT,
                option: if options.persistent {
                    q::QNN_CONTEXT_CONFIG_PERSISTENT_BINARY
                } else {
                    q::QNN_CONTEXT_CONFIG_ENABLE_GRAPHS
                },
                what: "expected it when the context is made, found it later".to_owned(),
            });
        }
        if options.queue_depth != 0 {
            context.core.queue.limit(options.queue_depth);
        }
        if let Some(watch) = options.watch {
            *context.core.watch.lock() = watch;
        }
        Ok(())
    })
}

/// Finalizes what is not finalized yet.
pub(super) unsafe extern "C" fn finalize(
    context: Qnn_ContextHandle_t,
    profile: Qnn_ProfileHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnContext_finalize", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        timed(profile, q::QNN_PROFILE_EVENTTYPE_FINALIZE, "context finalize", |_| {
            let graphs: Vec<_> = context.graphs.lock().iter().map(|e| e.graph.clone()).collect();
            for graph in graphs {
                let open = matches!(&*graph.state.read(), State::Composing(_));
                if open {
                    graph.finalize()?;
                }
            }
            *context.core.binary.lock() = None;
            Ok(())
        })
    })
}

/// Waits for executions, then lets go of everything: after this the client may unmap a persistent binary.
pub(super) unsafe extern "C" fn free(context: Qnn_ContextHandle_t, profile: Qnn_ProfileHandle_t) -> Qnn_ErrorHandle_t {
    guard("QnnContext_free", || {
        set_error_log(find(&CONTEXTS, context)?.core.backend.log.as_ref());
        // Before the handle is dead: one whose call failed is still the client's to free.
        let profile = profiles::asked(profile)?;
        let context = take(&CONTEXTS, context)?;
        timed_by(profile, q::QNN_PROFILE_EVENTTYPE_DEINIT, "context free", |_| {
            close(&context);
            Ok(())
        })
    })
}

/// Ends a context's life, whoever else still holds parts of it.
pub(super) fn close(context: &Context) {
    let core = &context.core;
    core.closed.store(true, Ordering::Release);
    core.queue.close();
    for entry in context.graphs.lock().drain(..) {
        if let Some(handle) = entry.handle {
            GRAPHS.remove(std::ptr::without_provenance_mut(handle));
        }
        entry.graph.close();
    }
    MEMS.remove_where(|mem| Arc::ptr_eq(&mem.core, core));
    *core.binary.lock() = None;
    *core.watch.lock() = None;
    core.tensors.write().clear();
    *core.options.lock() = Default::default();
    *core.weights.lock() = Default::default();
}

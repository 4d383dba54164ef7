//! Backends: made, queried, freed; and op configs validated.

use std::ffi::{CString, c_char};
use std::sync::{Arc, LazyLock};

use qnn_sys as q;
use qnn_sys::{
    Qnn_ApiVersion_t, Qnn_BackendHandle_t, Qnn_ErrorHandle_t, Qnn_LogHandle_t, Qnn_OpConfig_t, Qnn_Version_t,
    QnnBackend_Config_t, QnnBackend_OperationName_t, QnnBackend_Property_t,
};

use crate::error::{Component, Error};
use crate::htp_alias;
use crate::ir;
use crate::ops::{self, OpSpec};
use crate::package::Package;
use crate::pool;
use crate::validate;

use super::guard::{guard, set_error_log};
use super::log::{Level, Log};
use super::objects::{BACKENDS, Backend, Context, LOGS, find, take};
use super::platform::Platform;
use super::{op_config, raw, trace};

const BACKEND: Component = Component::Backend;

/// Ours; the ids of the vendor's backends are small.
pub(crate) const BACKEND_ID: u32 = qnn_sys::host::HOST_BACKEND_ID;

/// The table's version: slots up to here are there, if only to return "not supported".
pub(crate) const CORE_VERSION: Qnn_Version_t =
    Qnn_Version_t { major: q::CORE_VERSION.0, minor: q::CORE_VERSION.1, patch: 0 };

/// This backend's own version.
pub(crate) const HOST_VERSION: Qnn_Version_t = Qnn_Version_t { major: 1, minor: 0, patch: 0 };

/// The log of a handle that may be null.
pub(super) fn log_of(handle: Qnn_LogHandle_t) -> Result<Option<Arc<Log>>, Error> {
    if handle.is_null() { Ok(None) } else { find(&LOGS, handle).map(Some) }
}

/// What the config list sets, on top of `platform`.
///
/// # Safety
/// A list as QNN requires.
unsafe fn read(config: *const *const QnnBackend_Config_t, mut platform: Platform) -> Result<Platform, Error> {
    // SAFETY: the caller's promise.
    for entry in unsafe { raw::list(config, BACKEND, "config") }? {
        let custom = entry.option == q::QNN_BACKEND_CONFIG_OPTION_CUSTOM;
        // SAFETY: plain data, and the option decides which member it is; what it leads to is the client's promise.
        unsafe { trace::note_config(entry.option, custom.then(|| entry.anon0.customConfig.cast_const())) };
        match entry.option {
            // Options of other backends are passed over, so that their clients run here unchanged.
            q::QNN_BACKEND_CONFIG_OPTION_CUSTOM | q::QNN_BACKEND_CONFIG_OPTION_ERROR_REPORTING => {}
            q::QNN_BACKEND_CONFIG_OPTION_PLATFORM => {
                // SAFETY: plain data, and the option decides which member it is.
                let text = unsafe { entry.anon0.platformOption };
                // SAFETY: the caller's promise.
                platform.read(unsafe { raw::text(text, BACKEND, "platformOption") }?, &pool::cores())?;
            }
            option => return Err(Error::Config { component: BACKEND, option, what: "expected 0 to 2".to_owned() }),
        }
    }
    Ok(platform)
}

pub(super) unsafe extern "C" fn create(
    logger: Qnn_LogHandle_t,
    config: *mut *const QnnBackend_Config_t,
    out: *mut Qnn_BackendHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_create", || {
        let log = log_of(logger)?;
        set_error_log(log.as_ref());
        // SAFETY: QNN's contract for the list.
        let platform = unsafe { read(config.cast_const(), Platform::default()) }?;
        let handle = BACKENDS.add(Arc::new(Backend::new(log, platform)));
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, handle, BACKEND, "backend") }.inspect_err(|_| {
            BACKENDS.remove(handle);
        })
    })
}

pub(super) unsafe extern "C" fn set_config(
    backend: Qnn_BackendHandle_t,
    config: *mut *const QnnBackend_Config_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_setConfig", || {
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        // SAFETY: QNN's contract for the list.
        let platform = unsafe { read(config.cast_const(), backend.platform.clone()) }?;
        if platform != backend.platform {
            return Err(Error::Config {
                component: BACKEND,
                option: q::QNN_BACKEND_CONFIG_OPTION_PLATFORM,
                what: "expected `host_threads` and `host_pin` when the backend is made, found them later".to_owned(),
            });
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn get_api_version(out: *mut Qnn_ApiVersion_t) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_getApiVersion", || {
        let backend = if htp_alias::as_htp() { htp_alias::HTP_VERSION } else { HOST_VERSION };
        let version = Qnn_ApiVersion_t { coreApiVersion: CORE_VERSION, backendApiVersion: backend };
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, version, BACKEND, "pVersion") }
    })
}

/// The build's name for C.
pub(super) static BUILD_ID: LazyLock<CString> = LazyLock::new(|| CString::new(crate::BUILD_ID).unwrap_or_default());

pub(super) unsafe extern "C" fn get_build_id(out: *mut *const c_char) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_getBuildId", || {
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, BUILD_ID.as_ptr(), BACKEND, "id") }
    })
}

struct Operations(Vec<QnnBackend_OperationName_t>);

// SAFETY: the pointers lead to strings that are made once and never freed.
unsafe impl Send for Operations {}
// SAFETY: as above.
unsafe impl Sync for Operations {}

/// All ops, with strings that live as long as the library.
static OPERATIONS: LazyLock<Operations> = LazyLock::new(|| {
    let text = |s: &str| CString::new(s).unwrap_or_default().into_raw().cast_const();
    let target = text("CPU");
    let operation = |s: &OpSpec| {
        let (package, name) = ir::split_op(s.name);
        QnnBackend_OperationName_t { packageName: text(package), name: text(name), target }
    };
    Operations(ops::all().map(operation).collect())
});

pub(super) unsafe extern "C" fn get_supported_operations(
    backend: Qnn_BackendHandle_t,
    n: *mut u32,
    out: *mut *const QnnBackend_OperationName_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_getSupportedOperations", || {
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        // SAFETY: QNN's contract: both are null or valid for writing.
        unsafe { raw::write(out, OPERATIONS.0.as_ptr(), BACKEND, "operations") }?;
        // SAFETY: as above.
        unsafe { raw::write(n, OPERATIONS.0.len() as u32, BACKEND, "numOperations") }
    })
}

pub(super) unsafe extern "C" fn validate_op_config(
    backend: Qnn_BackendHandle_t,
    config: Qnn_OpConfig_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_validateOpConfig", || {
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        let scratch = Context::new(backend.clone());
        let as_config = |e| match e {
            Error::Node(v) | Error::TensorParam(v) => Error::OpConfig(v),
            other => other,
        };
        // SAFETY: QNN's contract for the pointers in the config.
        let (draft, node) = unsafe { op_config::to_lone_node(&config, &scratch.core) }.map_err(as_config)?;
        validate::check_op(&draft.ir, &node, &backend.packages.lock()).map_err(Error::OpConfig)
    })
}

/// Loads an op package: the one way by which code of others comes in here.
pub(super) unsafe extern "C" fn register_op_package(
    backend: Qnn_BackendHandle_t,
    path: *const c_char,
    provider: *const c_char,
    target: *const c_char,
) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_registerOpPackage", || {
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        // SAFETY: QNN's contract for the strings.
        let (path, provider) =
            unsafe { (raw::text(path, BACKEND, "packagePath")?, raw::text(provider, BACKEND, "interfaceProvider")?) };
        // SAFETY: as above.
        let target = (!target.is_null()).then(|| unsafe { raw::text(target, BACKEND, "target") }).transpose()?;
        trace::note(|| format!("{path} {provider} {target:?}"));
        // SAFETY: the client names the library and means its code to run.
        let package = unsafe { Package::load(path.as_ref(), provider, target) }?;
        if let Some(log) = backend.log.as_ref().filter(|log| log.enabled(Level::Info)) {
            log.write(Level::Info, &format!("op package `{}` is registered from `{path}`", package.name()));
        }
        Ok(backend.packages.lock().add(package)?)
    })
}

pub(super) unsafe extern "C" fn get_property(
    backend: Qnn_BackendHandle_t,
    properties: *mut *mut QnnBackend_Property_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_getProperty", || {
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        if properties.is_null() {
            return Err(Error::Null { component: BACKEND, what: "properties" });
        }
        // SAFETY: QNN's contract: a null-terminated list.
        let list = unsafe { raw::list(properties.cast_const().cast(), BACKEND, "properties") }?;
        let list: Vec<&QnnBackend_Property_t> = list;
        match list.first() {
            None => Ok(()),
            Some(p) => Err(Error::Unsupported { component: BACKEND, what: format!("property {}", p.option) }),
        }
    })
}

pub(super) unsafe extern "C" fn free(backend: Qnn_BackendHandle_t) -> Qnn_ErrorHandle_t {
    guard("QnnBackend_free", || take(&BACKENDS, backend).map(drop))
}

//! The two symbols that a QNN client looks for; all else is reached through the tables they hand out.

use qnn_sys::{
    LinkedProviders, QNN_SUCCESS, Qnn_ApiVersion_t, Qnn_ErrorHandle_t, Qnn_Version_t, QnnInterface_t,
    QnnSystemInterface_t, SYSTEM_VERSION,
};

use crate::capi::{BACKEND_ID, CORE_VERSION, HOST_VERSION, INTERFACE, SYSTEM_INTERFACE};
use crate::error::code;
use crate::htp_alias;

static PROVIDER: QnnInterface_t = QnnInterface_t {
    backendId: BACKEND_ID,
    providerName: c"HOST_OPEN_GENIE".as_ptr(),
    apiVersion: Qnn_ApiVersion_t { coreApiVersion: CORE_VERSION, backendApiVersion: HOST_VERSION },
    table: INTERFACE,
};

/// The same table under the HTP's name and numbers.
static HTP_PROVIDER: QnnInterface_t = QnnInterface_t {
    backendId: htp_alias::HTP_BACKEND_ID,
    providerName: c"HTP_OPEN_GENIE_HOST".as_ptr(),
    apiVersion: Qnn_ApiVersion_t { coreApiVersion: CORE_VERSION, backendApiVersion: htp_alias::HTP_VERSION },
    table: INTERFACE,
};

static SYSTEM_PROVIDER: QnnSystemInterface_t = QnnSystemInterface_t {
    backendId: 0,
    providerName: c"SYSTEM_HOST_OPEN_GENIE".as_ptr(),
    systemApiVersion: Qnn_Version_t { major: SYSTEM_VERSION.0, minor: SYSTEM_VERSION.1, patch: 0 },
    table: SYSTEM_INTERFACE,
};

/// A list of one provider that C may hold until the process ends.
struct List<T: 'static>(&'static T);

static PROVIDERS: List<QnnInterface_t> = List(&PROVIDER);
static HTP_PROVIDERS: List<QnnInterface_t> = List(&HTP_PROVIDER);
static SYSTEM_PROVIDERS: List<QnnSystemInterface_t> = List(&SYSTEM_PROVIDER);

/// Hands a list out.
///
/// # Safety
/// Pointers that are neither null nor misaligned must be valid for writing.
unsafe fn hand_out<T>(list: &'static List<T>, to: *mut *mut *const T, n: *mut u32) -> Qnn_ErrorHandle_t {
    if to.is_null() || n.is_null() || !to.is_aligned() || !n.is_aligned() {
        return code::COMMON_INVALID_ARGUMENT;
    }
    // A reference has the layout of a pointer to const; C declares the list writable and must not write it.
    let first = (&raw const list.0).cast::<*const T>().cast_mut();
    // SAFETY: not null, aligned; the rest is the caller's promise.
    unsafe {
        to.write(first);
        n.write(1);
    }
    QNN_SUCCESS
}

/// The core interface's providers: one, the HTP's where the library was loaded under that name. The list is read-only and lives as long as the library.
///
/// # Safety
/// QNN's contract: pointers that are not null must be valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QnnInterface_getProviders(
    providers: *mut *mut *const QnnInterface_t,
    n_providers: *mut u32,
) -> Qnn_ErrorHandle_t {
    let list = if htp_alias::as_htp() { &HTP_PROVIDERS } else { &PROVIDERS };
    // SAFETY: the caller's promise.
    unsafe { hand_out(list, providers, n_providers) }
}

/// The system interface's providers: one. The list is read-only and lives as long as the library.
///
/// # Safety
/// QNN's contract: pointers that are not null must be valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QnnSystemInterface_getProviders(
    providers: *mut *mut *const QnnSystemInterface_t,
    n_providers: *mut u32,
) -> Qnn_ErrorHandle_t {
    // SAFETY: the caller's promise.
    unsafe { hand_out(&SYSTEM_PROVIDERS, providers, n_providers) }
}

/// Both entry points, for a program that links this backend: `qnn_api::Library::linked(qnn_host::providers())`.
pub const fn providers() -> LinkedProviders {
    // SAFETY: both hand out statics of this crate, whose tables are written for the versions that they state.
    unsafe { LinkedProviders::new(QnnInterface_getProviders, Some(QnnSystemInterface_getProviders)) }
}

//! The package's interface, in QNN's versions 1.4 and 2.0.
//!
//! *Invariant*: what `createOpImpl` makes is a box of `Made`, and `freeOpImpl` gets that pointer back once.
#![allow(missing_docs)] // QNN's functions, by QNN's names

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use qnn_sys as q;
use qnn_sys::cpu_op_package::QnnCpuOpPackage_OpImpl_t;
use qnn_sys::{
    QNN_SUCCESS, Qnn_ErrorHandle_t, Qnn_OpConfig_t, Qnn_OpPackageHandle_t, Qnn_Tensor_t, Qnn_Version_t,
    QnnLog_Callback_t, QnnLog_Level_t, QnnOpPackage_GlobalInfrastructure_t, QnnOpPackage_GraphInfrastructure_t,
    QnnOpPackage_ImplementationV1_4_t, QnnOpPackage_ImplementationV2_0_t, QnnOpPackage_Info_t,
    QnnOpPackage_Interface_t, QnnOpPackage_Node_t, QnnOpPackage_OpImpl_t,
};

use crate::update::{self, INVALID, Update};

const BAD_HANDLE: u64 = q::QNN_OP_PACKAGE_ERROR_INVALID_HANDLE as u64;

/// Interface 1.4.
///
/// # Safety
/// QNN's contract: null, or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLaMAPackageInterfaceProvider(interface: *mut QnnOpPackage_Interface_t) -> Qnn_ErrorHandle_t {
    let mut own = QnnOpPackage_Interface_t {
        interfaceVersion: Qnn_Version_t { major: 1, minor: 4, patch: 0 },
        ..Default::default()
    };
    own.anon0.v1_4 = QnnOpPackage_ImplementationV1_4_t {
        init: Some(init),
        terminate: Some(terminate),
        getInfo: Some(get_info),
        validateOpConfig: Some(validate),
        createOpImpl: Some(create),
        freeOpImpl: Some(free),
        logInitialize: Some(log_initialize),
        logSetLevel: Some(log_set_level),
        logTerminate: Some(log_terminate),
    };
    // SAFETY: the caller's promise.
    unsafe { hand_out(interface, own) }
}

/// Interface 1.4, by the name that the library's file gives.
///
/// # Safety
/// As [`LLaMAPackageInterfaceProvider`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenGeniePackageInterfaceProvider(
    interface: *mut QnnOpPackage_Interface_t,
) -> Qnn_ErrorHandle_t {
    // SAFETY: the caller's promise.
    unsafe { LLaMAPackageInterfaceProvider(interface) }
}

/// Interface 2.0.
///
/// # Safety
/// QNN's contract: null, or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenGeniePackageInterfaceProviderV2(
    interface: *mut QnnOpPackage_Interface_t,
) -> Qnn_ErrorHandle_t {
    let mut own = QnnOpPackage_Interface_t {
        interfaceVersion: Qnn_Version_t { major: 2, minor: 0, patch: 0 },
        ..Default::default()
    };
    own.anon0.v2_0 = QnnOpPackage_ImplementationV2_0_t {
        create: Some(create_package),
        getInfo: Some(get_info),
        validateOpConfig: Some(validate_of),
        createOpImpl: Some(create_of),
        freeOpImpl: Some(free_of),
        logSetLevel: Some(log_set_level_of),
        free: Some(free_package),
    };
    // SAFETY: the caller's promise.
    unsafe { hand_out(interface, own) }
}

/// # Safety
/// Null, or valid for writing.
unsafe fn hand_out(to: *mut QnnOpPackage_Interface_t, own: QnnOpPackage_Interface_t) -> Qnn_ErrorHandle_t {
    if to.is_null() {
        return u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null; the caller's promise.
    unsafe { to.write(own) };
    QNN_SUCCESS
}

/// How many backends of this process have started the package: it has no state, so each may.
static STARTED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn init(_: QnnOpPackage_GlobalInfrastructure_t) -> Qnn_ErrorHandle_t {
    STARTED.fetch_add(1, Ordering::AcqRel);
    QNN_SUCCESS
}

unsafe extern "C" fn terminate() -> Qnn_ErrorHandle_t {
    match STARTED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)) {
        Ok(_) => QNN_SUCCESS,
        Err(_) => u64::from(q::QNN_OP_PACKAGE_ERROR_LIBRARY_NOT_INITIALIZED),
    }
}

/// What the package says about itself; C holds pointers into it for as long as the library is loaded.
struct Info(QnnOpPackage_Info_t);
// SAFETY: pointers to other statics, never written.
unsafe impl Sync for Info {}

struct Names([*const c_char; 1]);
// SAFETY: as above.
unsafe impl Sync for Names {}

static NAMES: Names = Names([update::NAME.as_ptr()]);
static INFO: Info = Info(QnnOpPackage_Info_t {
    packageName: c"LLaMAPackage".as_ptr(),
    operationNames: (&raw const NAMES.0).cast::<*const c_char>().cast_mut(),
    operationInfo: core::ptr::null(),
    numOperations: 1,
    optimizations: core::ptr::null(),
    numOptimizations: 0,
    sdkBuildId: c"open-genie".as_ptr(),
    sdkApiVersion: core::ptr::null(),
    packageInfo: core::ptr::null(),
    opsetVersion: core::ptr::null(),
    reserved: [0; 12],
});

unsafe extern "C" fn get_info(info: *mut *const QnnOpPackage_Info_t) -> Qnn_ErrorHandle_t {
    if info.is_null() {
        return u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null; QNN's contract: valid for writing.
    unsafe { info.write(&raw const INFO.0) };
    QNN_SUCCESS
}

unsafe extern "C" fn validate(config: Qnn_OpConfig_t) -> Qnn_ErrorHandle_t {
    if config.version != q::QNN_OPCONFIG_VERSION_1 {
        return INVALID;
    }
    // SAFETY: the version says which member it is.
    let v1 = unsafe { config.anon0.v1 };
    // SAFETY: not null; QNN's contract: a string.
    if v1.typeName.is_null() || unsafe { CStr::from_ptr(v1.typeName) } != update::NAME || v1.numOfParams != 0 {
        return INVALID;
    }
    let operand = |t: &Qnn_Tensor_t| {
        // SAFETY: type and extents are at the same place in both versions; QNN's contract for the extents.
        unsafe { (t.anon0.v1.dataType, update::slice(t.anon0.v1.dimensions, t.anon0.v1.rank)) }
    };
    // SAFETY: QNN's contract: as many tensors as stated.
    let lists =
        unsafe { [update::slice(v1.inputTensors, v1.numOfInputs), update::slice(v1.outputTensors, v1.numOfOutputs)] };
    let [inputs, outputs] = lists.map(|list| list.iter().map(operand).collect::<Vec<_>>());
    if update::check(&inputs, &outputs).is_some() { QNN_SUCCESS } else { INVALID }
}

/// What `createOpImpl` makes. C sees the first member.
#[repr(C)]
struct Made {
    op: QnnCpuOpPackage_OpImpl_t,
    update: Update,
}

unsafe extern "C" fn create(
    _: QnnOpPackage_GraphInfrastructure_t,
    node: QnnOpPackage_Node_t,
    made: *mut QnnOpPackage_OpImpl_t,
) -> Qnn_ErrorHandle_t {
    if made.is_null() {
        return u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: QNN's contract: a node that lives as long as what is made of it.
    let Some(update) = (unsafe { Update::new(node.cast()) }) else { return INVALID };
    let op = QnnCpuOpPackage_OpImpl_t { opImplFn: Some(run), userData: core::ptr::null_mut() };
    let own = Box::into_raw(Box::new(Made { op, update }));
    // SAFETY: made just now; `made` is not null, and QNN's contract makes it valid for writing.
    unsafe {
        (*own).op.userData = own.cast();
        made.write(own.cast());
    }
    QNN_SUCCESS
}

unsafe extern "C" fn run(data: *mut c_void) -> Qnn_ErrorHandle_t {
    // SAFETY: `create` put its box there, and it is freed after the last run; data as QNN's contract has it.
    unsafe { data.cast::<Made>().as_ref().map_or(BAD_HANDLE, |made| made.update.run()) }
}

unsafe extern "C" fn free(made: QnnOpPackage_OpImpl_t) -> Qnn_ErrorHandle_t {
    if made.is_null() {
        return BAD_HANDLE;
    }
    // SAFETY: QNN's contract: what `create` made, once.
    drop(unsafe { Box::from_raw(made.cast::<Made>()) });
    QNN_SUCCESS
}

unsafe extern "C" fn log_initialize(_: QnnLog_Callback_t, _: QnnLog_Level_t) -> Qnn_ErrorHandle_t {
    QNN_SUCCESS
}

unsafe extern "C" fn log_set_level(_: QnnLog_Level_t) -> Qnn_ErrorHandle_t {
    QNN_SUCCESS
}

unsafe extern "C" fn log_terminate() -> Qnn_ErrorHandle_t {
    QNN_SUCCESS
}

unsafe extern "C" fn create_package(
    _: QnnOpPackage_GlobalInfrastructure_t,
    _: QnnLog_Callback_t,
    _: QnnLog_Level_t,
    package: *mut Qnn_OpPackageHandle_t,
) -> Qnn_ErrorHandle_t {
    if package.is_null() {
        return u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null; QNN's contract: valid for writing. The package has no state, so any handle but null will do.
    unsafe { package.write((&raw const INFO.0).cast_mut().cast()) };
    QNN_SUCCESS
}

unsafe extern "C" fn validate_of(_: Qnn_OpPackageHandle_t, config: Qnn_OpConfig_t) -> Qnn_ErrorHandle_t {
    // SAFETY: QNN's contract, passed on.
    unsafe { validate(config) }
}

unsafe extern "C" fn create_of(
    _: Qnn_OpPackageHandle_t,
    graph: QnnOpPackage_GraphInfrastructure_t,
    node: QnnOpPackage_Node_t,
    made: *mut QnnOpPackage_OpImpl_t,
) -> Qnn_ErrorHandle_t {
    // SAFETY: QNN's contract, passed on.
    unsafe { create(graph, node, made) }
}

unsafe extern "C" fn free_of(_: Qnn_OpPackageHandle_t, made: QnnOpPackage_OpImpl_t) -> Qnn_ErrorHandle_t {
    // SAFETY: QNN's contract, passed on.
    unsafe { free(made) }
}

unsafe extern "C" fn log_set_level_of(_: Qnn_OpPackageHandle_t, _: QnnLog_Level_t) -> Qnn_ErrorHandle_t {
    QNN_SUCCESS
}

unsafe extern "C" fn free_package(_: Qnn_OpPackageHandle_t) -> Qnn_ErrorHandle_t {
    QNN_SUCCESS
}

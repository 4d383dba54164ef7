//! Packages that a backend must refuse, and ops that fail: one library, a provider for each.
//!
//! Package `BadPackage` has `Twice` (runs: doubles float32), `RefusesNode` (fails to validate), `FailsToMake` and `FailsToRun`.
#![allow(missing_docs, non_snake_case)]

use std::ffi::{CStr, c_char, c_void};

use qnn_sys as q;
use qnn_sys::cpu_op_package::{QnnCpuOpPackage_Node_t, QnnCpuOpPackage_OpImpl_t};
use qnn_sys::{
    Qnn_ErrorHandle_t, Qnn_OpConfig_t, Qnn_OpPackageHandle_t, Qnn_Version_t, QnnLog_Callback_t, QnnLog_Level_t,
    QnnOpPackage_ImplementationV1_4_t, QnnOpPackage_ImplementationV2_0_t, QnnOpPackage_Info_t,
    QnnOpPackage_Interface_t,
};

struct Shared<T>(T);
// SAFETY: pointers to statics, never written.
unsafe impl<T> Sync for Shared<T> {}

static NAMES: Shared<[*const c_char; 4]> =
    Shared([c"Twice".as_ptr(), c"RefusesNode".as_ptr(), c"FailsToMake".as_ptr(), c"FailsToRun".as_ptr()]);

const fn info(name: &'static CStr, n: u32) -> QnnOpPackage_Info_t {
    QnnOpPackage_Info_t {
        packageName: name.as_ptr(),
        operationNames: (&raw const NAMES.0).cast::<*const c_char>().cast_mut(),
        operationInfo: std::ptr::null(),
        numOperations: n,
        optimizations: std::ptr::null(),
        numOptimizations: 0,
        sdkBuildId: std::ptr::null(),
        sdkApiVersion: std::ptr::null(),
        packageInfo: std::ptr::null(),
        opsetVersion: std::ptr::null(),
        reserved: [0; 12],
    }
}

static GOOD_INFO: Shared<QnnOpPackage_Info_t> = Shared(info(c"BadPackage", 4));
static QNN_INFO: Shared<QnnOpPackage_Info_t> = Shared(info(c"qti.aisw", 4));
static EMPTY_INFO: Shared<QnnOpPackage_Info_t> = Shared(info(c"BadPackage", 0));

unsafe extern "C" fn ok_init(_: *mut c_void) -> Qnn_ErrorHandle_t {
    0
}
unsafe extern "C" fn bad_init(_: *mut c_void) -> Qnn_ErrorHandle_t {
    u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_INFRASTRUCTURE)
}
unsafe extern "C" fn ok_end() -> Qnn_ErrorHandle_t {
    0
}
unsafe extern "C" fn good_info(out: *mut *const QnnOpPackage_Info_t) -> Qnn_ErrorHandle_t {
    // SAFETY: QNN's contract: valid for writing.
    unsafe { out.write(&raw const GOOD_INFO.0) };
    0
}
unsafe extern "C" fn qnn_info(out: *mut *const QnnOpPackage_Info_t) -> Qnn_ErrorHandle_t {
    // SAFETY: as above.
    unsafe { out.write(&raw const QNN_INFO.0) };
    0
}
unsafe extern "C" fn empty_info(out: *mut *const QnnOpPackage_Info_t) -> Qnn_ErrorHandle_t {
    // SAFETY: as above.
    unsafe { out.write(&raw const EMPTY_INFO.0) };
    0
}
unsafe extern "C" fn bad_info(_: *mut *const QnnOpPackage_Info_t) -> Qnn_ErrorHandle_t {
    u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_INFO)
}

unsafe extern "C" fn validate(config: Qnn_OpConfig_t) -> Qnn_ErrorHandle_t {
    // SAFETY: version 1, and QNN's contract: a string.
    let op = unsafe { CStr::from_ptr(config.anon0.v1.typeName) };
    if op == c"RefusesNode" { u64::from(q::QNN_OP_PACKAGE_ERROR_VALIDATION_FAILURE) } else { 0 }
}

struct Made {
    op: QnnCpuOpPackage_OpImpl_t,
    node: *const QnnCpuOpPackage_Node_t,
}

unsafe extern "C" fn twice(data: *mut c_void) -> Qnn_ErrorHandle_t {
    // SAFETY: the box of `create`; QNN's contract for its node: one input and one output of the same float32 extents.
    unsafe {
        let node = &*(*data.cast::<Made>()).node;
        let (x, y) = (&**node.inputs, &**node.outputs);
        let n: u32 = (0..x.rank as usize).map(|i| *x.currentDimensions.add(i)).product();
        for i in 0..n as usize {
            *y.data.cast::<f32>().add(i) = 2.0 * *x.data.cast::<f32>().add(i);
        }
    }
    0
}
unsafe extern "C" fn fails(_: *mut c_void) -> Qnn_ErrorHandle_t {
    u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_ARGUMENT)
}

unsafe extern "C" fn create(_: *mut c_void, node: *mut c_void, made: *mut *mut c_void) -> Qnn_ErrorHandle_t {
    let node = node.cast::<QnnCpuOpPackage_Node_t>().cast_const();
    // SAFETY: QNN's contract: a node with a type.
    let op = unsafe { CStr::from_ptr((*node).typeName) };
    if op == c"FailsToMake" {
        return u64::from(q::QNN_OP_PACKAGE_ERROR_UNSUPPORTED_FEATURE);
    }
    let function: unsafe extern "C" fn(*mut c_void) -> Qnn_ErrorHandle_t =
        if op == c"FailsToRun" { fails } else { twice };
    let op = QnnCpuOpPackage_OpImpl_t { opImplFn: Some(function), userData: std::ptr::null_mut() };
    let own = Box::into_raw(Box::new(Made { op, node }));
    // SAFETY: made just now; QNN's contract: valid for writing.
    unsafe {
        (*own).op.userData = own.cast();
        made.write((&raw mut (*own).op).cast());
    }
    0
}
unsafe extern "C" fn free(made: *mut c_void) -> Qnn_ErrorHandle_t {
    // SAFETY: the op keeps the address of its box.
    drop(unsafe { Box::from_raw((*made.cast::<QnnCpuOpPackage_OpImpl_t>()).userData.cast::<Made>()) });
    0
}

const TABLE: QnnOpPackage_ImplementationV1_4_t = QnnOpPackage_ImplementationV1_4_t {
    init: Some(ok_init),
    terminate: Some(ok_end),
    getInfo: Some(good_info),
    validateOpConfig: Some(validate),
    createOpImpl: Some(create),
    freeOpImpl: Some(free),
    logInitialize: None,
    logSetLevel: None,
    logTerminate: None,
};

unsafe extern "C" fn start(
    _: *mut c_void,
    _: QnnLog_Callback_t,
    _: QnnLog_Level_t,
    package: *mut Qnn_OpPackageHandle_t,
) -> Qnn_ErrorHandle_t {
    // SAFETY: QNN's contract: valid for writing. There is no state.
    unsafe { package.write(std::ptr::null_mut()) };
    0
}
unsafe extern "C" fn bad_start(
    _: *mut c_void,
    _: QnnLog_Callback_t,
    _: QnnLog_Level_t,
    _: *mut Qnn_OpPackageHandle_t,
) -> Qnn_ErrorHandle_t {
    u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_INFRASTRUCTURE)
}
unsafe extern "C" fn create_of(
    _: Qnn_OpPackageHandle_t,
    graph: *mut c_void,
    node: *mut c_void,
    made: *mut *mut c_void,
) -> Qnn_ErrorHandle_t {
    // SAFETY: QNN's contract, passed on.
    unsafe { create(graph, node, made) }
}
unsafe extern "C" fn free_of(_: Qnn_OpPackageHandle_t, made: *mut c_void) -> Qnn_ErrorHandle_t {
    // SAFETY: QNN's contract, passed on.
    unsafe { free(made) }
}

const TABLE_V2: QnnOpPackage_ImplementationV2_0_t = QnnOpPackage_ImplementationV2_0_t {
    create: Some(start),
    getInfo: Some(good_info),
    validateOpConfig: None,
    createOpImpl: Some(create_of),
    freeOpImpl: Some(free_of),
    logSetLevel: None,
    free: None,
};

fn interface(major: u32, minor: u32) -> QnnOpPackage_Interface_t {
    QnnOpPackage_Interface_t { interfaceVersion: Qnn_Version_t { major, minor, patch: 0 }, ..Default::default() }
}

fn of_version(version: (u32, u32), table: QnnOpPackage_ImplementationV1_4_t) -> QnnOpPackage_Interface_t {
    let mut own = interface(version.0, version.1);
    own.anon0.v1_4 = table;
    own
}

fn v2(table: QnnOpPackage_ImplementationV2_0_t) -> QnnOpPackage_Interface_t {
    let mut own = interface(2, 0);
    own.anon0.v2_0 = table;
    own
}

macro_rules! providers {
    ($($name:ident: $interface:expr;)*) => {$(
        /// A provider.
        ///
        /// # Safety
        /// QNN's contract: valid for writing.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: *mut QnnOpPackage_Interface_t) -> Qnn_ErrorHandle_t {
            // SAFETY: the caller's promise.
            unsafe { to.write($interface) };
            0
        }
    )*};
}

providers! {
    GoodProvider: of_version((1, 4), TABLE);
    OldProvider: of_version((1, 3), TABLE);
    NewProvider: of_version((3, 0), TABLE);
    BadInitProvider: of_version((1, 4), QnnOpPackage_ImplementationV1_4_t { init: Some(bad_init), ..TABLE });
    BadInfoProvider: of_version((1, 4), QnnOpPackage_ImplementationV1_4_t { getInfo: Some(bad_info), ..TABLE });
    EmptyProvider: of_version((1, 4), QnnOpPackage_ImplementationV1_4_t { getInfo: Some(empty_info), ..TABLE });
    QnnNameProvider: of_version((1, 4), QnnOpPackage_ImplementationV1_4_t { getInfo: Some(qnn_info), ..TABLE });
    NoCreateProvider: of_version((1, 4), QnnOpPackage_ImplementationV1_4_t { createOpImpl: None, ..TABLE });
    BadStartProviderV2: v2(QnnOpPackage_ImplementationV2_0_t { create: Some(bad_start), ..TABLE_V2 });
    NoStartProviderV2: v2(QnnOpPackage_ImplementationV2_0_t { create: None, ..TABLE_V2 });
    NoCreateProviderV2: v2(QnnOpPackage_ImplementationV2_0_t { createOpImpl: None, ..TABLE_V2 });
    NoFreeProviderV2: v2(QnnOpPackage_ImplementationV2_0_t { freeOpImpl: None, ..TABLE_V2 });
    NoInfoProviderV2: v2(QnnOpPackage_ImplementationV2_0_t { getInfo: None, ..TABLE_V2 });
    BadInfoProviderV2: v2(QnnOpPackage_ImplementationV2_0_t { getInfo: Some(bad_info), ..TABLE_V2 });
}

/// One that fails.
///
/// # Safety
/// It touches nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FailingProvider(_: *mut QnnOpPackage_Interface_t) -> Qnn_ErrorHandle_t {
    u64::from(q::QNN_OP_PACKAGE_ERROR_GENERAL)
}

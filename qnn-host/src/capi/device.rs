//! Devices: one, with one core, and nothing to set. Configs of other backends (a SoC, say) are passed over.

use std::sync::{Arc, LazyLock};

use qnn_sys as q;
use qnn_sys::{
    Qnn_DeviceHandle_t, Qnn_ErrorHandle_t, Qnn_LogHandle_t, QnnDevice_Config_t, QnnDevice_CoreInfo_t,
    QnnDevice_HardwareDeviceInfo_t, QnnDevice_PlatformInfo_t,
};

use crate::error::{Component, Error};
use crate::htp_alias;

use super::backend::log_of;
use super::guard::{guard, set_error_log};
use super::objects::{DEVICES, Device, find, take};
use super::{raw, trace};

const DEVICE: Component = Component::Device;

struct Platform {
    info: QnnDevice_PlatformInfo_t,
}

// SAFETY: the pointers lead to values that are made once and never freed.
unsafe impl Send for Platform {}
// SAFETY: as above.
unsafe impl Sync for Platform {}

static PLATFORM: LazyLock<Platform> = LazyLock::new(|| {
    let core = q::QnnDevice_CoreInfoV1_t { coreId: 0, coreType: 0, coreInfoExtension: std::ptr::null_mut() };
    let core = Box::leak(Box::new(QnnDevice_CoreInfo_t {
        version: q::QNN_DEVICE_CORE_INFO_VERSION_1,
        anon0: q::QnnDevice_CoreInfo_t_anon0 { v1: core },
    }));
    let device = q::QnnDevice_HardwareDeviceInfoV1_t {
        deviceId: 0,
        deviceType: 0,
        numCores: 1,
        cores: core,
        deviceInfoExtension: if htp_alias::as_htp() { htp_extension() } else { std::ptr::null_mut() },
    };
    let device = Box::leak(Box::new(QnnDevice_HardwareDeviceInfo_t {
        version: q::QNN_DEVICE_HARDWARE_DEVICE_INFO_VERSION_1,
        anon0: q::QnnDevice_HardwareDeviceInfo_t_anon0 { v1: device },
    }));
    let platform = q::QnnDevice_PlatformInfoV1_t { numHwDevices: 1, hwDevices: device };
    Platform {
        info: QnnDevice_PlatformInfo_t {
            version: q::QNN_DEVICE_PLATFORM_INFO_VERSION_1,
            anon0: q::QnnDevice_PlatformInfo_t_anon0 { v1: platform },
        },
    }
});

/// What clients of the HTP read without asking: a chip of no known kind, with none of its memory.
fn htp_extension() -> *mut std::ffi::c_void {
    let chip = q::QnnHtpDevice_OnChipDeviceInfoExtension_t { arch: q::QNN_HTP_DEVICE_ARCH_NONE, ..Default::default() };
    let extension = q::_QnnDevice_DeviceInfoExtension_t {
        devType: q::QNN_HTP_DEVICE_TYPE_ON_CHIP,
        anon0: q::_QnnDevice_DeviceInfoExtension_t_anon0 { onChipDevice: chip },
    };
    (&raw mut *Box::leak(Box::new(extension))).cast()
}

pub(super) unsafe extern "C" fn get_platform_info(
    logger: Qnn_LogHandle_t,
    out: *mut *const QnnDevice_PlatformInfo_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnDevice_getPlatformInfo", || {
        set_error_log(log_of(logger)?.as_ref());
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, &raw const PLATFORM.info, DEVICE, "platformInfo") }
    })
}

pub(super) unsafe extern "C" fn free_platform_info(
    logger: Qnn_LogHandle_t,
    info: *const QnnDevice_PlatformInfo_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnDevice_freePlatformInfo", || {
        set_error_log(log_of(logger)?.as_ref());
        if std::ptr::eq(info, &raw const PLATFORM.info) {
            return Ok(());
        }
        let what = format!("expected a platform info of this backend, found {info:p}");
        Err(Error::Argument { component: DEVICE, what })
    })
}

/// Known options are passed over.
///
/// # Safety
/// A list as QNN requires.
unsafe fn read(config: *const *const QnnDevice_Config_t) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    for entry in unsafe { raw::list(config, DEVICE, "config") }? {
        let custom = entry.option == q::QNN_DEVICE_CONFIG_OPTION_CUSTOM;
        // SAFETY: plain data, and the option decides which member it is; what it leads to is the client's promise.
        unsafe { trace::note_config(entry.option, custom.then(|| entry.anon0.customConfig.cast_const())) };
        match entry.option {
            q::QNN_DEVICE_CONFIG_OPTION_CUSTOM | q::QNN_DEVICE_CONFIG_OPTION_PLATFORM_INFO => {}
            option => return Err(Error::Config { component: DEVICE, option, what: "expected 0 or 1".to_owned() }),
        }
    }
    Ok(())
}

pub(super) unsafe extern "C" fn create(
    logger: Qnn_LogHandle_t,
    config: *mut *const QnnDevice_Config_t,
    out: *mut Qnn_DeviceHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnDevice_create", || {
        set_error_log(log_of(logger)?.as_ref());
        // SAFETY: QNN's contract for the list.
        unsafe { read(config.cast_const()) }?;
        let handle = DEVICES.add(Arc::new(Device));
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, handle, DEVICE, "device") }.inspect_err(|_| {
            DEVICES.remove(handle);
        })
    })
}

pub(super) unsafe extern "C" fn set_config(
    device: Qnn_DeviceHandle_t,
    config: *mut *const QnnDevice_Config_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnDevice_setConfig", || {
        find(&DEVICES, device)?;
        // SAFETY: QNN's contract for the list.
        unsafe { read(config.cast_const()) }
    })
}

pub(super) unsafe extern "C" fn get_info(
    device: Qnn_DeviceHandle_t,
    out: *mut *const QnnDevice_PlatformInfo_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnDevice_getInfo", || {
        find(&DEVICES, device)?;
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, &raw const PLATFORM.info, DEVICE, "platformInfo") }
    })
}

pub(super) unsafe extern "C" fn free(device: Qnn_DeviceHandle_t) -> Qnn_ErrorHandle_t {
    guard("QnnDevice_free", || take(&DEVICES, device).map(drop))
}

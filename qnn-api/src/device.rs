//! A device: the chip that a backend works on or compiles for.

use std::sync::Arc;

use qnn_sys::htp::SocConfig;
use qnn_sys::*;

use crate::backend::log_failure;
use crate::error::Result;
use crate::library::{BACKEND_ID_HTP, Library};
use crate::table::CallContext;

/// An open device.
///
/// Invariant: `raw` is live, made by `library`'s table; freed exactly once, in `drop`.
pub struct Device {
    raw: Qnn_DeviceHandle_t,
    soc: Option<u32>,
    pub(crate) library: Arc<Library>,
}

impl Device {
    /// Nothing when the library has no devices.
    pub(crate) fn create(library: &Arc<Library>, log: Qnn_LogHandle_t, soc: Option<u32>) -> Result<Option<Self>> {
        // Only HTP libraries know the custom config.
        let soc = soc.filter(|_| library.backend_id() == BACKEND_ID_HTP);
        let mut custom = soc.map(SocConfig::new);
        let mut config = QnnDevice_Config_t { option: QNN_DEVICE_CONFIG_OPTION_CUSTOM, ..Default::default() };
        let mut list = [core::ptr::null::<QnnDevice_Config_t>(); 2];
        if let Some(custom) = &mut custom {
            config.anon0.customConfig = (&raw mut *custom).cast();
            list[0] = &raw const config;
        }
        let configs = if custom.is_some() { list.as_mut_ptr() } else { core::ptr::null_mut() };
        let mut raw = core::ptr::null_mut();
        let _calls = library.lock();
        // SAFETY: a live log or none; a null-terminated list whose entries live until the call returns; an out pointer.
        match unsafe { library.table.device_create(log, configs, &raw mut raw) } {
            Ok(()) => Ok(Some(Self { raw, soc, library: library.clone() })),
            Err(error) if error.is_unsupported() => Ok(None),
            failed => failed.map(|()| None).context(library.display_name(), || match soc {
                Some(soc) => format!("open the device for SoC {soc}"),
                None => "open the device".into(),
            }),
        }
    }

    /// The SoC that was asked for.
    pub fn soc(&self) -> Option<u32> {
        self.soc
    }

    pub(crate) fn raw(&self) -> Qnn_DeviceHandle_t {
        self.raw
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _calls = self.library.lock();
        // SAFETY: live until here; contexts on it hold the backend, which holds this.
        log_failure("deviceFree", unsafe { self.library.table.device_free(self.raw) });
    }
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device").field("soc", &self.soc).finish_non_exhaustive()
    }
}

//! A backend: a library that is started, with its log and, where it has one, its device.
//!
//! *Threads*: no QNN document promises that one handle may be used from two threads at a time, so every call below a
//! backend takes [`Backend::lock`], which is its library's; handles may move between threads, calls never overlap.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use qnn_sys::{
    QNN_BACKEND_CONFIG_OPTION_PLATFORM, Qnn_BackendHandle_t, Qnn_LogHandle_t, QnnBackend_Config_t,
    QnnBackend_OperationName_t,
};

use crate::convert::{self, c_name};
use crate::device::Device;
use crate::error::Result;
use crate::library::Library;
use crate::log::{self, LogLevel};
use crate::table::CallContext;

/// How to bring a backend up.
#[derive(Clone, Debug, Default)]
pub struct BackendOptions {
    /// How much of the library's log goes into `tracing` (target `qnn`).
    pub log: LogLevel,
    /// The SoC to compile or emulate for, by Qualcomm's number (57 = SM8650); the library's choice if not given.
    /// Only HTP libraries look at it.
    pub soc: Option<u32>,
    /// `key:value` pairs with `;` between, as the library's manual names them; `host_threads:N` and
    /// `host_pin:A,B,..` for ours.
    pub platform: Option<CString>,
}

/// A backend that is up. Contexts hold it by `Arc`.
pub struct Backend {
    // Freed in this order: device, backend, log.
    device: Option<Device>,
    raw: RawBackend,
    _log: Option<RawLog>,
    library: Arc<Library>,
}

// SAFETY: nothing in the handles is bound to a thread (Genie creates and runs them on different ones), and calls that
// use them are serialised by `lock`.
unsafe impl Send for Backend {}
// SAFETY: as above.
unsafe impl Sync for Backend {}

impl Backend {
    /// Opens the log, the backend and, where the library has devices, one device.
    ///
    /// # Errors
    /// What the library refuses. A library without logs or devices is fine.
    pub fn new(library: &Arc<Library>, options: &BackendOptions) -> Result<Arc<Self>> {
        let log = RawLog::open(library, options.log);
        let log_raw = log.as_ref().map_or(core::ptr::null_mut(), |log| log.raw);
        let raw = RawBackend::create(library, log_raw, options.platform.as_deref())?;
        let device = Device::create(library, log_raw, options.soc)?;
        Ok(Arc::new(Self { device, raw, _log: log, library: library.clone() }))
    }

    /// The library behind it.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// The device, where the library has devices.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Registers the op package of a library, whose code runs in this process from then on: for graphs that are made or
    /// loaded on this backend later. `provider` is the function that gives its interface, `target` what it runs on (`CPU`,
    /// `HTP`), as the backend's manual names it.
    ///
    /// # Errors
    /// No such library or function, an interface of another version, what the library refuses.
    pub fn register_op_package(&self, path: &Path, provider: &str, target: Option<&str>) -> Result<()> {
        let c_path = c_name(&path.to_string_lossy())?;
        let (c_provider, c_target) = (c_name(provider)?, target.map(c_name).transpose()?);
        let target_at = c_target.as_ref().map_or(core::ptr::null(), |target| target.as_ptr());
        let _calls = self.lock();
        // SAFETY: a live backend and three C strings that outlive the call.
        let (table, raw) = (&self.library.table, self.raw.raw);
        unsafe { table.backend_register_op_package(raw, c_path.as_ptr(), c_provider.as_ptr(), target_at) }
            .context(self.library.display_name(), || format!("register op package `{}`", path.display()))
    }

    /// Names of the ops that the backend knows, as `package::op`.
    ///
    /// # Errors
    /// The call fails.
    pub fn operations(&self) -> Result<Vec<String>> {
        let (mut n, mut first) = (0, core::ptr::null::<QnnBackend_OperationName_t>());
        let _calls = self.lock();
        // SAFETY: a live backend and two out pointers.
        unsafe { self.library.table.backend_get_supported_operations(self.raw.raw, &raw mut n, &raw mut first) }
            .context(self.library.display_name(), || "list the backend's operations".into())?;
        // SAFETY: on success `n` names, owned by the backend.
        let names = unsafe { convert::slice(first, n) };
        // SAFETY: each is a pair of C strings or nulls with the same lifetime.
        Ok(names
            .iter()
            .map(|op| unsafe { format!("{}::{}", convert::text(op.packageName), convert::text(op.name)) })
            .collect())
    }

    pub(crate) fn raw(&self) -> Qnn_BackendHandle_t {
        self.raw.raw
    }

    pub(crate) fn raw_device(&self) -> qnn_sys::Qnn_DeviceHandle_t {
        self.device.as_ref().map_or(core::ptr::null_mut(), Device::raw)
    }

    /// Held during every call on handles of this backend's library.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.library.lock()
    }
}

impl core::fmt::Debug for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Backend").field("library", &self.library).field("device", &self.device).finish_non_exhaustive()
    }
}

/// Invariant: `raw` is live, made by `library`'s table; freed exactly once, in `drop`.
struct RawBackend {
    raw: Qnn_BackendHandle_t,
    library: Arc<Library>,
}

impl RawBackend {
    fn create(library: &Arc<Library>, log: Qnn_LogHandle_t, platform: Option<&CStr>) -> Result<Self> {
        let mut raw = core::ptr::null_mut();
        let mut config = QnnBackend_Config_t { option: QNN_BACKEND_CONFIG_OPTION_PLATFORM, ..Default::default() };
        config.anon0.platformOption = platform.map_or(core::ptr::null(), CStr::as_ptr);
        let mut list = [&raw const config, core::ptr::null()];
        let configs = if platform.is_some() { list.as_mut_ptr() } else { core::ptr::null_mut() };
        let _calls = library.lock();
        // SAFETY: a live log or none, no config or a null-ended list of one that outlives the call, an out pointer.
        unsafe { library.table.backend_create(log, configs, &raw mut raw) }
            .context(library.display_name(), || format!("start backend `{}`", library.provider()))?;
        Ok(Self { raw, library: library.clone() })
    }
}

impl Drop for RawBackend {
    fn drop(&mut self) {
        let _calls = self.library.lock();
        // SAFETY: live until here; contexts and device were freed before (they hold the backend, or are dropped first).
        log_failure("backendFree", unsafe { self.library.table.backend_free(self.raw) });
    }
}

/// Invariant: `raw` is live, made by `library`'s table; freed exactly once, in `drop`.
struct RawLog {
    raw: Qnn_LogHandle_t,
    library: Arc<Library>,
}

impl RawLog {
    /// Nothing when the library has no log: then it is silent.
    fn open(library: &Arc<Library>, level: LogLevel) -> Option<Self> {
        let mut raw = core::ptr::null_mut();
        let _calls = library.lock();
        // SAFETY: a callback with the slot's signature that lives as long as the program, and an out pointer.
        match unsafe { library.table.log_create(Some(log::callback), level.raw(), &raw mut raw) } {
            Ok(()) => Some(Self { raw, library: library.clone() }),
            Err(error) => {
                tracing::debug!(%error, library = library.display_name(), "no log");
                None
            }
        }
    }
}

impl Drop for RawLog {
    fn drop(&mut self) {
        let _calls = self.library.lock();
        // SAFETY: live until here; the backend that writes to it is dropped first.
        log_failure("logFree", unsafe { self.library.table.log_free(self.raw) });
    }
}

/// Logs a failing free, which is never an error.
pub(crate) fn log_failure(call: &str, result: core::result::Result<(), crate::table::CallError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "`{call}` failed");
    }
}

//! A QNN library: where it came from, what it offers, and its tables.
//!
//! *Traps*: the table lies inside the provider's struct, so an older provider's copy is shorter than ours: versions are
//! read first, and only the slots that the version has are copied. Libraries are never unloaded: backends keep threads
//! and thread-local destructors whose code must stay mapped until the process ends.

mod dladdr;
mod elf;
mod files;
mod preload;
mod provider;
mod redirect_stdout;
pub mod runtime;
mod system_library;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use qnn_sys::{GetProviders, GetSystemProviders, LinkedProviders};

use crate::error::{Error, Result};
use crate::table::{SystemTable, Table};

pub(crate) use elf::machine_of;
pub use system_library::SystemLibrary;

/// A version number: major, minor, patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Incompatible steps.
    pub major: u32,
    /// Compatible additions.
    pub minor: u32,
    /// Fixes.
    pub patch: u32,
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl From<qnn_sys::Qnn_Version_t> for Version {
    fn from(v: qnn_sys::Qnn_Version_t) -> Self {
        Self { major: v.major, minor: v.minor, patch: v.patch }
    }
}

/// Backend id of Qualcomm's HTP libraries, and of everything that poses as one.
pub const BACKEND_ID_HTP: u32 = 6;
/// The backend id of the embedded backend.
pub const BACKEND_ID_HOST: u32 = qnn_sys::host::HOST_BACKEND_ID;

/// The display name of a library without a file.
const LINKED: &str = "linked in";

/// How Qualcomm's HTP libraries name their provider.
const HTP_PROVIDER: &str = "HTP_QTI_AISW";

/// A backend library with its tables; see the module for what it guards.
pub struct Library {
    provider: String,
    backend_id: u32,
    core_version: Version,
    backend_version: Version,
    path: Option<PathBuf>,
    display_name: String,
    system: Option<System>,
    system_tried: Vec<String>,
    calls: Arc<Mutex<()>>,
    pub(crate) table: Table,
}

/// Held during calls on handles of Qualcomm's HTP library, of whatever backend and however often it was opened: no QNN document
/// promises that two of its backends may work at the same time.
static HTP_CALLS: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// What [`Library::open`] does before it opens a library, for programs that open Qualcomm's others (`libGenie.so`)
/// themselves: loads the helpers that lie beside it and points C's `stdout` at standard error.
///
/// # Safety
/// The initialisers of the helpers in that folder (the C++ runtime, the HTP preparer) may run in this process.
pub unsafe fn prepare(path: &Path) {
    redirect_stdout::to_stderr();
    // SAFETY: the caller's promise.
    unsafe { preload::helpers_of(path) };
}

/// The system interface that goes with a backend.
pub(crate) struct System {
    pub(crate) table: SystemTable,
    pub(crate) display_name: String,
    version: Version,
}

impl Library {
    /// Loads a backend: a path, or a bare name that the system's loader finds.
    ///
    /// Helpers that lie beside it (`libc++`, `libunwind`, the HTP preparer) are loaded first, so that no search path needs
    /// to be set. The system interface is taken from the library itself, else from the `libQnnSystem.so` beside it.
    /// What C code prints to `stdout` goes to standard error from then on (glibc), since the HTP emulator would otherwise
    /// write into the program's data.
    ///
    /// *Trust*: loading a library runs its code, so only open what you trust. Before any of it runs, the file must name
    /// QNN's entry point among its symbols, by which it declares that it keeps QNN's contract. See the crate's page.
    ///
    /// # Errors
    /// A file that is no library or no QNN backend, an interface that is too old.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        Self::open_declared(path.as_ref(), None)
    }

    /// The same with the system interface of another file than the one beside it.
    ///
    /// # Errors
    /// As [`Library::open`]; and that file is no library or has no system interface.
    pub fn open_with_system(path: impl AsRef<Path>, system: impl AsRef<Path>) -> Result<Arc<Self>> {
        let system = SystemLibrary::open(system)?;
        Self::open_declared(path.as_ref(), Some(system))
    }

    /// Loads the backend of that file name from where [`runtime`] finds it; if that is nowhere, the system's loader is asked.
    ///
    /// # Errors
    /// [`Error::NotFound`] with all places that were looked at; else as [`Library::open`].
    pub fn open_by_name(name: &str) -> Result<Arc<Self>> {
        let places = runtime::places(name);
        if let Some(path) = places.iter().find(|path| path.is_file()) {
            return Self::open(path);
        }
        let not_found = |why| Error::NotFound { name: name.to_owned(), places: places.clone(), why };
        if std::env::var_os(runtime::DIR_VARIABLE).is_some_and(|folder| !folder.is_empty()) {
            return Err(not_found(format!("{} is set, so no other place counts", runtime::DIR_VARIABLE)));
        }
        Self::open(name).map_err(|error| match error {
            Error::Open { source, .. } => not_found(format!("the system's loader: {source}")),
            other => other,
        })
    }

    fn open_declared(path: &Path, system: Option<SystemLibrary>) -> Result<Arc<Self>> {
        elf::must_name(path, qnn_sys::GET_PROVIDERS)?;
        // SAFETY: the file (or, for a bare name, the library installed for the system's loader) names QNN's entry point, by
        // which its maker declares that it keeps QNN's contract; no value of safe Rust changes what its code does.
        unsafe { Self::open_unchecked(path, system) }
    }

    /// Loads a backend without looking into its file first; else as [`Library::open`].
    ///
    /// # Safety
    /// The library's initialisers and those of the helpers beside it may run in this process, and its entry points keep
    /// QNN's contract (see [`LinkedProviders::new`]).
    ///
    /// # Errors
    /// As [`Library::open`].
    pub unsafe fn open_unchecked(path: &Path, system: Option<SystemLibrary>) -> Result<Arc<Self>> {
        files::note_before();
        // SAFETY: the caller's promise.
        unsafe { prepare(path) };
        // SAFETY: the caller's promise.
        let file = unsafe { preload::open(path) }.map_err(|source| Error::Open { path: path.to_owned(), source })?;
        // SAFETY: the symbol, where it exists, has this one signature in every QNN library; the library is never unloaded.
        let get = unsafe { file.get::<GetProviders>(qnn_sys::GET_PROVIDERS) }
            .map(|symbol| *symbol)
            .map_err(|_| Error::Symbol { library: path.display().to_string(), symbol: qnn_sys::GET_PROVIDERS })?;
        let found = dladdr::file_of(get as *const core::ffi::c_void);
        let real = found.unwrap_or_else(|| path.to_owned());
        let (system, system_tried) = match system {
            Some(given) => (Some(given.into_interface()), Vec::new()),
            None => Self::find_system(&file, &real),
        };
        // A library with running threads must not be unmapped.
        std::mem::forget(file);
        // SAFETY: the caller's promise.
        unsafe { Self::assemble(get, system, system_tried, Some(real)) }
    }

    /// A backend that is linked into this program, e.g. `qnn_host::providers()`.
    ///
    /// # Errors
    /// No provider, or an interface that is too old.
    pub fn linked(providers: LinkedProviders) -> Result<Arc<Self>> {
        // SAFETY: who made the value vouched for both entry points.
        let system = providers.system().map(|get| unsafe { System::new(get, LINKED) }).transpose()?;
        // SAFETY: as above.
        unsafe { Self::assemble(providers.core(), system, vec![LINKED.into()], None) }
    }

    /// # Safety
    /// `get` keeps QNN's contract for the entry point of a backend.
    unsafe fn assemble(
        get: GetProviders,
        system: Option<System>,
        system_tried: Vec<String>,
        path: Option<PathBuf>,
    ) -> Result<Arc<Self>> {
        let display_name = path.as_ref().map_or_else(|| LINKED.to_owned(), |path| path.display().to_string());
        // SAFETY: passed on.
        let chosen = unsafe { provider::choose(get, &display_name) }?;
        tracing::debug!(library = %display_name, provider = %chosen.name, core = %chosen.core, "library opened");
        let calls = if chosen.name == HTP_PROVIDER { HTP_CALLS.clone() } else { Arc::default() };
        Ok(Arc::new(Self {
            calls,
            provider: chosen.name,
            backend_id: chosen.backend_id,
            core_version: chosen.core,
            backend_version: chosen.backend,
            path,
            display_name,
            system,
            system_tried,
            table: Table::new(chosen.table),
        }))
    }

    /// The system interface of the same file, or of the system library beside it, or of any that the loader finds.
    fn find_system(file: &libloading::Library, path: &Path) -> (Option<System>, Vec<String>) {
        let mut tried = vec![path.display().to_string()];
        // SAFETY: as for the backend's entry point.
        if let Ok(get) = unsafe { file.get::<GetSystemProviders>(qnn_sys::GET_SYSTEM_PROVIDERS) } {
            // SAFETY: an entry point of that name keeps QNN's contract, as the backend's own does.
            return (unsafe { System::new(*get, &tried[0]) }.ok(), tried);
        }
        for candidate in preload::system_candidates(path) {
            tried.push(candidate.display().to_string());
            if let Ok(found) = SystemLibrary::open(&candidate) {
                return (Some(found.into_interface()), tried);
            }
        }
        (None, tried)
    }

    /// The file, as the loader found it; nothing when linked in.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file or "linked in": how messages call this library.
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    /// Every file that was loaded for QNN libraries so far, dependencies and helpers included, as the loader found them; none
    /// when all are linked in. Parts that a library opens late (the stub of a chip, say) are in it once they were opened.
    pub fn files(&self) -> Vec<PathBuf> {
        if self.path.is_some() { files::since() } else { Vec::new() }
    }

    /// True for Qualcomm's HTP library on a machine without a Hexagon: the emulator.
    pub fn is_emulator(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.path.is_some() && self.provider == HTP_PROVIDER
    }

    /// Whether this is Qualcomm's library for HTP.
    pub fn is_htp(&self) -> bool {
        self.provider == HTP_PROVIDER
    }

    /// Whether this is the embedded backend, which reads weights where a mapped binary has them.
    pub fn is_embedded(&self) -> bool {
        self.backend_id == qnn_sys::host::HOST_BACKEND_ID
    }

    /// The provider's name, e.g. `HTP_QTI_AISW`.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The backend's number; [`BACKEND_ID_HTP`] for the HTP.
    pub fn backend_id(&self) -> u32 {
        self.backend_id
    }

    /// Version of the core interface.
    pub fn core_version(&self) -> Version {
        self.core_version
    }

    /// Version of the backend's own additions.
    pub fn backend_version(&self) -> Version {
        self.backend_version
    }

    /// Where the system interface came from and its version.
    pub fn system(&self) -> Option<(&str, Version)> {
        self.system.as_ref().map(|system| (system.display_name.as_str(), system.version))
    }

    /// The build of the library, e.g. `v2.51.0.260929181845`.
    ///
    /// # Errors
    /// The call fails.
    pub fn build_id(&self) -> Result<String> {
        use crate::table::CallContext;
        let mut text = core::ptr::null();
        // SAFETY: an out pointer to a C string that the library owns.
        unsafe { self.table.backend_get_build_id(&raw mut text) }
            .context(&self.display_name, || "ask for the build id".into())?;
        // SAFETY: QNN hands out a C string with the library's lifetime, or nothing.
        Ok(unsafe { crate::convert::text(text) })
    }

    /// True when the library reports that it supports a property of the core interface (`QNN_PROPERTY_...`).
    pub fn has_capability(&self, property: u32) -> bool {
        self.table.has_capability(property)
    }

    /// Held during every call on handles of this library.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        // The mutex guards calls, not data: a panic in between leaves nothing half done.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn system_table(&self) -> Result<&System> {
        self.system
            .as_ref()
            .ok_or_else(|| Error::NoSystem { library: self.display_name.clone(), tried: self.system_tried.clone() })
    }
}

impl core::fmt::Debug for Library {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Library")
            .field("provider", &self.provider)
            .field("from", &self.display_name)
            .field("core", &self.core_version.to_string())
            .finish_non_exhaustive()
    }
}

impl System {
    /// # Safety
    /// `get` keeps QNN's contract for the entry point of a system interface.
    unsafe fn new(get: GetSystemProviders, display_name: &str) -> Result<Self> {
        // SAFETY: passed on.
        let chosen = unsafe { provider::choose_system(get, display_name) }?;
        let (table, display_name) = (SystemTable::new(chosen.table), display_name.to_owned());
        Ok(Self { table, display_name, version: chosen.version })
    }
}

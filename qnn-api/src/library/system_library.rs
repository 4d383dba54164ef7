//! The system interface alone: enough to read context binaries, without a backend and its start-up.

use std::path::{Path, PathBuf};

use qnn_sys::{GetSystemProviders, LinkedProviders};

use super::{LINKED, System, Version, dladdr, elf, files, preload};
use crate::error::{Error, Result};

/// A library's system interface.
pub struct SystemLibrary {
    system: System,
    path: Option<PathBuf>,
}

impl SystemLibrary {
    /// Loads a `libQnnSystem.so`, or any library with its entry point: a path, or a bare name that the system's loader
    /// finds. As with [`super::Library::open`], its own code runs, and it is never unloaded.
    ///
    /// # Errors
    /// A file that is no library or has no system interface, an interface that is too old.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        elf::must_name(path, qnn_sys::GET_SYSTEM_PROVIDERS)?;
        files::note_before();
        // SAFETY: as for `Library::open`: the file names the entry point, by which its maker declares QNN's contract.
        unsafe { super::prepare(path) };
        let shown = path.display().to_string();
        // SAFETY: as above.
        let file = unsafe { preload::open(path) }.map_err(|source| Error::Open { path: path.to_owned(), source })?;
        // SAFETY: the symbol, where it exists, has this one signature in every QNN library; the library is never unloaded.
        let get = unsafe { file.get::<GetSystemProviders>(qnn_sys::GET_SYSTEM_PROVIDERS) }
            .map(|symbol| *symbol)
            .map_err(|_| Error::Symbol { library: shown.clone(), symbol: qnn_sys::GET_SYSTEM_PROVIDERS })?;
        std::mem::forget(file);
        let found = dladdr::file_of(get as *const core::ffi::c_void);
        // SAFETY: as above.
        let system = unsafe { System::new(get, &shown) }?;
        Ok(Self { system, path: Some(found.unwrap_or_else(|| path.to_owned())) })
    }

    /// The system interface of a backend that is linked into this program, e.g. `qnn_host::providers()`.
    ///
    /// # Errors
    /// It has none, no provider, or an interface that is too old.
    pub fn linked(providers: LinkedProviders) -> Result<Self> {
        let missing = || Error::NoSystem { library: LINKED.into(), tried: Vec::new() };
        // SAFETY: who made the value vouched for the entry point.
        let system = unsafe { System::new(providers.system().ok_or_else(missing)?, LINKED) }?;
        Ok(Self { system, path: None })
    }

    /// The file, as the loader found it; nothing when linked in.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Version of the interface.
    pub fn version(&self) -> Version {
        self.system.version
    }

    pub(super) fn into_interface(self) -> System {
        self.system
    }

    pub(crate) fn interface(&self) -> &System {
        &self.system
    }
}

impl core::fmt::Debug for SystemLibrary {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SystemLibrary").field("from", &self.system.display_name).finish_non_exhaustive()
    }
}

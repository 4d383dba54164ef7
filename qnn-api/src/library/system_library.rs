//! The system interface alone: enough to read context binaries, without a backend and its start-up.

use std::path::{Path, PathBuf};

use qnn_sys::GetSystemProviders;

use super::{System, Version, chatter, files, place, preload};
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
        chatter::to_stderr();
        files::note_before();
        preload::helpers_of(path);
        let shown = path.display().to_string();
        let file = preload::open(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
        // SAFETY: the symbol, where it exists, has this one signature in every QNN library; the library is never unloaded.
        let get = unsafe { file.get::<GetSystemProviders>(qnn_sys::GET_SYSTEM_PROVIDERS) }
            .map(|symbol| *symbol)
            .map_err(|_| Error::Symbol { library: shown.clone(), symbol: qnn_sys::GET_SYSTEM_PROVIDERS })?;
        std::mem::forget(file);
        let found = place::file_of(get as *const core::ffi::c_void);
        Ok(Self { system: System::new(get, &shown)?, path: Some(found.unwrap_or_else(|| path.to_owned())) })
    }

    /// Takes a system interface that is linked into this program; it keeps QNN's contract.
    ///
    /// # Errors
    /// No provider, or an interface that is too old.
    pub fn linked(get: GetSystemProviders) -> Result<Self> {
        Ok(Self { system: System::new(get, "linked in")?, path: None })
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
        f.debug_struct("SystemLibrary").field("from", &self.system.shown).finish_non_exhaustive()
    }
}

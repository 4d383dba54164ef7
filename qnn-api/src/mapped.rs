//! A context binary in a file, mapped for as long as a library may refer to it.
//!
//! *Soundness*: no Rust reference to the mapped bytes is ever made here, only their address goes to the library; so a file
//! that changes below the mapping breaks no rule of the language on this side. QNN's rule for the library's side is that
//! the bytes stay as they are while the context lives. Whoever writes binaries keeps it by writing beside and renaming,
//! as [`Context::save`](crate::Context::save) does: the mapping then holds the old file. A file that is cut short in place
//! ends the process (`SIGBUS`), as with any mapping.

use std::fs::File;
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};

use crate::error::{Error, Result};
#[cfg(target_os = "linux")]
use crate::moved_pages;

/// A mapped file. The empty file has no mapping.
pub(crate) struct MappedFile {
    map: Option<MmapRaw>,
    /// To move its bytes into memory.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    file: File,
}

impl MappedFile {
    /// Maps a file for reading.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |operation| move |source| Error::Io { operation, path: path.to_owned(), source };
        let file = file_io::open_file(path).map_err(io("open"))?;
        if file.metadata().map_err(io("inspect"))?.len() == 0 {
            return Ok(Self { map: None, file });
        }
        let map = MmapOptions::new().map_raw_read_only(&file).map_err(io("map"))?;
        // A wish, no more: what is not in memory yet is then read in huge pages, where the file system has them.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map: Some(map), file })
    }

    /// The bytes as C takes them: readable as long as this lives.
    pub(crate) fn as_raw(&self) -> *const [u8] {
        let empty: &[u8] = &[];
        self.map.as_ref().map_or(empty, |map| core::ptr::slice_from_raw_parts(map.as_ptr(), map.len()))
    }

    /// Puts anonymous memory with the same bytes in the place of some behind the first `moved` that can be; returns how many, 0 at the end.
    #[cfg(target_os = "linux")]
    pub(crate) fn move_piece(&self, moved: usize) -> std::io::Result<usize> {
        let Some(map) = &self.map else { return Ok(0) };
        // SAFETY: the mapping is of this file, whole, and lives as long as `self`; it was made for reading only.
        unsafe { moved_pages::move_piece(&self.file, (map.as_mut_ptr(), map.len()), moved) }
    }
}

//! Serialised contexts: into memory, or into a mapped file that appears under its name only when it is whole.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use memmap2::MmapMut;

use crate::context_handle::ContextInner;
use crate::error::{Error, Result};
use crate::table::CallContext;

/// The serialised context in memory.
pub(crate) fn to_bytes(context: &ContextInner) -> Result<Vec<u8>> {
    let bound = size_bound(context)?;
    let mut bytes = vec![0; usize::try_from(bound).map_err(|_| too_big(bound))?];
    let written = write(context, &mut bytes)?;
    bytes.truncate(written);
    Ok(bytes)
}

/// The serialised context in a file.
pub(crate) fn to_file(context: &ContextInner, path: &Path) -> Result<()> {
    let bound = size_bound(context)?;
    let unfinished = Unfinished::create(path)?;
    let io = |operation| move |source| Error::Io { operation, path: path.to_owned(), source };
    unfinished.file.set_len(bound).map_err(io("make room for"))?;
    // SAFETY: the file was just made by us under a name with this process's id; no one else changes it.
    let mut map = unsafe { MmapMut::map_mut(&unfinished.file) }.map_err(io("map"))?;
    let written = write(context, &mut map)?;
    map.flush().map_err(io("write"))?;
    drop(map);
    unfinished.file.set_len(written as u64).map_err(io("cut to size"))?;
    unfinished.publish(path)
}

fn too_big(bound: u64) -> Error {
    Error::Invalid {
        what: "serialised context".into(),
        expected: "a size this machine can address".into(),
        found: format!("{bound} bytes"),
    }
}

fn size_bound(context: &ContextInner) -> Result<u64> {
    let mut bound = 0;
    let _calls = context.backend.lock();
    // SAFETY: a live context and an out pointer.
    unsafe { context.table().context_get_binary_size(context.raw, &raw mut bound) }
        .context(context.display_name(), || "ask for the size of the context binary".into())?;
    if bound == 0 {
        let what = "context binary".into();
        return Err(Error::Description { what, why: "the library gives its size as 0".into() });
    }
    Ok(bound)
}

/// How many bytes were written.
fn write(context: &ContextInner, bytes: &mut [u8]) -> Result<usize> {
    let mut written = 0;
    let _calls = context.backend.lock();
    // SAFETY: a live context, as many writable bytes as stated, an out pointer.
    unsafe {
        context.table().context_get_binary(context.raw, bytes.as_mut_ptr().cast(), bytes.len() as u64, &raw mut written)
    }
    .context(context.display_name(), || "serialise the context".into())?;
    usize::try_from(written).ok().filter(|&n| 0 < n && n <= bytes.len()).ok_or_else(|| Error::Description {
        what: "context binary".into(),
        why: format!("the library reports {written} bytes written into {}", bytes.len()),
    })
}

/// A file under a passing name, removed unless it is published.
struct Unfinished {
    file: File,
    path: PathBuf,
}

impl Unfinished {
    fn create(target: &Path) -> Result<Self> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(|source| Error::Io { operation: "create", path: path.clone(), source })?;
        Ok(Self { file, path })
    }

    fn publish(self, target: &Path) -> Result<()> {
        std::fs::rename(&self.path, target).map_err(|source| Error::Io {
            operation: "rename the finished file to",
            path: target.to_owned(),
            source,
        })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After publishing there is nothing under this name, which is fine.
        let _ = std::fs::remove_file(&self.path);
    }
}

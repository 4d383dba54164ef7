//! Serialised contexts: into memory, or into a mapped file that appears under its name only when it is whole.

use core::ops::ControlFlow;
use std::path::Path;

use file_io::NewFile;
use memmap2::MmapMut;

use crate::context_handle::ContextInner;
use crate::error::{Error, Result};
use crate::save_watch::{SavePart, SaveWatch, Watcher};
use crate::table::CallContext;

/// Bytes that are brought onto the disk at a time.
const FLUSH_BYTES: usize = 16 << 20;

/// The serialised context in memory.
pub(crate) fn to_bytes(context: &ContextInner) -> Result<Vec<u8>> {
    bytes(context, &mut Watcher::new(&mut |_| ControlFlow::Continue(())))
}

fn bytes(context: &ContextInner, watcher: &mut Watcher<'_, '_>) -> Result<Vec<u8>> {
    if context.maps_binaries {
        return Err(Error::Invalid {
            what: "a context with a folder for its weights".into(),
            expected: "a file to be written beside its place".into(),
            found: "bytes in memory, or a file that is written in place".into(),
        });
    }
    let bound = size_bound(context, watcher)?;
    let mut bytes = vec![0; usize::try_from(bound).map_err(|_| too_big(bound))?];
    let written = write(context, &mut bytes, watcher)?;
    bytes.truncate(written);
    Ok(bytes)
}

/// The serialised context in a file, of which every byte has its place on the disk before the library writes the first.
pub(crate) fn to_file(context: &ContextInner, path: &Path, watch: &mut SaveWatch<'_>) -> Result<()> {
    let mut watcher = Watcher::new(watch);
    let saved = to_file_watched(context, path, &mut watcher);
    // Whatever a library makes of it in its own words.
    if watcher.is_stopped() { Err(Error::Stopped { path: path.to_owned() }) } else { saved }
}

fn to_file_watched(context: &ContextInner, path: &Path, watcher: &mut Watcher<'_, '_>) -> Result<()> {
    let stopped = || Error::Stopped { path: path.to_owned() };
    if file_io::is_written_in_place(path)? {
        let bytes = bytes(context, watcher)?;
        return if watcher.is_stopped() { Err(stopped()) } else { Ok(file_io::write_bytes(path, &bytes)?) };
    }
    let bound = size_bound(context, watcher)?;
    let mut new = NewFile::create(path)?;
    new.reserve(bound)?;
    if !watcher.tell(SavePart::Write, 0, bound) {
        return Err(stopped());
    }
    let io = |operation| move |source| Error::Io { operation, path: path.to_owned(), source };
    // SAFETY: the file was just made by us under a name with this process's id; no one else changes it.
    let mut map = unsafe { MmapMut::map_mut(new.file()) }.map_err(io("map"))?;
    // A wish, no more: what is written in huge pages is read in huge pages for as long as the system keeps it in memory.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    let written = write(context, &mut map, watcher)?;
    if !watcher.tell(SavePart::Write, bound, bound) {
        return Err(stopped());
    }
    for from in (0..written).step_by(FLUSH_BYTES) {
        let n = FLUSH_BYTES.min(written - from);
        map.flush_range(from, n).map_err(io("write"))?;
        if !watcher.tell(SavePart::Flush, (from + n) as u64, written as u64) {
            return Err(stopped());
        }
    }
    drop(map);
    new.set_len(written as u64)?;
    Ok(new.publish()?)
}

fn too_big(bound: u64) -> Error {
    Error::Invalid {
        what: "serialised context".into(),
        expected: "a size this machine can address".into(),
        found: format!("{bound} bytes"),
    }
}

fn size_bound(context: &ContextInner, watcher: &mut Watcher<'_, '_>) -> Result<u64> {
    let mut bound = 0;
    let _calls = context.backend.lock();
    watcher
        .during(context, SavePart::LayOut, || {
            // SAFETY: a live context and an out pointer.
            unsafe { context.table().context_get_binary_size(context.raw, &raw mut bound) }
        })
        .context(context.display_name(), || "ask for the size of the context binary".into())?;
    if bound == 0 {
        let what = "context binary".into();
        return Err(Error::Description { what, why: "the library gives its size as 0".into() });
    }
    Ok(bound)
}

/// How many bytes were written.
fn write(context: &ContextInner, bytes: &mut [u8], watcher: &mut Watcher<'_, '_>) -> Result<usize> {
    let mut written = 0;
    let _calls = context.backend.lock();
    let (to, n_bytes) = (bytes.as_mut_ptr().cast(), bytes.len() as u64);
    watcher
        .during(context, SavePart::Write, || {
            // SAFETY: a live context, as many writable bytes as stated, an out pointer.
            unsafe { context.table().context_get_binary(context.raw, to, n_bytes, &raw mut written) }
        })
        .context(context.display_name(), || "serialise the context".into())?;
    usize::try_from(written).ok().filter(|&n| 0 < n && n <= bytes.len()).ok_or_else(|| Error::Description {
        what: "context binary".into(),
        why: format!("the library reports {written} bytes written into {}", bytes.len()),
    })
}

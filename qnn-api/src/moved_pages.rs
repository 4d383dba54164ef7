//! Pages of a file's mapping, replaced by anonymous ones with the same bytes (Linux).

use core::ffi::c_void;
use core::{mem, ptr, slice};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mprotect, mremap_fixed, munmap,
};

/// A huge page.
const HUGE: usize = 2 << 20;
/// Bytes that are moved at a time.
const PIECE: usize = 4 * HUGE;

/// Anonymous memory of our own: whole pages that are unmapped when this is dropped.
struct Pages {
    start: *mut u8,
    len: usize,
}

impl Pages {
    /// `len` zero bytes from the begin of a huge page on. Huge pages are asked for.
    fn new(len: usize) -> io::Result<Self> {
        let total = len + HUGE;
        // SAFETY: a new mapping, where the system has room.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), total, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
        let all = Self { start: start.cast(), len: total };
        let before = all.start.addr().wrapping_neg() % HUGE;
        let (before, rest) = all.split_at(before);
        let (pages, behind) = rest.split_at(len);
        // What lies outside goes now: `pages` may leave their place.
        drop((before, behind));
        // A wish, no more: a kernel without huge pages serves small ones.
        // SAFETY: our own mapping; how its pages are made changes nothing that is in them.
        let _ = unsafe { madvise(pages.start.cast(), pages.len, Advice::LinuxHugepage) };
        Ok(pages)
    }

    /// The first `at` bytes, and the others.
    fn split_at(self, at: usize) -> (Self, Self) {
        let (start, len) = (self.start, self.len);
        mem::forget(self);
        (Self { start, len: at }, Self { start: start.wrapping_add(at), len: len - at })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a mapping to read and write of that many initialised bytes, of which this is the only owner.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Puts them in the place of others, to be read only.
    ///
    /// # Safety
    /// At `target` begins a huge page of a mapping that is read, never written, with the same bytes.
    unsafe fn move_to(self, target: *mut u8) -> io::Result<()> {
        let (from, len) = (self.start.cast::<c_void>(), self.len);
        // SAFETY: `from` are pages of our own, to which no reference is left. What is at `target` may be replaced by the same bytes:
        // the kernel changes the mapping under its lock, for which a reader that comes in between waits. The new pages are protected
        // as the old ones were.
        unsafe {
            mremap_fixed(from, len, len, MremapFlags::MAYMOVE, target.cast())?;
            // They are not at their old place any more.
            mem::forget(self);
            mprotect(target.cast(), len, MprotectFlags::READ)?;
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: a mapping of our own, or a part of one, to which no reference is left.
            let _ = unsafe { munmap(self.start.cast(), self.len) };
        }
    }
}

/// Moves the piece behind `moved` bytes of those of a mapping (`start`, `len`) that are whole huge pages: reads it into anonymous memory,
/// and puts that in its place. Returns its length, 0 at the end.
///
/// # Safety
/// `start` begins a mapping of `file` from its first byte on, `len` bytes that live on during the call, and are read, never written.
pub(crate) unsafe fn move_piece(file: &File, (start, len): (*mut u8, usize), moved: usize) -> io::Result<usize> {
    let first = start.addr().wrapping_neg() % HUGE;
    let all = len.saturating_sub(first) / HUGE * HUGE;
    let piece = PIECE.min(all.saturating_sub(moved));
    if piece > 0 {
        let at = first + moved;
        let mut pages = Pages::new(piece)?;
        file.read_exact_at(pages.bytes(), at as u64)?;
        // SAFETY: `at` is inside the mapping and at a huge page, `piece` whole ones are in it as well, with the file's bytes from there on;
        // otherwise the caller's promise.
        unsafe { pages.move_to(start.wrapping_add(at))? };
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::mapped::MappedFile;

    /// A file of that many bytes, none of them 0, and its mapping.
    fn mapped(dir: &tempfile::TempDir, len: usize) -> (std::path::PathBuf, Vec<u8>, MappedFile) {
        let path = dir.path().join("model.bin");
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251 + 1) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = MappedFile::open(&path).unwrap();
        (path, bytes, file)
    }

    /// Moves all that can be.
    fn move_all(file: &MappedFile) -> usize {
        let mut moved = 0;
        loop {
            match file.move_piece(moved).unwrap() {
                0 => return moved,
                bytes => moved += bytes,
            }
        }
    }

    /// What C sees, byte by byte: the mapping may change below.
    fn seen(file: &MappedFile) -> Vec<u8> {
        let raw = file.as_raw();
        // SAFETY: readable as long as the file lives.
        (0..raw.len()).map(|i| unsafe { raw.cast::<u8>().wrapping_add(i).read_volatile() }).collect()
    }

    #[test]
    fn who_reads_meanwhile_sees_no_difference() {
        let dir = tempfile::tempdir().unwrap();
        for len in [PIECE + 2 * HUGE + 4097, 3 * PIECE + HUGE] {
            let (_, bytes, file) = mapped(&dir, len);
            let done = AtomicBool::new(false);
            let start = file.as_raw().cast::<u8>().addr();
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let mut passes = 0;
                    while !done.load(Ordering::Acquire) || passes == 0 {
                        assert!(seen(&file) == bytes, "pass {passes}");
                        passes += 1;
                    }
                });
                let moved = move_all(&file);
                done.store(true, Ordering::Release);
                reader.join().unwrap();
                assert!(moved + 2 * HUGE > len && moved.is_multiple_of(HUGE), "{moved} of {len} at {start:#x}");
            });
            assert!(seen(&file) == bytes);
        }
    }

    /// What was moved does not depend on the file any more, what lies at the ends does.
    #[test]
    fn moved_bytes_are_the_process_own() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes, file) = mapped(&dir, PIECE + HUGE);
        let moved = move_all(&file);
        let changed: Vec<u8> = bytes.iter().map(|byte| byte ^ 0xff).collect();
        write_in_place(&path, &changed);
        let kept = seen(&file).iter().zip(&bytes).filter(|(now, before)| now == before).count();
        assert_eq!(kept, moved);
    }

    fn write_in_place(path: &std::path::Path, bytes: &[u8]) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    }

    #[test]
    fn a_file_below_a_huge_page_stays_and_one_cut_short_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for len in [0, 1, HUGE - 1] {
            assert_eq!(move_all(&mapped(&dir, len).2), 0);
        }
        let (path, _, file) = mapped(&dir, PIECE + HUGE);
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(5).unwrap();
        let error = file.move_piece(0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

//! Pages of a file's mapping, replaced by anonymous ones with the same bytes (Linux).

use core::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memmap2::MmapMut;
use rustix::mm::{MprotectFlags, MremapFlags, mprotect, mremap_fixed};

/// A huge page.
const HUGE: usize = 2 << 20;
/// Bytes that are moved at a time.
const PIECE: usize = 4 * HUGE;

/// Anonymous memory that pieces are read into.
pub(crate) struct Staging {
    pages: MmapMut,
    /// Where its first whole huge page begins.
    start: usize,
}

impl Staging {
    pub(crate) fn new() -> io::Result<Self> {
        let pages = MmapMut::map_anon(PIECE + HUGE)?;
        // A wish, no more: a kernel without huge pages serves small ones.
        let _ = pages.advise(memmap2::Advice::HugePage);
        let start = pages.as_ptr().addr().wrapping_neg() % HUGE;
        Ok(Self { pages, start })
    }

    /// Reads the piece of a file from `at` on, and puts it in the place of the `len` bytes of the file's mapping at `target`.
    ///
    /// # Safety
    /// `target` begins a huge page of a mapping of the file that lives on during the call, where its byte `at` is; `len` bytes of it,
    /// whole huge pages and at most [`PIECE`], are the file's. The mapping is read, never written.
    unsafe fn replace(&mut self, file: &File, at: u64, target: *mut u8, len: usize) -> io::Result<()> {
        let from = &mut self.pages[self.start..self.start + len];
        file.read_exact_at(from, at)?;
        let from = from.as_mut_ptr().cast::<c_void>();
        // SAFETY: `from` are pages of our own anonymous mapping, which stays (empty) as `DONTUNMAP` says. At `target` are pages that
        // may be replaced, with the same bytes, so that who reads them sees no difference: the kernel changes the mapping under its
        // lock, for which a reader that comes in between waits. The new pages are protected as the old ones were.
        unsafe {
            mremap_fixed(from, len, len, MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP, target.cast())?;
            mprotect(target.cast(), len, MprotectFlags::READ)?;
        }
        Ok(())
    }
}

/// Moves the piece behind `moved` bytes of those of a mapping (`start`, `len`) that are whole huge pages. Returns its length, 0 at the end.
///
/// # Safety
/// `start` begins a mapping of `file` from its first byte on, `len` bytes that live on during the call, and are read, never written.
pub(crate) unsafe fn move_piece(
    file: &File,
    (start, len): (*mut u8, usize),
    moved: usize,
    staging: &mut Staging,
) -> io::Result<usize> {
    let first = start.addr().wrapping_neg() % HUGE;
    let all = len.saturating_sub(first) / HUGE * HUGE;
    let piece = PIECE.min(all.saturating_sub(moved));
    if piece > 0 {
        let at = first + moved;
        // SAFETY: `at` is inside the mapping and at a huge page, `piece` whole ones are in it as well; otherwise the caller's promise.
        unsafe { staging.replace(file, at as u64, start.wrapping_add(at), piece)? };
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
        let (mut moved, mut staging) = (0, Staging::new().unwrap());
        loop {
            match file.move_piece(moved, &mut staging).unwrap() {
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
        let (path, bytes, file) = mapped(&dir, PIECE + HUGE);
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(5).unwrap();
        let error = file.move_piece(0, &mut Staging::new().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        drop(bytes);
    }
}

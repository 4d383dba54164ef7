//! Room on the disk: how much is free, and taking it before it is needed.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes that the user may still write to the file system of this folder, if the system says.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let found = rustix::fs::statvfs(folder).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// The process's limit for the length of a file, if it has one.
pub(crate) fn file_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        rustix::process::getrlimit(rustix::process::Resource::Fsize).current
    }
    #[cfg(not(unix))]
    {
        None
    }
}

/// Makes an empty file `bytes` long with a place on the disk for each of them, so that a map of it never meets a full disk.
pub(crate) fn reserve(file: &mut File, bytes: u64) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        loop {
            match fallocate(&*file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // The file system cannot reserve (NFS before 4.2, FUSE): written zeros take the same room.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => break,
                Err(e) => return Err(e.into()),
            }
        }
    }
    write_zeros(file, bytes)
}

fn write_zeros(file: &mut File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(zeros.len() as u64);
        file.write_all(&zeros[..n as usize])?;
        left -= n;
    }
    // Some file systems give a page its place only when it is written back.
    file.sync_data()?;
    file.seek(SeekFrom::Start(0)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_reserving_take_the_room_at_once() {
        for way in [reserve, write_zeros] {
            let mut file = tempfile::tempfile().unwrap();
            way(&mut file, 3_000_000).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 3_000_000);
            #[cfg(unix)]
            assert!(std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512 >= 3_000_000);
            assert_eq!(file.stream_position().unwrap(), 0);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_limit_for_a_file_is_what_the_process_has() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let before = getrlimit(Resource::Fsize);
        // More than any test writes, so that those beside this one do not notice.
        let limit = before.maximum.unwrap_or(u64::MAX).min(1 << 50);
        setrlimit(Resource::Fsize, Rlimit { current: Some(limit), maximum: before.maximum }).unwrap();
        let found = file_limit();
        setrlimit(Resource::Fsize, before).unwrap();
        assert_eq!(found, Some(limit));
    }

    #[test]
    fn a_folder_has_room() {
        assert!(free_bytes(Path::new("")).unwrap() > 4096, "a page at least, where these tests were built");
        assert_eq!(free_bytes(Path::new("/no/such/folder")), None);
    }
}

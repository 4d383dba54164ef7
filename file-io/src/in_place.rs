//! Opens what is no regular file: devices, pipes, and this process's own output.

use std::fs::{File, Metadata};
use std::path::Path;

use crate::target::output_of;
use crate::{FileError, Result};

/// Opens a device or pipe for writing; a pipe needs a reader.
pub(crate) fn open(path: &Path, meta: &Metadata) -> Result<File> {
    if let Some(output) = output_of(meta) {
        return Ok(output);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if meta.file_type().is_fifo() {
            return open_pipe(path);
        }
        if meta.file_type().is_socket() {
            return Err(FileError::Unfit {
                path: path.to_owned(),
                expected: "a file, device or pipe",
                found: "a socket",
            });
        }
    }
    File::options().write(true).open(path).map_err(FileError::io("open", path))
}

/// Opening a pipe waits for a reader without limit; here a reader that is just being started gets three seconds.
#[cfg(unix)]
fn open_pipe(path: &Path) -> Result<File> {
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::Duration;
    const TRIES: u32 = 60;
    for _ in 0..TRIES {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of the system fits its type");
        match File::options().write(true).custom_flags(flags).open(path) {
            Ok(file) => {
                fcntl_setfl(&file, OFlags::empty()).map_err(|e| FileError::io("open", path)(e.into()))?;
                return Ok(file);
            }
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(e) => return Err(FileError::io("open", path)(e)),
        }
    }
    Err(FileError::NoReader { path: path.to_owned() })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Only the lack of a reader is waited for.
    #[test]
    fn a_pipe_that_cannot_be_opened_is_refused_as_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(open_pipe(&dir.path().join("gone")), Err(FileError::Io { operation: "open", .. })));
    }
}

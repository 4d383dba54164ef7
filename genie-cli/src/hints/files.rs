//! Words the hints of files that could not be written.

use std::io::ErrorKind;

use file_io::{FileError, Shortage};

/// The hint of a file error.
pub fn of(error: &FileError) -> Option<String> {
    let text = match error {
        FileError::NoSpace { shortage: Shortage::Limit { limit: Some(_), .. }, .. } => {
            "raise the limit of this shell: `ulimit -f unlimited`"
        }
        FileError::NoSpace { .. } => "free some space, or write to another disk",
        FileError::NoReader { .. } => "start the program that reads the pipe first",
        FileError::NoFolder { .. } | FileError::Unfit { .. } => "choose a file in an existing, writable folder",
        FileError::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "choose a place that you may write to",
            _ => return None,
        },
        _ => return None,
    };
    Some(text.to_owned())
}

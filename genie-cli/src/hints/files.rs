//! Words the hints of files that could not be written.

use std::error::Error;
use std::io::ErrorKind;

use compiler::CompileError;
use file_io::{FileError, FolderError, Shortage};

/// The hint of a file error.
pub fn of(error: &FileError) -> Option<String> {
    let text = match error {
        FileError::NoSpace { shortage, .. } if matches!(**shortage, Shortage::Limit { limit: Some(_), .. }) => {
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

/// The file error that this one says as its own, if it does: such a one is no link of the chain of causes.
pub fn within<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e FileError> {
    if let Some(error) = error.downcast_ref::<open_genie::Error>() {
        return match error {
            open_genie::Error::DemoFolder(error) => in_folder(error),
            open_genie::Error::Compile(error) => in_compile(error),
            _ => None,
        };
    }
    let in_backend = || in_backend(error.downcast_ref()?);
    let in_compile = || in_compile(error.downcast_ref()?);
    error.downcast_ref().and_then(in_folder).or_else(in_compile).or_else(in_backend)
}

fn in_compile(error: &CompileError) -> Option<&FileError> {
    match error {
        CompileError::File(error) => Some(error),
        CompileError::OutputFolder(error) => in_folder(error),
        CompileError::Backend(error) => in_backend(error),
        _ => None,
    }
}

fn in_folder(error: &FolderError) -> Option<&FileError> {
    match error {
        FolderError::File(error) => Some(error),
        _ => None,
    }
}

fn in_backend(error: &qnn_api::Error) -> Option<&FileError> {
    match error {
        qnn_api::Error::File(error) => Some(error),
        _ => None,
    }
}

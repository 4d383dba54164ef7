//! The file of `--record`: it grows line by line while the server runs, so that one that was killed leaves what it had.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use server::LineSink;

use crate::printer::Printer;

/// The file, once there is a line for it.
enum Recording {
    /// What an earlier server wrote is still there: one that cannot start leaves it.
    NotBegun(PathBuf),
    Begun(File),
    /// A line could not be written.
    Ended,
}

impl Recording {
    /// The first line takes the place of what is in the file. Each is written in one piece, so that a reader sees whole ones.
    fn write(&mut self, line: &str) -> std::io::Result<()> {
        if let Self::NotBegun(path) = self {
            *self = Self::Begun(OpenOptions::new().write(true).create(true).truncate(true).open(path)?);
        }
        match self {
            Self::Begun(file) => file.write_all(format!("{line}\n").as_bytes()),
            _ => Ok(()),
        }
    }
}

/// Writes lines into the file, which was found writable.
pub fn sink(path: &Path, printer: &Printer) -> LineSink {
    let (printer, name) = (printer.clone(), path.display().to_string());
    let recording = Mutex::new(Recording::NotBegun(path.to_owned()));
    LineSink::new(move |line| {
        let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = recording.write(line) {
            // A full disk stays full: the requests go on without.
            printer.info(format_args!("warning: the recording ends here: cannot write to `{name}`: {error}"));
            *recording = Recording::Ended;
        }
    })
}

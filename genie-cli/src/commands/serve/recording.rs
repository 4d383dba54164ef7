//! The file of `--record`: it grows line by line while the server runs, so that one that was killed leaves what it had.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use server::LineSink;

use crate::printer::Printer;

/// Makes the file, which was found writable, empty. Each line is written in one piece, so that a reader sees whole ones.
pub fn open(path: &Path, printer: &Printer) -> Result<LineSink> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    let file = opened.with_context(|| format!("`--record`: cannot open `{}`", path.display()))?;
    let (file, printer, name) = (Mutex::new(Some(file)), printer.clone(), path.display().to_string());
    Ok(LineSink::new(move |line| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = file.as_mut().and_then(|file| write(file, line).err()) {
            // A full disk stays full: the requests go on without.
            printer.info(format_args!("warning: the recording ends here: cannot write to `{name}`: {error}"));
            *file = None;
        }
    }))
}

fn write(file: &mut File, line: &str) -> std::io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

//! The bundle under construction, beside where it will stand.
//!
//! *Invariants*: the output directory is touched only by [`Staging::publish`], by renames; a staging directory that is
//! not published is removed.

use crate::{CompileError, Result, fs};
use genie_bundle::{BundleError, MANIFEST_FILE, Manifest};
use std::path::{Path, PathBuf};

/// A temporary directory that becomes the bundle.
#[derive(Debug)]
pub(crate) struct Staging {
    temp: PathBuf,
    out: PathBuf,
    published: bool,
}

impl Staging {
    /// Checks the output place and makes the temporary directory next to it.
    pub(crate) fn begin(out: &Path, model_dir: &Path, force: bool) -> Result<Self> {
        check_place(out, model_dir, force)?;
        let name = out.file_name().ok_or_else(|| unfit(out, "it has no name"))?.to_string_lossy().into_owned();
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(parent).map_err(fs::io_err("create", parent))?;
        let temp = parent.join(format!(".{name}.partial-{}", std::process::id()));
        if temp.exists() {
            std::fs::remove_dir_all(&temp).map_err(fs::io_err("remove", &temp))?;
        }
        std::fs::create_dir(&temp).map_err(fs::io_err("create", &temp))?;
        Ok(Self { temp, out: out.into(), published: false })
    }

    /// Where the bundle is for now.
    pub(crate) fn folder(&self) -> PathBuf {
        self.temp.clone()
    }

    /// Where a file of the bundle is written for now.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.temp.join(file)
    }

    /// Puts the bundle in its place. A bundle that was there before is put back if that fails.
    pub(crate) fn publish(mut self) -> Result<()> {
        let old = self.temp.with_extension("replaced");
        let replaces = self.out.exists();
        if replaces {
            std::fs::rename(&self.out, &old).map_err(fs::io_err("move aside", &self.out))?;
        }
        if let Err(error) = std::fs::rename(&self.temp, &self.out) {
            if replaces && std::fs::rename(&old, &self.out).is_err() {
                tracing::error!("the earlier bundle is now at `{}`", old.display());
            }
            return Err(fs::io_err("create", &self.out)(error));
        }
        self.published = true;
        if replaces && std::fs::remove_dir_all(&old).is_err() {
            tracing::warn!("cannot remove the earlier bundle, now at `{}`", old.display());
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.published && std::fs::remove_dir_all(&self.temp).is_err() {
            tracing::warn!("cannot remove the unfinished bundle at `{}`", self.temp.display());
        }
    }
}

fn unfit(out: &Path, why: &'static str) -> CompileError {
    CompileError::OutputUnfit { path: out.into(), why }
}

fn check_place(out: &Path, model_dir: &Path, force: bool) -> Result<()> {
    if !out.exists() {
        return Ok(());
    }
    if !out.is_dir() {
        return Err(CompileError::OutputIsFile { path: out.into() });
    }
    // Not even by force: replacing it would delete the weights that we are about to read.
    if let (Ok(place), Ok(model)) = (out.canonicalize(), model_dir.canonicalize())
        && model.starts_with(&place)
    {
        return Err(unfit(out, "the model lies in it"));
    }
    let mut entries = std::fs::read_dir(out).map_err(fs::io_err("list", out))?;
    let empty = entries.next().is_none();
    let ours = out.join(MANIFEST_FILE).is_file()
        && matches!(Manifest::read(out), Ok(_) | Err(BundleError::ManifestVersion { .. }));
    if empty || ours || force { Ok(()) } else { Err(CompileError::OutputOccupied { path: out.into() }) }
}

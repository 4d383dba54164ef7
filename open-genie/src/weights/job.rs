//! One file to compare: with the manifest, or with the checksums in it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use genie_bundle::manifest::FileEntry;
use genie_bundle::stamps::{FileIdentity, Known, Stamps};
use genie_bundle::{BundleError, FileCheck};
use qnn_host::container::{SumsError, WeightSums};

use super::fault::WeightFault;
use crate::Error;

/// Bytes between two looks at whether to stop.
const STEP: usize = 256 << 10;

/// A file to compare.
pub(super) enum Job {
    Manifest(Box<FileCheck>),
    Checksums(Box<SumsJob>),
}

/// A file with checksums of its own.
pub(super) struct SumsJob {
    path: PathBuf,
    sums: WeightSums,
    identity: Option<(FileIdentity, Stamps)>,
    began: Option<SystemTime>,
}

/// A file that is not what it should be.
#[derive(Clone)]
pub(super) struct Finding {
    path: PathBuf,
    fault: WeightFault,
    /// The checksums in it are right: it is whole, but another file.
    is_whole: bool,
}

impl Finding {
    pub(super) fn error(&self) -> Error {
        let (path, source) = (self.path.clone(), self.fault.clone());
        if self.is_whole { Error::OtherWeights { path, source } } else { Error::DamagedWeights { path, source } }
    }
}

impl Job {
    /// Compares a file with its entry in the manifest.
    pub(super) fn listed(path: &Path, entry: FileEntry, stamps: Option<Stamps>) -> Result<Self, WeightFault> {
        Ok(Self::Manifest(Box::new(FileCheck::open(path, entry, stamps).map_err(Arc::new)?)))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Manifest(check) => check.path(),
            Self::Checksums(job) => &job.path,
        }
    }

    /// Compares a little more; returns whether all is compared.
    pub(super) fn step(&mut self) -> Result<bool, Finding> {
        let result = match self {
            Self::Manifest(check) => check.step(STEP).map_err(WeightFault::from),
            Self::Checksums(job) => job.step().map_err(WeightFault::from),
        };
        result.map_err(|fault| self.finding(fault))
    }

    /// Compares all that is left.
    pub(super) fn finish(&mut self) -> Result<(), Finding> {
        while !self.step()? {}
        Ok(())
    }

    /// Compares the lengths, which costs nothing.
    pub(super) fn compare_length(&self) -> Result<(), Finding> {
        let Self::Manifest(check) = self else { return Ok(()) };
        check.compare_length().map_err(|error| self.finding(error.into()))
    }

    /// Bytes to read until it is over.
    pub(super) fn n_bytes(&mut self) -> u64 {
        match self {
            Self::Manifest(check) => {
                if check.recall() {
                    0
                } else {
                    check.expected_bytes()
                }
            }
            Self::Checksums(job) => job.sums.file().metadata().map_or(u64::MAX, |meta| meta.len()),
        }
    }

    /// Remembers what was read.
    pub(super) fn leave_stamp(&mut self) {
        match self {
            Self::Manifest(check) => check.leave_stamp(),
            Self::Checksums(_) => {} // with its last step
        }
    }

    /// Of a file that differs from the manifest, its own checksums tell whether it is damaged: they name the place.
    fn finding(&self, fault: WeightFault) -> Finding {
        let path = self.path().to_owned();
        let sums = match (self, &fault) {
            (Self::Manifest(check), WeightFault::Manifest(error)) if is_change(error) => own_checksums(check.file()),
            _ => None,
        };
        match sums {
            Some(Ok(())) => Finding { path, fault, is_whole: true },
            Some(Err(damage)) => Finding { path, fault: damage.into(), is_whole: false },
            None => Finding { path, fault, is_whole: false },
        }
    }
}

fn is_change(error: &BundleError) -> bool {
    matches!(error, BundleError::FileChanged { .. })
}

/// Compares a file with all checksums in it; `None` if it has none, or cannot be read.
fn own_checksums(file: &File) -> Option<Result<(), SumsError>> {
    let compare = || -> Result<Option<()>, SumsError> {
        let Some(mut sums) = WeightSums::open(file.try_clone()?)? else { return Ok(None) };
        while !sums.step(STEP)? {}
        Ok(Some(()))
    };
    match compare() {
        Ok(found) => found.map(Ok),
        Err(SumsError::Io(_)) => None,
        Err(damage) => Some(Err(damage)),
    }
}

impl SumsJob {
    /// The checksums of a file; `None` if it has none, or there is nothing to do: `all` compares also what the backend has
    /// compared when it loaded the file, and what a stamp knows.
    pub(super) fn of(path: &Path, stamps: Option<&Stamps>, all: bool) -> Result<Checksums, SumsError> {
        let file = File::open(path)?;
        let identity = FileIdentity::of(&file).zip(stamps.cloned());
        let Some(sums) = WeightSums::open(file)? else { return Ok(Checksums::None) };
        let known = || identity.as_ref().is_some_and(|(file, stamps)| stamps.known(file).checksums);
        if !all && (sums.are_compared_on_load() || known()) {
            return Ok(Checksums::Compared);
        }
        Ok(Checksums::Open(Job::Checksums(Box::new(Self { path: path.to_owned(), sums, identity, began: None }))))
    }

    fn step(&mut self) -> Result<bool, SumsError> {
        let began = *self.began.get_or_insert_with(SystemTime::now);
        let over = self.sums.step(STEP)?;
        if let (true, Some((identity, stamps))) = (over, &self.identity)
            && identity.is_settled(began)
            && FileIdentity::of(self.sums.file()).as_ref() == Some(identity)
        {
            stamps.learn(identity, Known { sha256: None, checksums: true });
        }
        Ok(over)
    }
}

/// The checksums in a file.
pub(super) enum Checksums {
    /// It has none: it is no file of the embedded backend.
    None,
    /// They were compared before.
    Compared,
    /// They are to be compared.
    Open(Job),
}

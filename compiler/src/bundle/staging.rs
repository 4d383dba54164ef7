//! The bundle under construction, beside where it will stand.
//!
//! *Invariants*: the output directory is touched only by [`Staging::publish`], which exchanges it in one step; a bundle is
//! replaced by force only, and what its manifest does not list stays in the directory; a staging directory that is not
//! published is removed, by the next compilation if this one is killed.

use super::earlier::{self, Earlier, Found, Kept};
use crate::{CompileError, Result};
use file_io::{FolderPlace, NewFolder};
use std::path::{Path, PathBuf};

/// How often another process may change the output directory while this one publishes.
const ATTEMPTS: usize = 16;

/// A hidden directory that becomes the bundle.
#[derive(Debug)]
pub(crate) struct Staging {
    new: NewFolder,
    force: bool,
}

impl Staging {
    /// Checks the output place and makes the hidden directory next to it.
    pub(crate) fn begin(out: &Path, model_dir: &Path, force: bool) -> Result<Self> {
        let place = FolderPlace::of(out)?;
        // Not even by force: who names the model's own directory has mistaken one path for another.
        if let Ok(model) = model_dir.canonicalize()
            && model.starts_with(place.path())
        {
            return Err(CompileError::OutputUnfit { path: out.into(), why: "the model lies in it" });
        }
        earlier::sweep_old_names(place.path());
        match Found::at(place.path())? {
            Found::Nothing => {}
            Found::Bundle(_) if force => {}
            found => return Err(found.refusal(&place)),
        }
        Ok(Self { new: NewFolder::create(place)?, force })
    }

    /// The directory in which the bundle is for now.
    pub(crate) fn folder(&self) -> &Path {
        self.new.path()
    }

    /// Where a file of the bundle is written for now.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.new.path().join(file)
    }

    /// Puts the bundle in its place, with what was kept of an earlier one.
    ///
    /// # Errors
    /// The place is taken, perhaps since a moment ago, or the system refuses: the bundle that was there before stays.
    pub(crate) fn publish(mut self) -> Result<Kept> {
        self.new.sync()?;
        for _ in 0..ATTEMPTS {
            match Found::at(self.new.place().path())? {
                Found::Nothing if self.new.put()? => return Ok(Kept::default()),
                Found::Nothing => {}
                Found::Bundle(earlier) if self.force => {
                    if let Some(kept) = self.replace(&earlier)? {
                        return Ok(kept);
                    }
                }
                found => return Err(found.refusal(self.new.place())),
            }
        }
        Err(CompileError::OutputUnfit {
            path: self.new.place().asked().into(),
            why: "other processes keep on changing it",
        })
    }

    /// Takes the place of an earlier bundle; none if that one has gone meanwhile.
    fn replace(&mut self, earlier: &Earlier) -> Result<Option<Kept>> {
        let kept = earlier.carry_into(self.new.path())?;
        if !self.new.exchange()? {
            kept.remove_from(self.new.path());
            return Ok(None);
        }
        // What came out may be another folder than the one that was looked at.
        match self.finish(&kept) {
            Ok(()) => Ok(Some(kept)),
            Err(error) => {
                if !self.new.exchange()? {
                    tracing::error!("cannot put back `{}`", self.new.place().path().display());
                }
                Err(error)
            }
        }
    }

    /// Looks at the replaced folder before it is removed.
    fn finish(&self, kept: &Kept) -> Result<()> {
        match Found::at(self.new.path())? {
            Found::Nothing => Ok(()),
            Found::Bundle(replaced) => replaced.carry_late(kept, self.new.place().path()),
            found @ Found::Other { .. } => Err(found.refusal(self.new.place())),
        }
    }
}

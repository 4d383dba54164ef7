//! The bundle under construction, beside where it will stand.
//!
//! *Invariants*: the output directory is touched only by [`Staging::publish`], which exchanges it in one step; a bundle is
//! replaced by force only, and what its manifest does not list stays in the directory; a staging directory that is not
//! published is removed, by the next compilation if this one is killed; a replaced directory only if nothing is lost with it.

use super::earlier::{self, Earlier, Found, Kept};
use crate::{CompileError, Result};
use file_io::{FolderError, FolderPlace, NewFolder};
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
        earlier::sweep_replaced(place.path());
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
        match Found::at(self.new.path()) {
            Ok(Found::Nothing) => Ok(Some(kept)),
            Ok(Found::Bundle(replaced)) => {
                self.carry_late(&replaced, &kept);
                Ok(Some(kept))
            }
            Ok(found @ Found::Other { .. }) => {
                let error = found.refusal(self.new.place());
                self.put_back();
                Err(error)
            }
            Err(error) => {
                self.put_back();
                Err(error)
            }
        }
    }

    /// Moves over what came into the replaced bundle until the exchange. Part of it may have been moved when one entry
    /// cannot be, so there is no way back: the replaced bundle stays, with the rest of it.
    fn carry_late(&mut self, replaced: &Earlier, kept: &Kept) {
        let Err(error) = replaced.carry_late(kept, self.new.place().path()) else { return };
        let place = self.new.place().asked().display().to_string();
        let stays = self.new.keep();
        tracing::warn!("`{place}` is replaced; the earlier folder is kept as `{}`: {error}", stays.display());
    }

    /// Exchanges again. Whatever becomes of it, the folder that was there is not removed.
    fn put_back(&mut self) {
        let is_back = match self.new.exchange() {
            // Another process has taken the new bundle away.
            Ok(false) => self.new.put(),
            done => done,
        };
        self.settle(is_back);
    }

    /// Keeps what is under the hidden name if it is not back.
    fn settle(&mut self, is_back: std::result::Result<bool, FolderError>) {
        let why = match is_back {
            Ok(true) => return,
            Ok(false) => "its place is taken".to_owned(),
            Err(error) => error.to_string(),
        };
        let place = self.new.place().asked().display().to_string();
        let stays = self.new.keep();
        tracing::error!("cannot put back `{place}`, it is now `{}`: {why}", stays.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "model").collect();
        names.sort();
        names
    }

    /// A bundle of nothing but a manifest is looked at; another process then puts something else in its place.
    fn exchanged_meanwhile(dir: &Path) -> (Staging, Earlier) {
        let out = dir.join("out");
        write(&out.join("manifest.json"), r#"{"format":"open-genie-bundle","version":1,"files":[]}"#);
        let staging = Staging::begin(&out, &dir.join("model"), true).unwrap();
        let Found::Bundle(earlier) = Found::at(&out).unwrap() else { panic!("a bundle") };
        std::fs::remove_dir_all(&out).unwrap();
        write(&out.join("thesis.tex"), "mine");
        (staging, earlier)
    }

    #[test]
    fn what_is_no_bundle_any_more_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut staging, earlier) = exchanged_meanwhile(dir.path());
        let (error, out) = (staging.replace(&earlier).unwrap_err(), dir.path().join("out"));
        assert!(error.to_string().ends_with("it holds `thesis.tex`"), "{error}");
        drop(staging);
        assert_eq!((names(dir.path()), names(&out)), (vec!["out".into()], vec!["thesis.tex".into()]));
    }

    /// The old folder was removed under its hidden name when it could not be exchanged back.
    #[test]
    fn what_cannot_be_exchanged_back_is_not_removed() {
        let unfit = || FolderError::Unfit { path: "out".into(), why: file_io::UnfitPlace::MountPoint };
        for (is_back, place) in [(None, "out"), (Some(Ok(false)), "out.kept"), (Some(Err(unfit())), "out.kept")] {
            let dir = tempfile::tempdir().unwrap();
            let (mut staging, _) = exchanged_meanwhile(dir.path());
            let out = dir.path().join("out");
            assert!(staging.new.exchange().unwrap());
            match is_back {
                None => {
                    std::fs::remove_dir_all(&out).unwrap();
                    staging.put_back();
                }
                Some(is_back) => staging.settle(is_back),
            }
            drop(staging);
            assert_eq!(names(&dir.path().join(place)), ["thesis.tex"], "{:?}", names(dir.path()));
        }
    }
}

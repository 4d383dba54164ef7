//! The forecast prefix: read once for a model, and put in front of the dialog whenever it is not there.

use std::path::PathBuf;

use engine::{EngineError, TokenModel};
use session_store::ForecastPrefix;

use crate::conversation::error::DialogError;

/// A prefix on disk, read when it is first needed.
#[derive(Debug)]
pub(super) struct Prefix {
    dir: PathBuf,
    n_rows: usize,
    read: Option<ForecastPrefix>,
}

impl Prefix {
    pub(super) fn new(dir: PathBuf, n_rows: usize) -> Self {
        Self { dir, n_rows, read: None }
    }

    /// Makes sure that the model has the prefix. A cache without it is taken apart and put together again, which happens
    /// once in a dialog, and after a reset or a dialog that was restored from elsewhere.
    pub(super) fn put_into(&mut self, model: &mut dyn TokenModel) -> Result<(), DialogError> {
        let sequences = model.sequences().ok_or(EngineError::Unsupported {
            what: "a forecast prefix on this model".into(),
            hint: "; use a dialog of type `basic`",
        })?;
        if sequences.transcript_of(ForecastPrefix::SEQ).is_some_and(|tokens| tokens.len() == self.n_rows) {
            return Ok(());
        }
        let prefix = match self.read.take() {
            Some(prefix) => prefix,
            None => self.load(model)?,
        };
        let prefix = self.read.insert(prefix);
        let snapshot = model.snapshot()?;
        Ok(model.restore_snapshot(&prefix.before(snapshot))?)
    }

    fn load(&self, model: &mut dyn TokenModel) -> Result<ForecastPrefix, DialogError> {
        let prefix = ForecastPrefix::read(&self.dir, &model.cache_schema()?.tensors)?;
        let (expected, found) = (self.n_rows, prefix.n_rows());
        if expected != found {
            return Err(DialogError::Kind {
                kind: super::NAME,
                expected: format!("a forecast prefix of {expected} rows in `{}`", self.dir.display()),
                found: format!("one of {found}"),
            });
        }
        Ok(prefix)
    }
}

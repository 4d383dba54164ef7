//! The forecast prefix: read once for a model, and put in front of the dialog whenever it is not there.

use std::path::PathBuf;

use engine::{EngineError, TokenModel};
use session_store::ForecastPrefix;

use crate::conversation::error::DialogError;

/// Genie's name of the kind.
pub(super) const NAME: &str = "ssd-q1";

/// A prefix on disk, read when it is first needed.
#[derive(Debug)]
pub(super) struct Prefix {
    dir: PathBuf,
    /// Rows that it must have.
    wanted: Option<usize>,
    read: Option<ForecastPrefix>,
}

impl Prefix {
    pub(super) fn new(dir: PathBuf, wanted: Option<usize>) -> Self {
        Self { dir, wanted, read: None }
    }

    /// Rows; those that are wanted until it was read.
    pub(super) fn n_rows(&self) -> usize {
        self.read.as_ref().map_or(self.wanted.unwrap_or(0), ForecastPrefix::n_rows)
    }

    /// Makes sure that the model has the prefix. A cache without it is taken apart and put together again, which happens
    /// once in a dialog, and after a reset or a dialog that was restored from elsewhere.
    pub(super) fn put_into(&mut self, model: &mut dyn TokenModel) -> Result<(), DialogError> {
        let prefix = match self.read.take() {
            Some(prefix) => prefix,
            None => self.load(model)?,
        };
        let prefix = self.read.insert(prefix);
        let sequences = model.sequences().ok_or(EngineError::Unsupported {
            what: "a forecast prefix on this model".into(),
            hint: "; use a dialog of type `basic`",
        })?;
        if sequences.transcript_of(ForecastPrefix::SEQ).is_some_and(|tokens| tokens.len() == prefix.n_rows()) {
            return Ok(());
        }
        let snapshot = model.snapshot()?;
        Ok(model.restore_snapshot(&prefix.before(snapshot))?)
    }

    /// Read from the folder.
    pub(super) fn load(&self, model: &mut dyn TokenModel) -> Result<ForecastPrefix, DialogError> {
        let prefix = ForecastPrefix::read(&self.dir, &model.cache_schema()?.tensors)?;
        let found = prefix.n_rows();
        let dir = self.dir.display();
        let expected = match self.wanted {
            Some(wanted) if wanted != found => format!("a forecast prefix of {wanted} rows in `{dir}`"),
            None if found == 0 => format!("a forecast prefix of at least one row in `{dir}`"),
            _ => return Ok(prefix),
        };
        Err(DialogError::Kind { kind: NAME, expected, found: format!("one of {found}") })
    }
}

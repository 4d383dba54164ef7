//! Files of a bundle to graphs with meaning.

use std::path::Path;

use crate::EngineError;

/// Says that a file is not there before anything else tries to open it.
pub(crate) fn must_exist(what: &'static str, path: &Path) -> Result<(), EngineError> {
    if path.exists() { Ok(()) } else { Err(EngineError::MissingFile { what, path: path.to_owned() }) }
}

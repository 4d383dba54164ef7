//! Errors for the user: causes without repeats, as text and as JSON.

pub mod code;

use anyhow::Error;
use compiler::CompileError;
use engine::EngineError;
use serde_json::{Value, json};

use crate::hints;
use crate::interrupt::{Interrupted, Signal};

pub use crate::user_error::UserError;

/// The causes below the error, without those that the text above already contains.
pub fn causes(error: &Error) -> Vec<String> {
    let mut above = error.to_string();
    let mut causes = Vec::new();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        if !above.contains(&text) {
            causes.push(text.clone());
        }
        above = text;
    }
    causes
}

/// The JSON form: `{"error": {"code", "message", "hint", "cause"}}`, beside what the command has produced before it failed.
pub fn document(error: &Error) -> Value {
    let form = json!({
        "code": code::of(error),
        "message": error.to_string(),
        "hint": hints::of(error),
        "cause": causes(error),
    });
    let partial = error.chain().find_map(|e| e.downcast_ref::<Partial>());
    let mut document = partial.map_or_else(|| json!({}), |partial| partial.record.clone());
    document["error"] = form;
    document
}

/// Whether work was ended on request.
pub fn is_stop(error: &Error) -> bool {
    error.chain().any(|e| {
        e.is::<Interrupted>()
            || e.downcast_ref::<open_genie::Error>().is_some_and(open_genie::Error::is_stopped)
            || matches!(e.downcast_ref(), Some(EngineError::Stopped { .. }))
            || matches!(e.downcast_ref(), Some(CompileError::Cancelled))
    })
}

/// The interruption that has ended work, in place of what the library says of it.
pub fn as_interruption(signal: Signal, error: Error) -> Error {
    match error.chain().any(|e| e.is::<Interrupted>()) {
        true => error,
        false => Error::new(Interrupted::new(signal, error.to_string())),
    }
}

/// An error after a part of the work: `record` is what `--json` prints of that part.
#[derive(Debug)]
pub struct Partial {
    record: Value,
    error: Error,
}

impl Partial {
    /// The error with the record, an object.
    pub fn error(record: Value, error: Error) -> Error {
        Error::new(Self { record, error })
    }
}

impl std::fmt::Display for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Partial {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_quoted_above_is_not_repeated() {
        let error = anyhow::anyhow!("no such file").context("cannot read `a`: no such file").context("cannot run");
        assert_eq!(causes(&error), ["cannot read `a`: no such file"]);
    }

    #[test]
    fn a_partial_record_carries_its_error() {
        let error = UserError::error("no room", "make room").context("cannot save");
        let document = document(&Partial::error(json!({"text": "so far"}), error));
        let form =
            json!({"code": "invalid-argument", "message": "cannot save", "hint": "make room", "cause": ["no room"]});
        assert_eq!(document, json!({"text": "so far", "error": form}));
    }
}

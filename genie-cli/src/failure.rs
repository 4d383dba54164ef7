//! What an error chain says to a person: its causes without repeats, a hint, and whether it is one at all.

use std::io;

/// A reader that went away (`genie ... | head`) is no failure.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// The causes below the error, leaving out those whose text the one above already holds.
pub fn causes(error: &anyhow::Error) -> Vec<String> {
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

/// An error with a hint of what to do about it.
#[derive(Debug)]
pub struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    /// As an `anyhow` error.
    pub fn error(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { message: message.into(), hint: hint.into() })
    }
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// The first hint along the chain.
pub fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|e| {
        let own = e.downcast_ref::<Hinted>().map(|h| h.hint.clone());
        own.or_else(|| e.downcast_ref::<qnn_api::Error>()?.hint())
            .or_else(|| crate::compile_hint::of(e.downcast_ref()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_quoted_above_is_not_said_twice() {
        let error = anyhow::anyhow!("no such file").context("cannot read `a`: no such file").context("cannot run");
        assert_eq!(causes(&error), ["cannot read `a`: no such file"]);
    }

    #[test]
    fn a_broken_pipe_is_found_below_other_errors() {
        let pipe = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot print");
        assert!(is_broken_pipe(&pipe));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }

    #[test]
    fn a_hint_survives_context() {
        let error = Hinted::error("no", "do that").context("cannot");
        assert_eq!(hint(&error).as_deref(), Some("do that"));
    }
}

//! Errors for the user: causes without repeats, and broken pipes, which are no failure.

use std::io;

/// True if the reader of stdout has closed the pipe (`genie ... | head`).
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// The causes below the error, without those that the text above already contains.
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

/// An error that the user can fix, with a hint how.
#[derive(Debug)]
pub struct UserError {
    message: String,
    hint: String,
}

impl UserError {
    /// As an `anyhow` error.
    pub fn error(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { message: message.into(), hint: hint.into() })
    }

    /// What to do about it.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl std::fmt::Display for UserError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for UserError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_quoted_above_is_not_repeated() {
        let error = anyhow::anyhow!("no such file").context("cannot read `a`: no such file").context("cannot run");
        assert_eq!(causes(&error), ["cannot read `a`: no such file"]);
    }

    #[test]
    fn a_broken_pipe_is_found_below_other_errors() {
        let pipe = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot print");
        assert!(is_broken_pipe(&pipe));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }
}

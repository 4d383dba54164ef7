//! A mistake of the user's that no library has an error for.

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

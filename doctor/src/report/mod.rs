//! A case and what was found, for people ([`Report`]'s `Display`) and for programs ([`Report::to_json`]).

mod json;
mod text;

use crate::{Case, Finding, Severity};

/// What the doctor says.
#[derive(Clone, Copy, Debug)]
pub struct Report<'r> {
    /// All that is known.
    pub case: &'r Case,
    /// All that is wrong.
    pub findings: &'r [Finding],
}

impl Report<'_> {
    /// Findings of that severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

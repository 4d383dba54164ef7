//! The facts and the findings as text ([`Report`]'s `Display`) or as JSON ([`Report::to_json`]).

mod json;
mod text;

use crate::{Facts, Finding, Fix, Severity};

/// A report on facts and their findings.
#[derive(Clone, Copy, Debug)]
pub struct Report<'r> {
    facts: &'r Facts,
    findings: &'r [Finding],
    wording: fn(&Fix) -> String,
}

impl<'r> Report<'r> {
    /// With the neutral wording of fixes.
    pub fn new(facts: &'r Facts, findings: &'r [Finding]) -> Self {
        Self { facts, findings, wording: Fix::to_string }
    }

    /// With a program's own wording of fixes, which can name its flags.
    pub fn worded(self, wording: fn(&Fix) -> String) -> Self {
        Self { wording, ..self }
    }

    /// Number of findings of that severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

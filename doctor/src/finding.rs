//! A rule, and a place where it is broken: what, where, why it matters, how to fix it.

use core::fmt;

use crate::Fix;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Works, but perhaps not as intended, or not everywhere.
    Warning,
    /// Does not load, stops, or generates wrong text.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// A condition that must hold. Its id is for scripts and for `docs/doctor.md`, and never changes its meaning.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Lower-case words with dashes.
    pub id: &'static str,
    /// How bad a breach usually is.
    pub severity: Severity,
    /// What a breach is, in one line.
    pub title: &'static str,
    /// What happens then.
    pub why: &'static str,
    /// How to fix it.
    pub fix: Fix,
}

/// A broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// How bad it is here.
    pub severity: Severity,
    /// Where: a file, a graph of a file, a key of a config, a variable.
    pub at: String,
    /// What was found there, and what was expected.
    pub what: String,
    /// How to fix it here.
    pub fix: Fix,
}

impl Finding {
    /// Replaces the rule's general fix by one for these facts.
    pub fn fix(&mut self, fix: impl Into<Fix>) -> &mut Self {
        self.fix = fix.into();
        self
    }

    /// Replaces the rule's general fix by another.
    pub(crate) fn set_fix(&mut self, fix: Fix) -> &mut Self {
        self.fix = fix;
        self
    }

    /// Replaces the rule's usual severity.
    pub fn severity(&mut self, severity: Severity) -> &mut Self {
        self.severity = severity;
        self
    }

    /// The finding with a worded fix.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, fix: &str) -> fmt::Result {
        let Self { rule, severity, at, what, .. } = self;
        write!(f, "{severity}[{}] {at}: {what}\n  why: {}\n  do:  {fix}", rule.id, rule.why)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &self.fix.to_string())
    }
}

/// The findings of the checks so far.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a finding; the result can be made more specific.
    pub fn add(&mut self, rule: &'static Rule, at: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        let fix = rule.fix.clone();
        self.0.push(Finding { rule, severity: rule.severity, at: at.into(), what: what.into(), fix });
        self.0.last_mut().expect("just pushed")
    }

    /// True if that rule has a finding already.
    pub fn has(&self, rule: &Rule) -> bool {
        self.0.iter().any(|finding| finding.rule.id == rule.id)
    }

    /// All findings: errors first, otherwise in the order of the checks.
    pub fn into_sorted(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| core::cmp::Reverse(finding.severity));
        self.0
    }
}

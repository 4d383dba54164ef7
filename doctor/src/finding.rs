//! A rule, and a place where it is broken: what, where, why it matters, what to do.

use core::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Works, but perhaps not as meant, or not everywhere.
    Warning,
    /// Will not load, will stop, or will say nonsense.
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

/// Something that must be so. Its id is for machines and for `docs/doctor.md`, and never changes its meaning.
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
    /// What to do about it.
    pub cure: &'static str,
}

/// A rule that is broken somewhere.
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
    /// What to do about it, here.
    pub cure: String,
}

impl Finding {
    /// Says what to do in this very case, in place of the rule's general words.
    pub fn cure(&mut self, cure: impl Into<String>) -> &mut Self {
        self.cure = cure.into();
        self
    }

    /// Makes it more or less bad than the rule usually is.
    pub fn severity(&mut self, severity: Severity) -> &mut Self {
        self.severity = severity;
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, severity, at, what, cure } = self;
        write!(f, "{severity}[{}] {at}: {what}\n  why: {}\n  do:  {cure}", rule.id, rule.why)
    }
}

/// Where checks put what they find.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a breach; the answer may be made more precise.
    pub fn add(&mut self, rule: &'static Rule, at: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        let cure = rule.cure.to_owned();
        self.0.push(Finding { rule, severity: rule.severity, at: at.into(), what: what.into(), cure });
        self.0.last_mut().expect("just pushed")
    }

    /// True if that rule was broken already.
    pub fn has(&self, rule: &Rule) -> bool {
        self.0.iter().any(|finding| finding.rule.id == rule.id)
    }

    /// All of them: errors first, otherwise as they were found.
    pub fn into_sorted(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| core::cmp::Reverse(finding.severity));
        self.0
    }
}

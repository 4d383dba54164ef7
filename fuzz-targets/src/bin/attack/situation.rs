//! One situation: what was changed, which commands to run, and what a good answer is.

use std::time::Duration;

use rustix::process::Signal;

/// A call of `genie`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) args: Vec<String>,
    /// Shell text before the program: limits, directions of stdin and stdout.
    pub(crate) before: String,
    /// Shell text behind it: a reader of its output.
    pub(crate) behind: String,
    /// Bytes on stdin; closed at once where there are none.
    pub(crate) stdin: Vec<u8>,
    /// A signal after some time.
    pub(crate) signal: Option<(Duration, Signal)>,
    /// The next step runs in any case.
    pub(crate) may_fail: bool,
}

impl Step {
    /// `genie` with these arguments.
    pub(crate) fn new<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Self {
        Self { args: args.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

/// What a good answer is, beside a refusal that names the change.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// A refusal only.
    Refuse,
    /// Success, if the last output is not this one, or the change is named on stderr: it was used.
    Used(String),
    /// Success, if the last output is this one: it changes nothing.
    Same(String),
    /// Success with this last output, never a refusal.
    Works(String),
    /// Success with any output, never a refusal.
    Runs,
    /// Success with any output.
    Open,
}

/// A situation. Paths in it are relative to a folder of its own.
#[derive(Clone, Debug)]
pub(crate) struct Situation {
    /// What was changed, for the list.
    pub(crate) what: String,
    /// Words of which one must stand in a refusal, or in a note.
    pub(crate) names: Vec<String>,
    pub(crate) expect: Expect,
    pub(crate) steps: Vec<Step>,
    /// A refusal must come from the first step.
    pub(crate) early: bool,
}

impl Situation {
    pub(crate) fn new(what: impl Into<String>, expect: Expect, steps: Vec<Step>) -> Self {
        Self { what: what.into(), names: Vec::new(), expect, steps, early: false }
    }

    /// Adds words.
    pub(crate) fn named<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    pub(crate) fn early(mut self) -> Self {
        self.early = true;
        self
    }
}

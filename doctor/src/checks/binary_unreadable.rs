//! Files that no system library can read: torn, or no context binaries at all.

use crate::case::{Content, FileState};
use crate::{Case, Findings, Rule, Severity};

/// Damaged, or something else.
pub const RULE: Rule = Rule {
    id: "binary-unreadable",
    severity: Severity::Error,
    title: "a file that is no context binary, or a damaged one",
    why: "loading it fails: 30010, 5000 or 5005",
    cure: "copy it again, or compile it again",
};

/// Nobody here can read it.
pub const UNEXAMINED_RULE: Rule = Rule {
    id: "binary-unexamined",
    severity: Severity::Warning,
    title: "a binary that nothing on this machine can read",
    why: "its chip, its build and its graphs could not be checked",
    cure: "name a folder with `libQnnSystem.so`: `--libs DIR` (`cargo xtask qnn-runtime` fetches one)",
};

/// Each binary that is there.
pub fn check(case: &Case, found: &mut Findings) {
    for binary in case.binaries() {
        if !matches!(binary.file, FileState::Present { bytes } if bytes > 0) {
            continue;
        }
        match &binary.content {
            Content::Described(info) if info.graphs.is_empty() => {
                found.add(&RULE, binary.name(), "holds no graph");
            }
            Content::Described(_) => {}
            Content::Refused(refusals) => {
                let words: Vec<_> = refusals.iter().map(|r| format!("{} ({})", r.words, r.library)).collect();
                found.add(&RULE, binary.name(), words.join("; "));
            }
            Content::Unexamined(words) => {
                found.add(&UNEXAMINED_RULE, binary.name(), words.clone());
            }
        }
    }
}

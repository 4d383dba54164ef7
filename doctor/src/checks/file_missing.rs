//! Every file that the config names must be there.

use crate::case::FileState;
use crate::{Case, Findings, Rule, Severity};

/// Not there.
pub const RULE: Rule = Rule {
    id: "file-missing",
    severity: Severity::Error,
    title: "a file that the config names is not there",
    why: "the dialog cannot be created",
    cure: "copy it there, or correct the path; relative paths start at the config's folder (with Qualcomm's Genie: at the \
           folder where the program was started)",
};

/// There only as seen from where the program was started.
pub const BASE_RULE: Rule = Rule {
    id: "path-base",
    severity: Severity::Error,
    title: "a relative path that leads to a file from the current folder only",
    why: "here paths start at the config's folder; Qualcomm's Genie finds it only when started from this very folder",
    cure: "write the path from the config's folder, or an absolute one",
};

/// No file at all.
pub const UNUSABLE_RULE: Rule = Rule {
    id: "file-unusable",
    severity: Severity::Error,
    title: "a path that leads to a folder, to an empty file, or to what may not be read",
    why: "the dialog cannot be created",
    cure: "correct the path or the file's permissions, or copy the file again",
};

/// Every path of the config.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(bundle) = &case.bundle else { return };
    for file in bundle.named_files() {
        let at = || bundle.config.as_ref().map_or_else(|| file.written.to_owned(), |config| config.at(file.pointer));
        let path = file.path.display();
        match file.state {
            FileState::Missing { in_cwd: false } => {
                found.add(&RULE, at(), format!("no file `{path}`"));
            }
            FileState::Missing { in_cwd: true } => {
                let cwd = case.machine.cwd.display();
                let what = format!("no file `{path}`, but `{}` is there in the current folder, `{cwd}`", file.written);
                found.add(&BASE_RULE, at(), what);
            }
            FileState::Unusable(words) => {
                found.add(&UNUSABLE_RULE, at(), format!("`{path}`: {words}"));
            }
            FileState::Present { bytes: 0 } => {
                found.add(&UNUSABLE_RULE, at(), format!("`{path}` is empty"));
            }
            FileState::Present { .. } => {}
        }
    }
}

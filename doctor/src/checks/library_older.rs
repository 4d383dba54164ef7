//! A binary is read by libraries of its own release or of a later one.

use qnn_api::library::runtime;

use crate::case::Build;
use crate::{Case, Findings, Rule, Severity};

/// The library is older.
pub const RULE: Rule = Rule {
    id: "library-older",
    severity: Severity::Error,
    title: "a binary made by a newer QAIRT than the library that is to load it",
    why: "older libraries refuse newer binaries: 5000, 5004 or 1008",
    cure: "use the release that made the binary, or a later one; or compile again with this library",
};

/// Each HTP binary against `libQnnHtp.so`: build and core interface.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(library) = case.machine.library(runtime::HTP) else { return };
    let core = case.machine.htp.as_ref().and_then(|answer| answer.as_ref().ok()).map(|versions| versions.core);
    for (binary, info) in case.htp_binaries() {
        let made_by = Build::parse(&info.build_id);
        let what = match (made_by, library.build) {
            (Some(made_by), Some(build)) if made_by.release > build.release => {
                format!("made by {made_by}, but `{}` is of {build}", library.path.display())
            }
            _ if core.is_some_and(|core| info.core_version > core) => {
                let core = core.unwrap_or_default();
                format!("made with core API {}, but `{}` has {core}", info.core_version, library.path.display())
            }
            _ => continue,
        };
        found.add(&RULE, binary.name(), what);
    }
}

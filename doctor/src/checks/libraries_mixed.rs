//! Backend, preparer, stub and skel of one release, in the backend's folder.

use qnn_api::library::runtime;

use crate::{Case, Findings, Rule, Severity};

/// Parts of different releases.
pub const RULE: Rule = Rule {
    id: "libraries-mixed",
    severity: Severity::Error,
    title: "QNN libraries of different releases in one folder",
    why: "backend, stub and skel check one another: 1008 (incompatible binaries), or a crash",
    cure: "take all of them from one QAIRT release",
};

/// Compares every part that carries a build id with the backend.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(htp) = case.machine.library(runtime::HTP) else { return };
    let Some(want) = htp.build else { return };
    for part in &case.machine.libraries {
        let Some(build) = part.build else { continue };
        let beside = part.path.parent() == htp.path.parent();
        if beside && part.name.starts_with("lib") && build.release != want.release {
            found.add(
                &RULE,
                part.path.display().to_string(),
                format!("is of {build}, but `{}` beside it of {want}", htp.name),
            );
        }
    }
}

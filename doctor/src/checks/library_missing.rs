//! HTP binaries need `libQnnHtp.so`, and `libQnnSystem.so` with it.

use qnn_api::library::runtime;

use crate::{Case, Findings, Rule, Severity};

/// No backend.
pub const RULE: Rule = Rule {
    id: "library-missing",
    severity: Severity::Error,
    title: "no `libQnnHtp.so` for a bundle that needs it",
    why: "nothing on this machine can execute HTP binaries",
    cure: "put QNN's libraries into one folder and name it: `--libs DIR`, `QNN_RUNTIME_DIR` or `LD_LIBRARY_PATH`",
};

/// A backend without its system library.
pub const SYSTEM_RULE: Rule = Rule {
    id: "system-library-missing",
    severity: Severity::Error,
    title: "`libQnnHtp.so` without `libQnnSystem.so`",
    why: "context binaries cannot be described, and Genie does not start without it",
    cure: "copy `libQnnSystem.so` of the same QAIRT release beside it",
};

/// The system interface.
pub const SYSTEM: &str = "libQnnSystem.so";

/// Both libraries, where they are needed.
pub fn check(case: &Case, found: &mut Findings) {
    let machine = &case.machine;
    match machine.library(runtime::HTP) {
        None if case.htp_binaries().next().is_some() => {
            let folders: Vec<_> = machine.searched.iter().map(|folder| format!("`{}`", folder.display())).collect();
            let tried = if folders.is_empty() { "no folder".into() } else { folders.join(", ") };
            let finding = found.add(&RULE, runtime::HTP, format!("not found in {tried}"));
            // A bundle for a phone may well be looked at on a laptop.
            if !case.device.is_some_and(|device| device.here) && machine.arch == "x86_64" {
                finding.severity(Severity::Warning);
            }
        }
        Some(htp) if machine.library(SYSTEM).is_none() => {
            found.add(&SYSTEM_RULE, htp.path.display().to_string(), format!("no `{SYSTEM}` beside it or on the path"));
        }
        _ => {}
    }
}

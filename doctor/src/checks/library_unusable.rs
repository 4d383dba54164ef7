//! A library that is there but cannot be used: wrong processor, missing helpers, an interface that is too old.

use qnn_api::library::runtime;

use super::library_missing::SYSTEM;
use crate::{Case, Findings, Rule, Severity};

/// The first copy cannot be opened.
pub const RULE: Rule = Rule {
    id: "library-unusable",
    severity: Severity::Error,
    title: "a QNN library that cannot be opened, or whose interface is too old",
    why: "Genie then says `Unable to find a valid interface` and does not start",
    cure: "use the libraries of one current QAIRT release for this processor, in a folder that is searched first",
};

/// What opening the first copies gave.
pub fn check(case: &Case, found: &mut Findings) {
    let machine = &case.machine;
    let htp = machine.htp.as_ref().and_then(|answer| answer.as_ref().err());
    let system = machine.system.as_ref().and_then(|answer| answer.as_ref().err());
    for (name, words) in [(runtime::HTP, htp), (SYSTEM, system)] {
        let Some(words) = words else { continue };
        // Only libraries for this processor are opened.
        let opened = machine.libraries.iter().find(|library| library.name == name && library.native);
        let path = opened.map_or_else(|| name.to_owned(), |library| library.path.display().to_string());
        found.add(&RULE, path, words.clone());
    }
}

//! Checks of the releases that made the binaries.

use qnn_api::library::runtime;

use super::Check;
use crate::facts::Build;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&LIBRARY_OLDER], run: library_older },
    Check { rules: &[&BINARIES_DIFFER, &BUILDS_DIFFER], run: binaries_differ },
];

const LIBRARY_OLDER: Rule = Rule {
    id: "library-older",
    severity: Severity::Error,
    title: "a binary made by a newer QAIRT than the library that is to load it",
    why: "older libraries refuse newer binaries: 5000, 5004 or 1008",
    fix: Fix::Text("use the release that made the binary, or a later one; or compile again with this library"),
};

/// Each HTP binary's build and core API against `libQnnHtp.so`.
fn library_older(facts: &Facts, found: &mut Findings) {
    let Some(library) = facts.machine.library(runtime::HTP) else { return };
    let core = facts.machine.htp.as_ref().and_then(|opened| opened.as_ref().ok()).map(|versions| versions.core);
    for (binary, info) in facts.htp_binaries() {
        let made_by = Build::parse(&info.build_id);
        let what = match (made_by, library.build) {
            (Some(made_by), Some(build)) if made_by.release > build.release => {
                format!("made by {made_by}, but `{}` is from {build}", library.path.display())
            }
            _ if core.is_some_and(|core| info.core_version > core) => {
                let core = core.unwrap_or_default();
                format!("made with core API {}, but `{}` has {core}", info.core_version, library.path.display())
            }
            _ => continue,
        };
        found.add(&LIBRARY_OLDER, binary.name(), what);
    }
}

const BINARIES_DIFFER: Rule = Rule {
    id: "binaries-differ",
    severity: Severity::Error,
    title: "binaries of one bundle for different backends or DSP architectures",
    why: "no device can load all of them",
    fix: Fix::Text("compile the whole bundle again for one device"),
};

const BUILDS_DIFFER: Rule = Rule {
    id: "builds-differ",
    severity: Severity::Warning,
    title: "binaries of one bundle made by different releases",
    why: "works if the library is as new as the newest of them; encodings of tensors between splits may differ",
    fix: Fix::Text("compile the whole bundle again with one release"),
};

/// Each binary against the first.
fn binaries_differ(facts: &Facts, found: &mut Findings) {
    let mut all = facts.described();
    let Some((first, reference)) = all.next() else { return };
    for (binary, info) in all {
        if (info.backend_id, info.dsp_arch) != (reference.backend_id, reference.dsp_arch) {
            let words = |info: &qnn_api::BinaryInfo| {
                let arch = info.dsp_arch.map_or_else(String::new, |arch| format!(", V{arch}"));
                format!("backend {}{arch}", info.backend_id)
            };
            let what = format!("is for {}, but {} for {}", words(info), first.name(), words(reference));
            found.add(&BINARIES_DIFFER, binary.name(), what);
        }
        if let (Some(a), Some(b)) = (Build::parse(&info.build_id), Build::parse(&reference.build_id))
            && a.release != b.release
        {
            found.add(&BUILDS_DIFFER, binary.name(), format!("made by {a}, but {} by {b}", first.name()));
        }
    }
}

//! The binaries of one bundle: made together, for one chip.

use crate::case::Build;
use crate::{Case, Findings, Rule, Severity};

/// Made for different chips.
pub const RULE: Rule = Rule {
    id: "binaries-differ",
    severity: Severity::Error,
    title: "binaries of one bundle for different backends or DSP architectures",
    why: "no device can load all of them",
    cure: "compile the bundle again, all of it with the same target",
};

/// Made by different releases.
pub const BUILD_RULE: Rule = Rule {
    id: "builds-differ",
    severity: Severity::Warning,
    title: "binaries of one bundle made by different releases",
    why: "works if the library is as new as the newest of them; encodings between splits may have drifted",
    cure: "compile the bundle again in one go",
};

/// Each binary against the first.
pub fn check(case: &Case, found: &mut Findings) {
    let mut all = case.described();
    let Some((first, reference)) = all.next() else { return };
    for (binary, info) in all {
        if (info.backend_id, info.dsp_arch) != (reference.backend_id, reference.dsp_arch) {
            let words = |info: &qnn_api::BinaryInfo| {
                let arch = info.dsp_arch.map_or_else(String::new, |arch| format!(", V{arch}"));
                format!("backend {}{arch}", info.backend_id)
            };
            let what = format!("is for {}, but {} for {}", words(info), first.name(), words(reference));
            found.add(&RULE, binary.name(), what);
        }
        if let (Some(a), Some(b)) = (Build::parse(&info.build_id), Build::parse(&reference.build_id))
            && a.release != b.release
        {
            found.add(&BUILD_RULE, binary.name(), format!("made by {a}, but {} by {b}", first.name()));
        }
    }
}

//! `ADSP_LIBRARY_PATH` is taken apart at `;`. A `:` is part of a folder's name.

use crate::{Case, Findings, Rule, Severity};

/// The wrong separator.
pub const RULE: Rule = Rule {
    id: "adsp-separator",
    severity: Severity::Error,
    title: "`:` as separator in `ADSP_LIBRARY_PATH`",
    why: "the DSP's loader takes it as part of the path, finds no such folder, and the skel is not found (1003)",
    cure: "write `;` between the folders, and quote the value in a shell",
};

/// Looks for `:` in the variable.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(adsp) = case.machine.adsp.as_ref().filter(|adsp| adsp.raw.contains(':')) else { return };
    found
        .add(&RULE, "ADSP_LIBRARY_PATH", format!("`{}` has `:` where `;` is meant", adsp.raw))
        .cure(format!("export ADSP_LIBRARY_PATH=\"{}\"", adsp.raw.replace(':', ";")));
}

//! Folders of `ADSP_LIBRARY_PATH` that are not there.

use crate::{Case, Findings, Rule, Severity};

/// No such folder.
pub const RULE: Rule = Rule {
    id: "adsp-folder",
    severity: Severity::Warning,
    title: "a folder of `ADSP_LIBRARY_PATH` that is not there, or is relative",
    why: "the DSP's loader skips it without a word; a relative one starts wherever the program was started",
    cure: "write the absolute path of the folder with the skel libraries",
};

/// Each folder; a value with the wrong separator is another rule's.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(adsp) = case.machine.adsp.as_ref().filter(|adsp| !adsp.raw.contains(':')) else { return };
    for (folder, files) in &adsp.folders {
        let what = match files {
            None => format!("no folder `{}`", folder.display()),
            Some(_) if folder.is_relative() => format!("`{}` is relative", folder.display()),
            Some(_) => continue,
        };
        found.add(&RULE, "ADSP_LIBRARY_PATH", what);
    }
}

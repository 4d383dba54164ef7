//! The skel, which runs on the DSP, and the stub, which speaks to it from here.

use qnn_api::library::runtime;

use crate::{Case, Findings, Rule, Severity};

/// No skel.
pub const RULE: Rule = Rule {
    id: "skel-missing",
    severity: Severity::Error,
    title: "no skel library for the device's DSP where its loader looks",
    why: "the DSP cannot load its half of the backend: 0x80000416, then 1003",
    cure: "copy the skel of the same QAIRT release there, or name its folder in `ADSP_LIBRARY_PATH`",
};

/// No stub.
pub const STUB_RULE: Rule = Rule {
    id: "stub-missing",
    severity: Severity::Error,
    title: "no stub library for the device's DSP beside `libQnnHtp.so`",
    why: "the backend loads it by name to speak to the DSP: 1003 or 4000",
    cure: "copy the stub of the same QAIRT release beside `libQnnHtp.so`",
};

/// Only where a real DSP is driven, and only once we know which.
pub fn check(case: &Case, found: &mut Findings) {
    let machine = &case.machine;
    let (Some(htp), Some(device)) = (machine.library(runtime::HTP).filter(|_| machine.has_dsp()), case.device) else {
        return;
    };
    let folder = htp.path.parent();
    let beside = |name: &str| machine.libraries.iter().find(|l| l.name == name && l.path.parent() == folder);
    let stub = format!("libQnnHtpV{}Stub.so", device.soc.dsp_arch);
    let skel = format!("libQnnHtpV{}Skel.so", device.soc.dsp_arch);
    let shown = folder.map_or_else(String::new, |folder| folder.display().to_string());
    if beside(&stub).is_none() {
        found.add(&STUB_RULE, &stub, format!("not in `{shown}`"));
    }
    if !device.here {
        // What another machine's DSP looks through is not known here; a folder that is complete can be pushed whole.
        if beside(&skel).is_none() {
            found.add(&RULE, &skel, format!("not in `{shown}`"));
        }
        return;
    }
    let set = machine.adsp.iter().flat_map(|adsp| &adsp.folders).map(|(folder, files)| (folder, files.as_deref()));
    let usual = machine.adsp_defaults.iter().map(|(folder, files)| (folder, Some(files.as_slice())));
    let tried: Vec<_> = set.chain(usual).collect();
    if tried.iter().any(|(_, files)| files.is_some_and(|files| files.contains(&skel))) {
        return;
    }
    let words = |(folder, files): &(&std::path::PathBuf, Option<&[String]>)| {
        format!("`{}`{}", folder.display(), if files.is_none() { " (no such folder)" } else { "" })
    };
    let folders: Vec<_> = tried.iter().map(words).collect();
    let finding = found.add(&RULE, &skel, format!("not in any of {}", folders.join(", ")));
    if beside(&skel).is_some() {
        finding.cure(format!("it lies in `{shown}`: export ADSP_LIBRARY_PATH=\"{shown}\""));
    }
}

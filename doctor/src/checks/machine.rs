//! Checks of this machine's QNN libraries and of the paths that the DSP's loader searches.

use qnn_api::library::runtime;

use super::Check;
use crate::facts::Place;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&LIBRARY_MISSING, &SYSTEM_LIBRARY_MISSING], run: library_missing },
    Check { rules: &[&LIBRARY_UNUSABLE], run: library_unusable },
    Check { rules: &[&LIBRARY_COPIES], run: library_copies },
    Check { rules: &[&LIBRARIES_MIXED], run: libraries_mixed },
    Check { rules: &[&ADSP_SEPARATOR], run: adsp_separator },
    Check { rules: &[&ADSP_FOLDER], run: adsp_folder },
    Check { rules: &[&SKEL_MISSING, &STUB_MISSING], run: skel_missing },
];

const LIBRARY_MISSING: Rule = Rule {
    id: "library-missing",
    severity: Severity::Error,
    title: "no `libQnnHtp.so` for a bundle that needs it",
    why: "nothing on this machine can execute HTP binaries",
    fix: Fix::ProvideLibraries,
};

const SYSTEM_LIBRARY_MISSING: Rule = Rule {
    id: "system-library-missing",
    severity: Severity::Error,
    title: "`libQnnHtp.so` without `libQnnSystem.so`",
    why: "context binaries cannot be read, and libGenie does not start without it",
    fix: Fix::Text("copy `libQnnSystem.so` of the same QAIRT release beside it"),
};

/// The library that reads context binaries.
const SYSTEM: &str = "libQnnSystem.so";

/// Both libraries, if the bundle needs them.
fn library_missing(facts: &Facts, found: &mut Findings) {
    let machine = &facts.machine;
    match machine.library(runtime::HTP) {
        None if facts.htp_binaries().next().is_some() => {
            let folders: Vec<_> = machine.searched.iter().map(|folder| format!("`{}`", folder.display())).collect();
            let tried = if folders.is_empty() { "no folder".into() } else { folders.join(", ") };
            let finding = found.add(&LIBRARY_MISSING, runtime::HTP, format!("not found in {tried}"));
            // A laptop may check a bundle for a phone.
            if !facts.device.is_some_and(|device| device.here) && machine.arch == "x86_64" {
                finding.severity(Severity::Warning);
            }
        }
        Some(htp) if machine.library(SYSTEM).is_none() => {
            found.add(
                &SYSTEM_LIBRARY_MISSING,
                htp.path.display().to_string(),
                format!("no `{SYSTEM}` beside it or on the path"),
            );
        }
        _ => {}
    }
}

const LIBRARY_UNUSABLE: Rule = Rule {
    id: "library-unusable",
    severity: Severity::Error,
    title: "a QNN library that cannot be opened, or whose interface is too old",
    why: "libGenie then reports `Unable to find a valid interface` and does not start",
    fix: Fix::Text(
        "use the libraries of one current QAIRT release for this processor, in a folder that is searched \
        first",
    ),
};

/// The errors of opening the first copies.
fn library_unusable(facts: &Facts, found: &mut Findings) {
    let machine = &facts.machine;
    let htp = machine.htp.as_ref().and_then(|answer| answer.as_ref().err());
    let system = machine.system.as_ref().and_then(|answer| answer.as_ref().err());
    for (name, words) in [(runtime::HTP, htp), (SYSTEM, system)] {
        let Some(words) = words else { continue };
        // Only libraries for this processor were opened.
        let opened = machine.libraries.iter().find(|library| library.name == name && library.native);
        let path = opened.map_or_else(|| name.to_owned(), |library| library.path.display().to_string());
        found.add(&LIBRARY_UNUSABLE, path, words.clone());
    }
}

const LIBRARY_COPIES: Rule = Rule {
    id: "library-copies",
    severity: Severity::Warning,
    title: "several different copies of a QNN library on the search path",
    why: "the first folder wins; vendor copies are often older and refuse newer binaries",
    fix: Fix::Text("put the folder with the intended release first in `LD_LIBRARY_PATH`, or remove the others"),
};

/// Compares the copies on the loader's path; the first one is used.
fn library_copies(facts: &Facts, found: &mut Findings) {
    let on_path: Vec<_> =
        facts.machine.libraries.iter().filter(|l| matches!(l.place, Place::LoaderPath | Place::System)).collect();
    for (i, first) in on_path.iter().enumerate() {
        let earlier = on_path[..i].iter().any(|l| l.name == first.name);
        let others: Vec<_> = on_path[i + 1..]
            .iter()
            .filter(|l| l.name == first.name && (l.build, l.bytes) != (first.build, first.bytes))
            .collect();
        if earlier || others.is_empty() {
            continue;
        }
        let words = |l: &crate::facts::LibraryFile| {
            let build = l.build.map_or_else(|| format!("{} bytes", l.bytes), |build| build.to_string());
            format!("`{}` ({build})", l.path.display())
        };
        let others: Vec<_> = others.iter().map(|l| words(l)).collect();
        found.add(&LIBRARY_COPIES, &first.name, format!("{} is used, not {}", words(first), others.join(", ")));
    }
}

const LIBRARIES_MIXED: Rule = Rule {
    id: "libraries-mixed",
    severity: Severity::Error,
    title: "QNN libraries of different releases in one folder",
    why: "backend, stub and skel check each other's version: 1008 (incompatible binaries), or a crash",
    fix: Fix::Text("take all of them from one QAIRT release"),
};

/// Compares each part that has a build id with the backend.
fn libraries_mixed(facts: &Facts, found: &mut Findings) {
    let Some(htp) = facts.machine.library(runtime::HTP) else { return };
    let Some(want) = htp.build else { return };
    for part in &facts.machine.libraries {
        let Some(build) = part.build else { continue };
        let beside = part.path.parent() == htp.path.parent();
        if beside && part.name.starts_with("lib") && build.release != want.release {
            found.add(
                &LIBRARIES_MIXED,
                part.path.display().to_string(),
                format!("is from {build}, but `{}` beside it from {want}", htp.name),
            );
        }
    }
}

const ADSP_SEPARATOR: Rule = Rule {
    id: "adsp-separator",
    severity: Severity::Error,
    title: "`:` as separator in `ADSP_LIBRARY_PATH`",
    why: "the DSP's loader takes it as part of the path, finds no such folder, and does not find the skel (1003)",
    fix: Fix::Text("write `;` between the folders, and quote the value in a shell"),
};

/// `ADSP_LIBRARY_PATH` is split at `;`; a `:` is part of a folder's name.
fn adsp_separator(facts: &Facts, found: &mut Findings) {
    let Some(adsp) = facts.machine.adsp.as_ref().filter(|adsp| adsp.raw.contains(':')) else { return };
    found
        .add(&ADSP_SEPARATOR, "ADSP_LIBRARY_PATH", format!("`{}` has `:` instead of `;`", adsp.raw))
        .fix(format!("export ADSP_LIBRARY_PATH=\"{}\"", adsp.raw.replace(':', ";")));
}

const ADSP_FOLDER: Rule = Rule {
    id: "adsp-folder",
    severity: Severity::Warning,
    title: "a folder of `ADSP_LIBRARY_PATH` that does not exist, or is relative",
    why: "the DSP's loader skips a missing folder silently; a relative one starts at the current folder",
    fix: Fix::Text("write the absolute path of the folder with the skel libraries"),
};

/// Each folder; a value with the wrong separator breaks another rule.
fn adsp_folder(facts: &Facts, found: &mut Findings) {
    let Some(adsp) = facts.machine.adsp.as_ref().filter(|adsp| !adsp.raw.contains(':')) else { return };
    for (folder, files) in &adsp.folders {
        let what = match files {
            None => format!("`{}` does not exist", folder.display()),
            Some(_) if folder.is_relative() => format!("`{}` is relative", folder.display()),
            Some(_) => continue,
        };
        found.add(&ADSP_FOLDER, "ADSP_LIBRARY_PATH", what);
    }
}

const SKEL_MISSING: Rule = Rule {
    id: "skel-missing",
    severity: Severity::Error,
    title: "no skel library for the device's DSP where its loader looks",
    why: "the DSP cannot load its part of the backend: 0x80000416, then 1003",
    fix: Fix::Text("copy the skel of the same QAIRT release there, or name its folder in `ADSP_LIBRARY_PATH`"),
};

const STUB_MISSING: Rule = Rule {
    id: "stub-missing",
    severity: Severity::Error,
    title: "no stub library for the device's DSP beside `libQnnHtp.so`",
    why: "the backend loads it by name to communicate with the DSP: 1003 or 4000",
    fix: Fix::Text("copy the stub of the same QAIRT release beside `libQnnHtp.so`"),
};

/// Only on a machine with a DSP, and only if the device is known.
fn skel_missing(facts: &Facts, found: &mut Findings) {
    let machine = &facts.machine;
    let (Some(htp), Some(device)) = (machine.library(runtime::HTP).filter(|_| machine.has_dsp()), facts.device) else {
        return;
    };
    let folder = htp.path.parent();
    let beside = |name: &str| machine.libraries.iter().find(|l| l.name == name && l.path.parent() == folder);
    let stub = format!("libQnnHtpV{}Stub.so", device.soc.dsp_arch);
    let skel = format!("libQnnHtpV{}Skel.so", device.soc.dsp_arch);
    let shown = folder.map_or_else(String::new, |folder| folder.display().to_string());
    if beside(&stub).is_none() {
        found.add(&STUB_MISSING, &stub, format!("not in `{shown}`"));
    }
    if !device.here {
        // The search path of another machine's DSP is unknown; a complete folder can be copied there.
        if beside(&skel).is_none() {
            found.add(&SKEL_MISSING, &skel, format!("not in `{shown}`"));
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
    let finding = found.add(&SKEL_MISSING, &skel, format!("not in any of {}", folders.join(", ")));
    if beside(&skel).is_some() {
        finding.fix(format!("it lies in `{shown}`: export ADSP_LIBRARY_PATH=\"{shown}\""));
    }
}

//! What the manifest says of the bundle's files against the files.

use genie_bundle::{CONFIG_FILE, HTP_CONFIG_FILE, MANIFEST_FILE};

use crate::{Case, Findings, Rule, Severity};

/// Not what was written.
pub const RULE: Rule = Rule {
    id: "file-changed",
    severity: Severity::Error,
    title: "a file that is not what the bundle's manifest lists",
    why: "a torn copy fails late or says nonsense; an edited one no longer belongs to the others",
    cure: "copy the bundle again; after an edit on purpose, remove `manifest.json` or compile again",
};

/// A manifest that cannot be read.
pub const SYNTAX_RULE: Rule = Rule {
    id: "manifest-syntax",
    severity: Severity::Warning,
    title: "a manifest that cannot be read",
    why: "whether the bundle's files are whole cannot be told",
    cure: "copy the bundle again",
};

/// Another library made the binaries.
pub const BUILD_RULE: Rule = Rule {
    id: "manifest-build",
    severity: Severity::Warning,
    title: "a binary made by another library than the manifest says",
    why: "files of two bundles were mixed",
    cure: "copy the bundle again, or compile again",
};

/// Files that users edit, as they should.
const EDITABLE: [&str; 2] = [CONFIG_FILE, HTP_CONFIG_FILE];

/// Each file that is listed, and who made the binaries.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(manifest) = case.bundle.as_ref().and_then(|bundle| bundle.manifest.as_ref()) else { return };
    if let Some(fault) = &manifest.fault {
        found.add(&SYNTAX_RULE, MANIFEST_FILE, fault.clone());
    }
    let named = |path: &str| case.bundle.as_ref().is_some_and(|bundle| bundle.names(path));
    for file in manifest.files.iter().filter(|file| !EDITABLE.contains(&file.path.as_str())) {
        match file.found_bytes {
            Some(bytes) if bytes != file.bytes => {
                found.add(&RULE, &file.path, format!("has {bytes} bytes, the manifest says {}", file.bytes));
            }
            Some(_) if file.same_hash == Some(false) => {
                found.add(&RULE, &file.path, "has the right length, but not the content that the manifest lists");
            }
            // Files that the config names are reported where it names them.
            None if !named(&file.path) => {
                found.add(&RULE, &file.path, "is listed in the manifest, but is not there");
            }
            _ => {}
        }
    }
    let Some(build_id) = &manifest.build_id else { return };
    for (binary, info) in case.described().filter(|(_, info)| !info.build_id.is_empty()) {
        if info.build_id != *build_id {
            let what = format!("made by `{}`, the manifest says `{build_id}`", info.build_id);
            found.add(&BUILD_RULE, binary.name(), what);
        }
    }
}

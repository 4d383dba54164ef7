//! Checks of the bundle's files: present, unchanged, readable, of a size that can be mapped.

use std::path::Path;

use genie_bundle::{CONFIG_FILE, HTP_CONFIG_FILE, MANIFEST_FILE};
use nsp_graph::names::KvName;
use qnn_api::library::{BACKEND_ID_HTP, runtime};

use super::Check;
use crate::facts::{Binary, Bundle, Content, FileState, Manifest};
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&FILE_MISSING, &PATH_BASE, &FILE_UNUSABLE], run: named_files },
    Check { rules: &[&FILE_CHANGED, &MANIFEST_SYNTAX, &MANIFEST_BUILD, &MANIFEST_INCOMPLETE], run: manifest },
    Check { rules: &[&FILE_TOO_LARGE], run: file_too_large },
    Check { rules: &[&BINARY_UNREADABLE, &BINARY_UNEXAMINED], run: binary_content },
    Check { rules: &[&SESSION_MEMORY], run: session_memory },
    Check { rules: &[&SHARED_WEIGHTS], run: shared_weights },
];

const FILE_MISSING: Rule = Rule {
    id: "file-missing",
    severity: Severity::Error,
    title: "a file that the config names does not exist",
    why: "the dialog cannot be created",
    fix: Fix::Text(
        "copy the file there, or correct the path; relative paths start at the config's folder (with \
        libGenie: at the current folder of the process)",
    ),
};

const PATH_BASE: Rule = Rule {
    id: "path-base",
    severity: Severity::Error,
    title: "a relative path that leads to a file from the current folder only",
    why: "paths start at the config's folder here; libGenie finds the file only if started from this folder",
    fix: Fix::Text("write the path relative to the config's folder, or an absolute path"),
};

const FILE_UNUSABLE: Rule = Rule {
    id: "file-unusable",
    severity: Severity::Error,
    title: "a path that leads to a folder, to an empty file, or to an unreadable file",
    why: "the dialog cannot be created",
    fix: Fix::Text("correct the path or the file's permissions, or copy the file again"),
};

/// Each path in the config.
fn named_files(facts: &Facts, found: &mut Findings) {
    let Some(bundle) = &facts.bundle else { return };
    missing_files(bundle, found);
    for file in bundle.named_files() {
        let at = || bundle.config.as_ref().map_or_else(|| file.written.to_owned(), |config| config.at(file.pointer));
        let path = file.path.display();
        match file.state {
            FileState::Missing { in_cwd: true } => {
                let cwd = facts.machine.cwd.display();
                let what = format!("`{path}` does not exist, but the current folder `{cwd}` has `{}`", file.written);
                found.add(&PATH_BASE, at(), what);
            }
            FileState::Unusable(reason) => {
                found.add(&FILE_UNUSABLE, at(), format!("`{path}`: {reason}"));
            }
            FileState::Present { bytes: 0 } => {
                found.add(&FILE_UNUSABLE, at(), format!("`{path}` is empty"));
            }
            FileState::Missing { in_cwd: false } | FileState::Present { .. } => {}
        }
    }
}

/// All that are missing in one finding: their reason and their fix are the same.
fn missing_files(bundle: &Bundle, found: &mut Findings) {
    let mut missing = bundle.named_files();
    missing.retain(|file| matches!(file.state, FileState::Missing { in_cwd: false }));
    let at = |pointer| bundle.config.as_ref().map(|config| config.at(pointer));
    match missing.as_slice() {
        [] => {}
        [file] => {
            let at = at(file.pointer).unwrap_or_else(|| file.written.to_owned());
            found.add(&FILE_MISSING, at, format!("`{}` does not exist", file.path.display()));
        }
        many => {
            let mut what = format!("{} files do not exist", many.len());
            for file in many {
                what.push_str(&format!("\n       {}: `{}`", file.pointer, file.path.display()));
            }
            found.add(&FILE_MISSING, at("").unwrap_or_else(|| bundle.path.display().to_string()), what);
        }
    }
}

const FILE_CHANGED: Rule = Rule {
    id: "file-changed",
    severity: Severity::Error,
    title: "a file that differs from the bundle's manifest",
    why: "a truncated copy fails late or generates wrong text; an edited file no longer matches the others",
    fix: Fix::Text("copy the bundle again; after an intended edit, remove `manifest.json` or compile again"),
};

const MANIFEST_SYNTAX: Rule = Rule {
    id: "manifest-syntax",
    severity: Severity::Warning,
    title: "a manifest that cannot be read",
    why: "the bundle's files cannot be compared with it",
    fix: Fix::Text("copy the bundle again"),
};

const MANIFEST_BUILD: Rule = Rule {
    id: "manifest-build",
    severity: Severity::Warning,
    title: "a binary made by another library than the manifest lists",
    why: "files of two bundles were mixed",
    fix: Fix::Text("copy the bundle again, or compile again"),
};

const MANIFEST_INCOMPLETE: Rule = Rule {
    id: "manifest-incomplete",
    severity: Severity::Warning,
    title: "a context binary of the bundle that its manifest does not list",
    why: "a changed or damaged binary is not noticed",
    fix: Fix::Text("copy the bundle again, or compile again; without `manifest.json` nothing is compared"),
};

/// Files that users may edit.
const EDITABLE: [&str; 2] = [CONFIG_FILE, HTP_CONFIG_FILE];

/// Each listed file, and the build of the binaries.
fn manifest(facts: &Facts, found: &mut Findings) {
    let Some(manifest) = facts.bundle.as_ref().and_then(|bundle| bundle.manifest.as_ref()) else { return };
    if let Some(fault) = &manifest.fault {
        found.add(&MANIFEST_SYNTAX, MANIFEST_FILE, fault.clone());
    }
    let named = |path: &str| facts.bundle.as_ref().is_some_and(|bundle| bundle.names(path));
    for file in manifest.files.iter().filter(|file| !EDITABLE.contains(&file.path.as_str())) {
        match file.found_bytes {
            Some(bytes) if bytes != file.bytes => {
                found.add(&FILE_CHANGED, &file.path, format!("has {bytes} bytes, the manifest lists {}", file.bytes));
            }
            Some(_) if file.same_hash == Some(false) => {
                found.add(&FILE_CHANGED, &file.path, "has the listed length, but another hash");
            }
            // Files that the config names are reported where it names them.
            None if !named(&file.path) => {
                found.add(&FILE_CHANGED, &file.path, "is listed in the manifest, but does not exist");
            }
            _ => {}
        }
    }
    if manifest.fault.is_none() {
        unlisted_binaries(facts, manifest, found);
    }
    let Some(build_id) = &manifest.build_id else { return };
    for (binary, info) in facts.described().filter(|(_, info)| !info.build_id.is_empty()) {
        if info.build_id != *build_id {
            let what = format!("made by `{}`, the manifest lists `{build_id}`", info.build_id);
            found.add(&MANIFEST_BUILD, binary.name(), what);
        }
    }
}

/// Binaries in the bundle's folder that the manifest does not list.
fn unlisted_binaries(facts: &Facts, manifest: &Manifest, found: &mut Findings) {
    let Some(bundle) = &facts.bundle else { return };
    for binary in facts.binaries().iter().filter(|binary| matches!(binary.file, FileState::Present { .. })) {
        let within = binary.path.strip_prefix(&bundle.path).ok();
        if within.is_some_and(|path| !manifest.files.iter().any(|file| path == Path::new(&file.path))) {
            let what = format!("is not among the {} files that the manifest lists", manifest.files.len());
            found.add(&MANIFEST_INCOMPLETE, binary.name(), what);
        }
    }
}

const FILE_TOO_LARGE: Rule = Rule {
    id: "file-too-large",
    severity: Severity::Error,
    title: "a context binary of 2 GB or more for a chip",
    why: "the HTP serialises and maps less than 2 GB: it cannot be loaded (1002, 5005)",
    fix: Fix::MoreSplits,
};

/// Largest signed 32-bit length, in bytes.
const FILE_LIMIT: u64 = (2 << 30) - 1;

/// The length of each binary for the HTP; the embedded backend reads longer ones.
fn file_too_large(facts: &Facts, found: &mut Findings) {
    let manifest = facts.bundle.as_ref().and_then(|bundle| bundle.manifest.as_ref());
    let has_target = manifest.is_some_and(|manifest| manifest.target.is_some());
    let is_for_htp = |binary: &Binary| match &binary.content {
        Content::Described(info) => info.backend_id == BACKEND_ID_HTP,
        // One of the embedded backend can always be examined.
        Content::Unexamined(_) => true,
        Content::Rejected(_) => has_target,
        Content::Foreign(_) => false,
    };
    for binary in facts.binaries().iter().filter(|binary| is_for_htp(binary)) {
        let FileState::Present { bytes } = binary.file else { continue };
        if bytes > FILE_LIMIT {
            found.add(
                &FILE_TOO_LARGE,
                binary.name(),
                format!("has {bytes} bytes, {} above the limit", bytes - FILE_LIMIT),
            );
        }
    }
}

const BINARY_UNREADABLE: Rule = Rule {
    id: "binary-unreadable",
    severity: Severity::Error,
    title: "a file that is no context binary, or a damaged one",
    why: "loading it fails: 30010, 5000 or 5005",
    fix: Fix::Text("copy it again, or compile it again"),
};

const BINARY_UNEXAMINED: Rule = Rule {
    id: "binary-unexamined",
    severity: Severity::Warning,
    title: "a binary that no library on this machine can read",
    why: "its SoC, its build and its graphs could not be checked",
    fix: Fix::ProvideSystemLibrary,
};

/// Each binary that exists.
fn binary_content(facts: &Facts, found: &mut Findings) {
    for binary in facts.binaries() {
        if !matches!(binary.file, FileState::Present { bytes } if bytes > 0) {
            continue;
        }
        match &binary.content {
            Content::Described(info) if info.graphs.is_empty() => {
                found.add(&BINARY_UNREADABLE, binary.name(), "holds no graph");
            }
            Content::Described(_) => {}
            Content::Rejected(rejections) => {
                let messages: Vec<_> = rejections.iter().map(|r| format!("{} ({})", r.message, r.library)).collect();
                found.add(&BINARY_UNREADABLE, binary.name(), messages.join("; "));
            }
            Content::Foreign(kind) => {
                let finding = found.add(&BINARY_UNREADABLE, binary.name(), format!("is {kind}, no context binary"));
                if let Some(fix) = Fix::of_kind(kind, &binary.path) {
                    finding.set_fix(fix);
                }
            }
            Content::Unexamined(reason) => {
                found.add(&BINARY_UNEXAMINED, binary.name(), reason.clone());
            }
        }
    }
}

const SESSION_MEMORY: Rule = Rule {
    id: "session-memory",
    severity: Severity::Warning,
    title: "binaries, cache and spill-fill buffers near or beyond what one HTP session can map",
    why: "about 3.5 GB can be mapped at once: 1002 or 5005, often only with the longest context",
    fix: Fix::Text("use fewer bits or a shorter context, or set `mmap-budget` so that binaries are mapped in parts"),
};

/// What fits by users' reports, in bytes.
const SESSION_LIMIT: u64 = 3_500_000_000;

/// The sum over the HTP binaries, unless they are mapped in parts.
fn session_memory(facts: &Facts, found: &mut Findings) {
    let budget = facts.config().and_then(|config| config.htp("mmap-budget")?.as_u64());
    if budget.is_some_and(|budget| budget > 0) {
        return;
    }
    let (mut files, mut cache, mut spill) = (0_u64, 0_u64, 0_u64);
    for (binary, info) in facts.htp_binaries() {
        if let FileState::Present { bytes } = binary.file {
            files += bytes;
        }
        let rows = |list: &[genie_types::TensorInfo]| -> u64 {
            let cache = list.iter().filter(|t| KvName::parse(&t.name).is_some());
            cache.map(|t| t.size_bytes() as u64).fold(0, u64::saturating_add)
        };
        // Variants share their buffers: the largest counts.
        cache += info.graphs.iter().map(|graph| rows(&graph.inputs) + rows(&graph.outputs)).max().unwrap_or(0);
        spill += info.htp_graphs.iter().flatten().map(|graph| graph.spill_fill_bytes).max().unwrap_or(0);
    }
    let total = files + cache + spill;
    if total > SESSION_LIMIT {
        let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let what = format!(
            "{} of binaries, {} of cache, {} of spill-fill buffers: {} in total",
            gb(files),
            gb(cache),
            gb(spill),
            gb(total)
        );
        found.add(&SESSION_MEMORY, "bundle", what);
    }
}

const SHARED_WEIGHTS: Rule = Rule {
    id: "shared-weights",
    severity: Severity::Warning,
    title: "graphs that share their weights, and only the x86 emulator to run them",
    why: "the emulator refuses such binaries with 1000 (`Shared weights buffer isn't supported on this platform`)",
    fix: Fix::Text("run the bundle on a device, or compile it again without shared weights for the emulator"),
};

/// Binaries with shared weights on a machine that has the emulator only.
fn shared_weights(facts: &Facts, found: &mut Findings) {
    let machine = &facts.machine;
    let emulator = machine.library(runtime::HTP).is_some() && !machine.has_dsp();
    let manifest = facts.bundle.as_ref().and_then(|bundle| bundle.manifest.as_ref());
    if emulator && manifest.is_some_and(|manifest| manifest.shared_weights) {
        found.add(&SHARED_WEIGHTS, "manifest.json", "the binaries were compiled with shared weights");
    }
}

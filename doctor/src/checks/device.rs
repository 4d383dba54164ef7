//! Checks of binaries and backend extension configs against the device.

use qnn_api::Soc;
use qnn_api::soc::FIRST_HTP_ARCH;
use serde_json::Value;

use super::Check;
use crate::facts::Extension;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&DSP_TOO_OLD], run: dsp_too_old },
    Check { rules: &[&BINARY_ARCH, &BINARY_SOC], run: binary_arch },
    Check { rules: &[&VTCM], run: vtcm },
    Check { rules: &[&EXTENSION_SYNTAX, &EXTENSION_DEVICE, &EXTENSION_GRAPHS], run: extension },
];

const DSP_TOO_OLD: Rule = Rule {
    id: "dsp-too-old",
    severity: Severity::Error,
    title: "the device's DSP is older than V68",
    why: "the HTP backend does not support it: device creation fails with 1008",
    fix: Fix::Text("use a device with V68 or later, or the host backend on its CPU"),
};

/// The device by itself.
fn dsp_too_old(facts: &Facts, found: &mut Findings) {
    let Some(soc) = facts.device.map(|device| device.soc).filter(|soc| soc.dsp_arch < FIRST_HTP_ARCH) else { return };
    found.add(&DSP_TOO_OLD, soc.name, format!("its DSP is V{}, expected V{FIRST_HTP_ARCH} or later", soc.dsp_arch));
}

const BINARY_ARCH: Rule = Rule {
    id: "binary-arch",
    severity: Severity::Error,
    title: "a binary for another DSP architecture than the device's",
    why: "the device refuses it: 1009 (loading binaries) or 5005 (create from binary)",
    fix: Fix::Text("compile the bundle again for the device"),
};

const BINARY_SOC: Rule = Rule {
    id: "binary-soc",
    severity: Severity::Warning,
    title: "a binary for another SoC of the same architecture",
    why: "it was compiled for other numbers of cores, VTCM sizes or speeds; some releases refuse it with 5005 or 5011",
    fix: Fix::Text("compile the bundle again for the device"),
};

/// Each HTP binary against the device; if none can be read, the manifest's target.
fn binary_arch(facts: &Facts, found: &mut Findings) {
    // A device that is too old for any binary has its own finding.
    let Some(soc) = facts.device.map(|device| device.soc).filter(|soc| soc.dsp_arch >= FIRST_HTP_ARCH) else { return };
    let manifest = facts.bundle.as_ref().and_then(|bundle| bundle.manifest.as_ref());
    let target = manifest.and_then(|manifest| Soc::by_name(manifest.target.as_deref()?));
    if let (None, Some(target)) = (facts.described().next(), target)
        && target.dsp_arch != soc.dsp_arch
    {
        let what = format!(
            "the bundle was compiled for {} (V{}), but the device is {} (V{})",
            target.name, target.dsp_arch, soc.name, soc.dsp_arch
        );
        found.add(&BINARY_ARCH, "manifest.json", what).fix(Fix::CompileFor(soc));
    }
    for (binary, info) in facts.htp_binaries() {
        let made_for = info.soc.and_then(Soc::by_id);
        let Some(arch) = info.dsp_arch.or(made_for.map(|soc| soc.dsp_arch)) else { continue };
        let chip = match (made_for, info.soc) {
            (Some(soc), _) => format!("{} (V{arch})", soc.name),
            (None, Some(id)) => format!("SoC {id} (V{arch})"),
            (None, None) => format!("V{arch}"),
        };
        let what = format!("compiled for {chip}, but the device is {} (V{})", soc.name, soc.dsp_arch);
        if arch != soc.dsp_arch {
            found.add(&BINARY_ARCH, binary.name(), what).fix(Fix::CompileFor(soc));
        } else if info.soc.is_some() && info.soc != soc.id {
            found.add(&BINARY_SOC, binary.name(), what).fix(Fix::CompileFor(soc));
        }
    }
}

const VTCM: Rule = Rule {
    id: "vtcm",
    severity: Severity::Error,
    title: "a graph that was compiled for more VTCM than the device has",
    why: "the context is refused when it is created: 5005",
    fix: Fix::Text("compile again with a smaller `vtcm_mb`"),
};

/// The largest graph of each HTP binary.
fn vtcm(facts: &Facts, found: &mut Findings) {
    let Some(soc) = facts.device.map(|device| device.soc).filter(|soc| soc.vtcm_mb > 0) else { return };
    for (binary, info) in facts.htp_binaries() {
        let asked = info.graphs.iter().zip(&info.htp_graphs).filter_map(|(g, h)| Some((g, h.as_ref()?.vtcm_bytes)));
        let Some((graph, bytes)) = asked.max_by_key(|(_, bytes)| *bytes) else { continue };
        if bytes > u64::from(soc.vtcm_mb) << 20 {
            let what = format!("needs {} MB of VTCM, but {} has {} MB", bytes.div_ceil(1 << 20), soc.name, soc.vtcm_mb);
            found.add(&VTCM, format!("{} graph `{}`", binary.name(), graph.name), what);
        }
    }
}

const EXTENSION_SYNTAX: Rule = Rule {
    id: "extension-syntax",
    severity: Severity::Error,
    title: "a backend extension config that is not JSON",
    why: "the backend does not start",
    fix: Fix::Text("correct the file, or remove `extensions` from the config"),
};

const EXTENSION_DEVICE: Rule = Rule {
    id: "extension-device",
    severity: Severity::Error,
    title: "a backend extension config for another SoC",
    why: "the device is opened as that SoC: 14001, or binaries are refused with 1009 or 5005",
    fix: Fix::Text("set `soc_model` and `dsp_arch` there to the device's"),
};

const EXTENSION_GRAPHS: Rule = Rule {
    id: "extension-graphs",
    severity: Severity::Warning,
    title: "a backend extension config names graphs that no binary has",
    why: "its settings for them (VTCM, threads, priority) have no effect",
    fix: Fix::NameGraphs,
};

/// Each extension config against the device, or else against the binaries.
fn extension(facts: &Facts, found: &mut Findings) {
    for extension in facts.bundle.iter().flat_map(|bundle| &bundle.extensions) {
        match &extension.document {
            Some(Err(words)) => {
                found.add(&EXTENSION_SYNTAX, &extension.written, words.clone());
            }
            Some(Ok(document)) => {
                devices(facts, extension, document, found);
                graphs(facts, extension, document, found);
            }
            None => {}
        }
    }
}

fn list<'v>(document: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    document.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn devices(facts: &Facts, extension: &Extension, document: &Value, found: &mut Findings) {
    // The device, or without one the SoC of the binaries.
    let binary = facts.htp_binaries().next().map(|(_, info)| info);
    if facts.device.is_some_and(|device| device.soc.dsp_arch < FIRST_HTP_ARCH) {
        // A device that is too old for any binary has its own finding.
        return;
    }
    let (want_id, want_arch, whose) = match facts.device {
        Some(device) => (device.soc.id, Some(device.soc.dsp_arch), format!("the device is {}", device.soc.name)),
        None => {
            let id = binary.and_then(|info| info.soc);
            let name = id.and_then(Soc::by_id).map_or_else(|| "another SoC".to_owned(), |soc| soc.name.to_owned());
            (id, binary.and_then(|info| info.dsp_arch), format!("the binaries are for {name}"))
        }
    };
    for (i, device) in list(document, "devices").enumerate() {
        let differs = |key: &str, found: Option<u64>, want: Option<u32>| {
            let (found, want) = (found?, want?);
            (found != u64::from(want)).then(|| (format!("/devices/{i}/{key}"), format!("{found}, but {whose}, {want}")))
        };
        let arch = device.get("dsp_arch").and_then(Value::as_str);
        let arch = arch.and_then(|arch| arch.trim_start_matches(['v', 'V']).parse().ok());
        let breaches = [
            differs("soc_model", device.get("soc_model").and_then(Value::as_u64), want_id),
            differs("dsp_arch", arch, want_arch),
        ];
        for (key, what) in breaches.into_iter().flatten() {
            found.add(&EXTENSION_DEVICE, format!("{} {key}", extension.written), what);
        }
    }
}

fn graphs(facts: &Facts, extension: &Extension, document: &Value, found: &mut Findings) {
    let known: Vec<&str> =
        facts.described().flat_map(|(_, info)| &info.graphs).map(|graph| graph.name.as_str()).collect();
    for (i, graph) in list(document, "graphs").enumerate() {
        let names = list(graph, "graph_names").filter_map(Value::as_str);
        let missing: Vec<_> = names.filter(|n| !known.contains(n)).map(|n| format!("`{n}`")).collect();
        if !missing.is_empty() && !known.is_empty() {
            let at = format!("{} /graphs/{i}/graph_names", extension.written);
            found.add(&EXTENSION_GRAPHS, at, format!("no binary has {}", missing.join(", ")));
        }
        let asked = graph.get("vtcm_mb").and_then(Value::as_u64);
        if let (Some(asked), Some(device)) = (asked, facts.device)
            && device.soc.vtcm_mb > 0
            && asked > u64::from(device.soc.vtcm_mb)
        {
            let at = format!("{} /graphs/{i}/vtcm_mb", extension.written);
            let soc = device.soc;
            found.add(&VTCM, at, format!("{asked} MB, but {} has {} MB", soc.name, soc.vtcm_mb));
        }
    }
}

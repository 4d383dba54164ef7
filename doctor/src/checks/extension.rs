//! The backend extension config: chip, architecture, VTCM and graph names in it.

use qnn_api::Soc;
use qnn_api::soc::FIRST_HTP_ARCH;
use serde_json::Value;

use super::vtcm;
use crate::case::Extension;
use crate::{Case, Findings, Rule, Severity};

/// Not JSON.
pub const RULE: Rule = Rule {
    id: "extension-syntax",
    severity: Severity::Error,
    title: "a backend extension config that is not JSON",
    why: "the backend does not start",
    cure: "repair it, or remove `extensions` from the config",
};

/// For another chip.
pub const DEVICE_RULE: Rule = Rule {
    id: "extension-device",
    severity: Severity::Error,
    title: "a backend extension config for another chip",
    why: "the device is opened as that chip: 14001, or binaries are refused with 1009 or 5005",
    cure: "write the device's `soc_model` and `dsp_arch` there",
};

/// For other graphs.
pub const GRAPHS_RULE: Rule = Rule {
    id: "extension-graphs",
    severity: Severity::Warning,
    title: "a backend extension config names graphs that no binary has",
    why: "what it sets for them (VTCM, threads, priority) does nothing",
    cure: "write the graphs' names as `genie inspect` shows them",
};

/// Each extension config against the device, or else against the binaries.
pub fn check(case: &Case, found: &mut Findings) {
    for extension in case.bundle.iter().flat_map(|bundle| &bundle.extensions) {
        match &extension.document {
            Some(Err(words)) => {
                found.add(&RULE, &extension.written, words.clone());
            }
            Some(Ok(document)) => {
                devices(case, extension, document, found);
                graphs(case, extension, document, found);
            }
            None => {}
        }
    }
}

fn list<'v>(document: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    document.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn devices(case: &Case, extension: &Extension, document: &Value, found: &mut Findings) {
    // The device decides; without one, what the binaries were made for.
    let binary = case.htp_binaries().next().map(|(_, info)| info);
    if case.device.is_some_and(|device| device.soc.dsp_arch < FIRST_HTP_ARCH) {
        // A device that nothing runs on has a finding of its own.
        return;
    }
    let (want_id, want_arch, whose) = match case.device {
        Some(device) => (device.soc.id, Some(device.soc.dsp_arch), format!("the device is {}", device.soc.name)),
        None => {
            let id = binary.and_then(|info| info.soc);
            let name = id.and_then(Soc::by_id).map_or_else(|| "another".to_owned(), |soc| soc.name.to_owned());
            (id, binary.and_then(|info| info.dsp_arch), format!("the binaries are for {name}"))
        }
    };
    for (i, device) in list(document, "devices").enumerate() {
        let differs = |key: &str, said: Option<u64>, want: Option<u32>| {
            let (said, want) = (said?, want?);
            (said != u64::from(want))
                .then(|| (format!("/devices/{i}/{key}"), format!("says {said}, but {whose}, {want}")))
        };
        let arch = device.get("dsp_arch").and_then(Value::as_str);
        let arch = arch.and_then(|arch| arch.trim_start_matches(['v', 'V']).parse().ok());
        let breaches = [
            differs("soc_model", device.get("soc_model").and_then(Value::as_u64), want_id),
            differs("dsp_arch", arch, want_arch),
        ];
        for (key, what) in breaches.into_iter().flatten() {
            found.add(&DEVICE_RULE, format!("{} {key}", extension.written), what);
        }
    }
}

fn graphs(case: &Case, extension: &Extension, document: &Value, found: &mut Findings) {
    let known: Vec<&str> =
        case.described().flat_map(|(_, info)| &info.graphs).map(|graph| graph.name.as_str()).collect();
    for (i, graph) in list(document, "graphs").enumerate() {
        let names = list(graph, "graph_names").filter_map(Value::as_str);
        let missing: Vec<_> = names.filter(|n| !known.contains(n)).map(|n| format!("`{n}`")).collect();
        if !missing.is_empty() && !known.is_empty() {
            let at = format!("{} /graphs/{i}/graph_names", extension.written);
            found.add(&GRAPHS_RULE, at, format!("no binary has {}", missing.join(", ")));
        }
        let asked = graph.get("vtcm_mb").and_then(Value::as_u64);
        if let (Some(asked), Some(device)) = (asked, case.device)
            && device.soc.vtcm_mb > 0
            && asked > u64::from(device.soc.vtcm_mb)
        {
            let at = format!("{} /graphs/{i}/vtcm_mb", extension.written);
            let soc = device.soc;
            found.add(&vtcm::RULE, at, format!("asks for {asked} MB, but {} has {} MB", soc.name, soc.vtcm_mb));
        }
    }
}

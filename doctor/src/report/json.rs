//! The report as one JSON document. `docs/doctor.md` documents its keys.

use serde_json::{Value, json};

use super::Report;
use crate::Severity;
use crate::facts::FileState;

impl Report<'_> {
    /// The whole report.
    pub fn to_json(&self) -> Value {
        let facts = self.facts;
        let machine = &facts.machine;
        let libraries: Vec<Value> = machine
            .libraries
            .iter()
            .map(|l| {
                json!({
                    "name": l.name,
                    "path": l.path.display().to_string(),
                    "found_by": l.place.label(),
                    "native": l.native,
                    "build": l.build.map(|build| build.to_string()),
                    "used": machine.library(&l.name).is_some_and(|first| first.path == l.path),
                })
            })
            .collect();
        let htp = machine.htp.as_ref().and_then(|opened| opened.as_ref().ok());
        let system = machine.system.as_ref().and_then(|opened| opened.as_ref().ok());
        let device = facts.device.map(|device| {
            let soc = device.soc;
            json!({
                "name": soc.name, "soc": soc.id, "dsp_arch": soc.dsp_arch, "vtcm_mb": soc.vtcm_mb, "here": device.here,
            })
        });
        let binaries: Vec<Value> = facts
            .binaries()
            .iter()
            .map(|binary| {
                let info = binary.info();
                let vtcm = info.and_then(|info| info.htp_graphs.iter().flatten().map(|g| g.vtcm_bytes).max());
                json!({
                    "file": binary.path.display().to_string(),
                    "bytes": match binary.file { FileState::Present { bytes } => Some(bytes), _ => None },
                    "build_id": info.map(|info| info.build_id.as_str()),
                    "soc": info.and_then(|info| info.soc),
                    "dsp_arch": info.and_then(|info| info.dsp_arch),
                    "vtcm_bytes": vtcm,
                    "graphs": info.map(|info| info.graphs.iter().map(|g| g.name.as_str()).collect::<Vec<_>>()),
                })
            })
            .collect();
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "id": finding.rule.id,
                    "severity": finding.severity.to_string(),
                    "at": finding.at,
                    "what": finding.what,
                    "why": finding.rule.why,
                    "do": (self.wording)(&finding.fix),
                })
            })
            .collect();
        json!({
            "machine": {
                "arch": machine.arch,
                "libraries": libraries,
                "searched": machine.searched.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>(),
                "core_api": htp.map(|versions| versions.core.to_string()),
                "htp_api": htp.map(|versions| versions.backend.to_string()),
                "system_api": system.map(ToString::to_string),
                "adsp_library_path": machine.adsp.as_ref().map(|adsp| adsp.raw.as_str()),
            },
            "genie_api": facts.genie_api.map(|api| api.to_string()),
            "device": device,
            "bundle": facts.bundle.as_ref().map(|bundle| json!({
                "path": bundle.path.display().to_string(),
                "binaries": binaries,
            })),
            "findings": findings,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
        })
    }
}

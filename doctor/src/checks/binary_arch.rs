//! A binary runs on the architecture that it was compiled for.

use qnn_api::Soc;
use qnn_api::soc::FIRST_HTP_ARCH;

use crate::{Case, Findings, Rule, Severity};

/// Another architecture.
pub const RULE: Rule = Rule {
    id: "binary-arch",
    severity: Severity::Error,
    title: "a binary for another DSP architecture than the device's",
    why: "the device refuses it: 1009 (loading binaries) or 5005 (create from binary)",
    cure: "compile it again for the device",
};

/// The same architecture, another chip.
pub const SOC_RULE: Rule = Rule {
    id: "binary-soc",
    severity: Severity::Warning,
    title: "a binary for another chip of the same architecture",
    why: "it was planned for other numbers of cores, VTCM or speeds; some releases refuse it with 5005 or 5011",
    cure: "compile it again for the device",
};

/// Each HTP binary against the device; where none can be read, what the manifest says of them.
pub fn check(case: &Case, found: &mut Findings) {
    // A device that no binary can run on has a finding of its own.
    let Some(soc) = case.device.map(|device| device.soc).filter(|soc| soc.dsp_arch >= FIRST_HTP_ARCH) else { return };
    let cure = format!("compile it again for the device: `genie compile MODEL --target {}`", soc.name.to_lowercase());
    let manifest = case.bundle.as_ref().and_then(|bundle| bundle.manifest.as_ref());
    let target = manifest.and_then(|manifest| Soc::by_name(manifest.target.as_deref()?));
    if let (None, Some(target)) = (case.described().next(), target)
        && target.dsp_arch != soc.dsp_arch
    {
        let what = format!(
            "the bundle was compiled for {} (V{}), but the device is {} (V{})",
            target.name, target.dsp_arch, soc.name, soc.dsp_arch
        );
        found.add(&RULE, "manifest.json", what).cure(cure.clone());
    }
    for (binary, info) in case.htp_binaries() {
        let made_for = info.soc.and_then(Soc::by_id);
        let Some(arch) = info.dsp_arch.or(made_for.map(|soc| soc.dsp_arch)) else { continue };
        let chip = match (made_for, info.soc) {
            (Some(soc), _) => format!("{} (V{arch})", soc.name),
            (None, Some(id)) => format!("chip {id} (V{arch})"),
            (None, None) => format!("V{arch}"),
        };
        let what = format!("compiled for {chip}, but the device is {} (V{})", soc.name, soc.dsp_arch);
        if arch != soc.dsp_arch {
            found.add(&RULE, binary.name(), what).cure(cure.clone());
        } else if info.soc.is_some() && info.soc != soc.id {
            found.add(&SOC_RULE, binary.name(), what).cure(cure.clone());
        }
    }
}

//! DSPs before V68 have no tensor units that the HTP backend could use.

use qnn_api::soc::FIRST_HTP_ARCH;

use crate::{Case, Findings, Rule, Severity};

/// V66 and before.
pub const RULE: Rule = Rule {
    id: "dsp-too-old",
    severity: Severity::Error,
    title: "the device's DSP is older than V68",
    why: "the HTP backend does not support it: device creation fails with 1008",
    cure: "use a device with V68 or later, or the host backend on its CPU",
};

/// Looks at the device alone.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(soc) = case.device.map(|device| device.soc).filter(|soc| soc.dsp_arch < FIRST_HTP_ARCH) else { return };
    found.add(&RULE, soc.name, format!("its DSP is V{}, expected V{FIRST_HTP_ARCH} or later", soc.dsp_arch));
}

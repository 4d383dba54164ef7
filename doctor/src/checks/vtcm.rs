//! Vector memory: what a graph was planned for against what the device has.

use crate::{Case, Findings, Rule, Severity};

/// More than there is.
pub const RULE: Rule = Rule {
    id: "vtcm",
    severity: Severity::Error,
    title: "a graph that was planned for more VTCM than the device has",
    why: "the context is refused when it is created: 5005",
    cure: "compile again with a smaller `vtcm_mb`",
};

/// Each graph of each HTP binary; the largest of a binary is told.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(soc) = case.device.map(|device| device.soc).filter(|soc| soc.vtcm_mb > 0) else { return };
    for (binary, info) in case.htp_binaries() {
        let asked = info.graphs.iter().zip(&info.htp_graphs).filter_map(|(g, h)| Some((g, h.as_ref()?.vtcm_bytes)));
        let Some((graph, bytes)) = asked.max_by_key(|(_, bytes)| *bytes) else { continue };
        if bytes > u64::from(soc.vtcm_mb) << 20 {
            let what =
                format!("asks for {} MB of VTCM, but {} has {} MB", bytes.div_ceil(1 << 20), soc.name, soc.vtcm_mb);
            found.add(&RULE, format!("{} graph `{}`", binary.name(), graph.name), what);
        }
    }
}

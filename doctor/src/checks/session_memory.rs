//! What a session on the DSP must map at once.

use nsp_graph::names::KvName;

use crate::case::FileState;
use crate::{Case, Findings, Rule, Severity};

/// More than fits.
pub const RULE: Rule = Rule {
    id: "session-memory",
    severity: Severity::Warning,
    title: "binaries, cache and spill-fill buffers near or beyond what one HTP session can map",
    why: "about 3.5 GB can be mapped at once: 1002 or 5005, often only with the longest context",
    cure: "use fewer bits, a shorter context, or set `mmap-budget` so that binaries are mapped piece by piece",
};

/// Users' reports of what fits.
const LIMIT: u64 = 3_500_000_000;

/// Sums up what is known of HTP binaries, unless they are mapped piece by piece.
pub fn check(case: &Case, found: &mut Findings) {
    let budget = case.config().and_then(|config| config.htp("mmap-budget")?.as_u64());
    if budget.is_some_and(|budget| budget > 0) {
        return;
    }
    let (mut files, mut cache, mut spill) = (0_u64, 0_u64, 0_u64);
    for (binary, info) in case.htp_binaries() {
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
    if total > LIMIT {
        let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let what = format!(
            "{} of binaries, {} of cache, {} of spill-fill: {} in all",
            gb(files),
            gb(cache),
            gb(spill),
            gb(total)
        );
        found.add(&RULE, "bundle", what);
    }
}

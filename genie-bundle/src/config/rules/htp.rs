//! Rules of the `QnnHtp` block: keys that exclude each other.

use super::super::node::Node;
use super::super::problem::Problem;

pub(super) fn check(e: &Node<'_>, out: &mut Vec<Problem>) {
    let Some(backend) = e.get("backend") else { return };
    let htp = backend.get("QnnHtp");
    let multi_nsp = htp.as_ref().is_some_and(|h| h.is_true("multi-nsp-prefill"));
    if !multi_nsp && backend.count("extensions") > 1 {
        let n = backend.count("extensions");
        out.push(backend.problem_at("extensions", format!("expected one path without `multi-nsp-prefill`, found {n}")));
    }
    let Some(h) = htp else { return };
    exclusions(&h, out);
    if let Some(mask) = h.str("cpu-mask")
        && parse_mask(mask).is_none()
    {
        let message = format!("expected a hexadecimal mask of up to 64 bits, found `{mask}`");
        out.push(h.problem_at("cpu-mask", message).hint("for example `0xe0`"));
    }
    let model = e.get("model");
    if model.as_ref().is_some_and(|m| m.has("positional-encoding")) {
        for key in ["pos-id-dim", "rope-theta"] {
            if h.has(key) {
                let problem = h.problem_at(key, "not allowed together with `positional-encoding` of the model");
                out.push(problem.hint(format!("remove `{key}`; `positional-encoding` says the same")));
            }
        }
    }
    if multi_nsp {
        let bins = model.and_then(|m| m.get("binary")).map_or(0, |b| b.count("ctx-bins").max(b.count("fcb")));
        for (what, n) in [("extension configs", backend.count("extensions")), ("binaries", bins)] {
            if n < 2 {
                out.push(h.problem_at("multi-nsp-prefill", format!("needs at least 2 {what}, found {n}")));
            }
        }
    }
}

fn exclusions(h: &Node<'_>, out: &mut Vec<Problem>) {
    for (key, other) in [
        ("shared-engine", "multi-nsp-prefill"),
        ("allow-async-enqueue", "multi-nsp-prefill"),
        ("allow-async-enqueue", "enable-graph-switching"),
    ] {
        if h.is_true(key) && h.is_true(other) {
            out.push(h.problem_at(key, format!("not allowed together with `{other}`")));
        }
    }
    if h.is_true("shared-engine") && !h.is_true("allow-async-init") {
        out.push(h.problem_at("allow-async-init", "must be true when `shared-engine` is true"));
    }
    if h.has("graph-retention-order") && !h.is_true("enable-graph-switching") {
        out.push(h.problem_at("graph-retention-order", "needs `enable-graph-switching` to be true"));
    }
    if h.str("graph-switching-lora-policy") == Some("lazy") {
        if !h.is_true("enable-graph-switching") {
            out.push(h.problem_at("graph-switching-lora-policy", "`lazy` needs `enable-graph-switching` to be true"));
        }
        if h.is_true("weight-shared-lora") {
            out.push(h.problem_at("graph-switching-lora-policy", "`lazy` is not allowed with `weight-shared-lora`"));
        }
    }
}

/// The CPUs of an affinity mask such as `0xe0`. An empty string is no mask at all: 0.
pub(in crate::config) fn parse_mask(text: &str) -> Option<u64> {
    let digits = text.trim();
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(digits);
    if digits.is_empty() {
        return text.trim().is_empty().then_some(0);
    }
    // `from_str_radix` would take a sign.
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}

//! Rules of the `model` block: its type's block, the binary list, LoRA versions.

use super::super::node::Node;
use super::super::problem::Problem;

const TYPES: [&str; 4] = ["binary", "library", "scopgpt-gguf", "checkpoint"];

pub(super) fn check(e: &Node<'_>, out: &mut Vec<Problem>) {
    let Some(m) = e.get("model") else { return };
    if let Some(kind) = m.str("type") {
        for name in TYPES {
            match (name == kind, m.has(name)) {
                (true, false) => out.push(m.problem_at(name, format!("required when the model type is `{name}`"))),
                (false, true) => {
                    let message = format!("only allowed when the model type is `{name}`, which is `{kind}` here");
                    out.push(m.problem_at(name, message));
                }
                _ => {}
            }
        }
    }
    if let Some(b) = m.get("binary") {
        match (b.has("ctx-bins"), b.has("fcb")) {
            (true, true) => out.push(b.problem_at("fcb", "`ctx-bins` and `fcb` name the same thing: give one of them")),
            (false, false) => out.push(b.problem_at("ctx-bins", "required key is missing")),
            _ => {}
        }
    }
    for name in TYPES {
        if let Some(l) = m.get(name).and_then(|b| b.get("lora")) {
            lora(&l, out);
        }
    }
}

fn lora(l: &Node<'_>, out: &mut Vec<Problem>) {
    let version = l.get("lora-version").and_then(|v| v.as_i64()).unwrap_or(2);
    for a in l.get("adapters").map_or(Vec::new(), |a| a.items()) {
        match (version, a.has("path")) {
            (1, false) => out.push(a.problem_at("path", "required for LoRA version 1")),
            (2.., true) => out.push(a.problem_at("path", format!("not allowed for LoRA version {version}"))),
            _ => {}
        }
        if version >= 2 && !a.has("alphas") && !a.has("bin-sections") {
            out.push(a.problem(format!("needs `alphas` or `bin-sections` for LoRA version {version}")));
        }
    }
    if version == 1 && l.has("groups") {
        out.push(l.problem_at("groups", "not allowed for LoRA version 1"));
    }
}

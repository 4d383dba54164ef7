//! Rules of the `dialog` block: kind and its block, engines and roles, sampler, embedding, grammar.

use super::super::node::Node;
use super::super::problem::Problem;

/// Blocks named after a dialog kind, and whether that kind demands its block.
const KIND_BLOCKS: [(&str, bool); 6] =
    [("ssd-q1", true), ("spd", true), ("multistream", true), ("eaglet", true), ("lade", false), ("kv-share", false)];

pub(super) fn check(d: &Node<'_>, out: &mut Vec<Problem>) {
    if let Some(kind) = d.str("type") {
        kind_blocks(d, kind, out);
        engines(d, kind, out);
    }
    if let Some(b) = d.get("ssd-q1") {
        ssd(&b, out);
    }
    if let Some(b) = d.get("eaglet") {
        eaglet(&b, out);
    }
    if let Some(b) = d.get("sampler") {
        sampler(&b, out);
    }
    if let Some(g) = d.get("context").and_then(|c| c.get("grammar")) {
        grammar(&g, out);
    }
    if let Some(h) = d.get("harmony")
        && h.str("type") == Some("gpt-oss")
        && !h.has("tokenizer-vocab-path")
    {
        out.push(h.problem_at("tokenizer-vocab-path", "required when the harmony type is `gpt-oss`"));
    }
    for key in ["embedding", "perlayer-embedding"] {
        if let Some(e) = d.get(key) {
            lut(&e, out);
        }
    }
}

fn kind_blocks(d: &Node<'_>, kind: &str, out: &mut Vec<Problem>) {
    for (name, demanded) in KIND_BLOCKS {
        match (kind == name, d.has(name)) {
            (true, false) if demanded => {
                out.push(d.problem_at(name, format!("required when the dialog type is `{name}`")));
            }
            (false, true) => out.push(
                d.problem_at(name, format!("only allowed when the dialog type is `{name}`, which is `{kind}` here")),
            ),
            _ => {}
        }
    }
}

fn engines(d: &Node<'_>, kind: &str, out: &mut Vec<Problem>) {
    let Some(engine) = d.get("engine") else { return };
    let roles: [&str; 2] = match kind {
        "spd" | "eaglet" => ["draft", "target"],
        "kv-share" => ["primary", "secondary"],
        _ => {
            if engine.is_array() {
                out.push(engine.problem(format!("expected one object for dialog type `{kind}`, found an array")));
            } else if engine.has("role") {
                out.push(
                    engine.problem_at("role", format!("not allowed for dialog type `{kind}`, which has one engine")),
                );
            }
            return;
        }
    };
    if engine.is_object() {
        let wanted = format!("expected an array of two engines with roles `{}` and `{}`", roles[0], roles[1]);
        out.push(engine.problem(format!("{wanted} for dialog type `{kind}`, found one object")));
        return;
    }
    let mut found: Vec<&str> = engine.items().iter().map(|e| e.str("role").unwrap_or("none")).collect();
    found.sort_unstable();
    if found != roles {
        let list: Vec<String> = found.iter().map(|r| format!("`{r}`")).collect();
        let wanted = format!("expected two engines with roles `{}` and `{}`", roles[0], roles[1]);
        out.push(engine.problem(format!("{wanted}, found {} with {}", found.len(), list.join(", "))));
    }
}

fn ssd(b: &Node<'_>, out: &mut Vec<Problem>) {
    if let Some(count) = b.get("forecast-token-count").and_then(|n| n.as_i64())
        && (count as u64) < b.count("branches") as u64
    {
        let message = format!("expected at least the number of `branches`, {}, found {count}", b.count("branches"));
        out.push(b.problem_at("forecast-token-count", message));
    }
    if b.get("p-threshold").and_then(|n| n.as_f64()).is_some_and(|p| p > 0.0)
        && b.get("n-streams").and_then(|n| n.as_i64()).is_none_or(|n| n <= 1)
    {
        out.push(b.problem_at("n-streams", "must be above 1 when `p-threshold` is above 0"));
    }
}

fn eaglet(b: &Node<'_>, out: &mut Vec<Problem>) {
    for key in ["entropy-threshold", "min-draft-levels"] {
        if b.has(key) && !b.is_true("enable-early-stop") {
            out.push(b.problem_at(key, "needs `enable-early-stop` to be true"));
        }
    }
}

fn sampler(b: &Node<'_>, out: &mut Vec<Problem>) {
    if b.str("type") != Some("custom") {
        return;
    }
    if !b.has("callback-name") {
        out.push(b.problem_at("callback-name", "required when the sampler type is `custom`"));
    }
    for key in ["seed", "temp", "top-k", "top-p", "greedy"] {
        if b.has(key) {
            out.push(b.problem_at(key, "not allowed when the sampler type is `custom`"));
        }
    }
}

fn grammar(g: &Node<'_>, out: &mut Vec<Problem>) {
    let has_backend = g.str("backend").is_some_and(|s| !s.is_empty());
    if has_backend && g.str("file").is_none_or(str::is_empty) {
        out.push(g.problem_at("file", "must name a file when a grammar `backend` is set"));
    }
    if has_backend && !g.has("type") {
        out.push(g.problem_at("type", "must be `json-schema`, `regex` or `ebnf` when a grammar `backend` is set"));
    }
}

fn lut(e: &Node<'_>, out: &mut Vec<Problem>) {
    match (e.str("type"), e.has("lut-path")) {
        (Some("lut"), false) => out.push(e.problem_at("lut-path", "required when the type is `lut`")),
        (Some("callback"), true) => out.push(e.problem_at("lut-path", "only allowed when the type is `lut`")),
        _ => {}
    }
}

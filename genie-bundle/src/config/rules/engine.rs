//! Rules of the `engine` block: backend and its block, long context, cache groups.

use super::super::node::Node;
use super::super::problem::Problem;

const BACKENDS: [&str; 4] = ["QnnHtp", "QnnGenAiTransformer", "GTE", "QnnGpu"];

pub(super) fn check(e: &Node<'_>, out: &mut Vec<Problem>) {
    let backend = e.get("backend");
    let kind = backend.as_ref().and_then(|b| b.str("type"));
    if let (Some(b), Some(kind)) = (&backend, kind) {
        backend_block(b, kind, out);
    }
    let groups = e.get("cache-groups").map_or(Vec::new(), |g| g.items());
    let mut contexts: Vec<Node<'_>> = e.get("longcontext").into_iter().collect();
    contexts.extend(groups.iter().filter_map(|g| g.get("longcontext")));
    for c in &contexts {
        long_context(c, kind, out);
    }
    let keydiffs: Vec<&Node<'_>> = contexts.iter().filter(|c| c.has("keydiff")).collect();
    if let [_, rest @ ..] = &keydiffs[..] {
        for c in rest {
            out.push(c.problem_at("keydiff", "only one `keydiff` block is allowed in an engine"));
        }
    }
    unique_prefixes(&groups, out);
    if kind == Some("libtorch") {
        return;
    }
    for key in ["training-config", "optimizer-config"] {
        if let Some(kind) = kind
            && e.has(key)
        {
            out.push(e.problem_at(key, format!("only the `libtorch` backend trains, which is `{kind}` here")));
        }
    }
}

fn backend_block(b: &Node<'_>, kind: &str, out: &mut Vec<Problem>) {
    for name in BACKENDS {
        match (name == kind, b.has(name)) {
            (true, false) if name != "QnnGpu" => {
                out.push(b.problem_at(name, format!("required when the backend type is `{name}`")));
            }
            (false, true) => out.push(
                b.problem_at(name, format!("only allowed when the backend type is `{name}`, which is `{kind}` here")),
            ),
            _ => {}
        }
    }
}

fn long_context(c: &Node<'_>, backend: Option<&str>, out: &mut Vec<Problem>) {
    if let Some(kind) = c.str("type") {
        if !c.has(kind) {
            out.push(c.problem_at(kind, format!("required when the long context type is `{kind}`")));
        }
        for other in ["keydiff", "sliding-window"] {
            if other != kind && c.has(other) {
                let message = format!("only allowed when the long context type is `{other}`, which is `{kind}` here");
                out.push(c.problem_at(other, message));
            }
        }
    }
    if let Some(backend @ ("QnnGpu" | "QnnGenAiTransformer" | "GTE")) = backend {
        out.push(c.problem(format!("backend `{backend}` has no long context")));
    }
}

fn unique_prefixes(groups: &[Node<'_>], out: &mut Vec<Problem>) {
    let mut seen: Vec<&str> = Vec::new();
    for g in groups {
        let Some(prefix) = g.str("prefix") else { continue };
        if seen.contains(&prefix) {
            out.push(g.problem_at("prefix", format!("prefix `{prefix}` is already taken by an earlier cache group")));
        }
        seen.push(prefix);
    }
}

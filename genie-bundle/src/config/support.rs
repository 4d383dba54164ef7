//! Features that this build does not have yet, by name. Keys that it ignores with a warning are those of `key_effects`.

use super::lora;
use super::node::Node;
use super::problem::Problem;

/// Values of the dialog's `type` that this build runs: the rows of `dialog::kinds::KINDS`.
pub const DIALOG_KINDS: &[&str] = &["basic", "eaglet", "kv-share", "lade", "multistream", "spd", "ssd-q1"];

/// Keys of the dialog that are refused: what they are, and why.
const REFUSED: &[(&str, &str, &str)] = &[
    ("perlayer-embedding", "per-layer embeddings", NO_PER_LAYER),
    ("nested-generator", "nested generators", NO_NESTED),
    ("nested-generator-config-path", "nested generators", NO_NESTED),
];

const NO_PER_LAYER: &str = "the input tensors that take the rows of each layer, and their order in the table, are not known: no bundle \
                            with them could be recorded";
const NO_NESTED: &str = "which tensors of the outer generator the inner one takes, and when it runs, is not known: no bundle with one \
                         could be recorded. Run the two models as dialogs of their own";

/// Every feature of a valid config that must be refused.
pub(super) fn unsupported(root: &Node<'_>) -> Vec<Problem> {
    let mut out = Vec::new();
    let Some(d) = root.get("dialog") else { return out };
    if let Some(kind) = d.str("type").filter(|k| !DIALOG_KINDS.contains(k)) {
        let known: Vec<String> = DIALOG_KINDS.iter().map(|kind| format!("`{kind}`")).collect();
        let hint = format!("this build runs {} dialogs", known.join(", "));
        out.push(not_yet(&d, "type", &format!("dialog type `{kind}`")).hint(hint));
    }
    for (key, what, why) in REFUSED {
        if d.has(key) {
            out.push(d.problem_at(key, format!("{what} are not yet supported")).hint(*why));
        }
    }
    if d.str("type").is_some_and(|kind| kind != "spd" && kind != "eaglet") {
        let models = d.get("engine").map_or(Vec::new(), |e| e.one_or_many());
        for model in models.iter().filter_map(|e| e.get("model")).filter(|m| m.has("draft-token-map")) {
            let problem =
                model.problem_at("draft-token-map", "only dialogs of type `spd` and `eaglet` have a draft model");
            out.push(problem.hint("remove it"));
        }
    }
    if d.str("type") == Some("spd") {
        for block in d.get("engine").map_or(Vec::new(), |e| e.items()).iter().filter_map(|e| e.get("longcontext")) {
            // libGenie: "Cannot enable Long Context on this dialog."
            out.push(block.problem("a dialog of type `spd` cannot have long context").hint("remove `longcontext`"));
        }
    }
    for e in d.get("engine").map_or(Vec::new(), |e| e.one_or_many()) {
        engine(&e, &mut out);
    }
    out
}

fn engine(e: &Node<'_>, out: &mut Vec<Problem>) {
    if let Some(b) = e.get("backend") {
        if let Some(kind) = b.str("type").filter(|k| *k != "QnnHtp") {
            let problem = not_yet(&b, "type", &format!("backend `{kind}`"));
            out.push(problem.hint("`QnnHtp` configs run on the embedded backend and on libQnnHtp"));
        }
        if let Some(h) = b.get("QnnHtp") {
            for key in ["multi-nsp-prefill", "weight-shared-lora"] {
                if h.is_true(key) {
                    out.push(not_yet(&h, key, &format!("`{key}`")));
                }
            }
        }
    }
    if let Some(m) = e.get("model") {
        model(&m, out);
    }
}

fn model(m: &Node<'_>, out: &mut Vec<Problem>) {
    if let Some(kind) = m.str("type").filter(|k| *k != "binary") {
        out.push(not_yet(m, "type", &format!("model type `{kind}`")));
    }
    for key in ["cross-attention", "linear-attention"] {
        if m.is_true(key) {
            out.push(not_yet(m, key, &format!("`{key}`")));
        }
    }
    if m.has("mask-type") {
        out.push(not_yet(m, "mask-type", "`mask-type`"));
    }
    for name in ["binary", "library", "scopgpt-gguf", "checkpoint"] {
        let Some(b) = m.get(name) else { continue };
        if let Some(l) = b.get("lora") {
            lora::unsupported(&l, out);
        }
        for bin in b.get("ctx-bins").or_else(|| b.get("fcb")).map_or(Vec::new(), |b| b.items()) {
            if bin.as_str().is_some_and(|p| p.trim().starts_with("record://")) {
                out.push(bin.problem("reading binaries out of a DLC (`record://`) is not yet supported"));
            }
        }
    }
    let Some(p) = m.get("positional-encoding") else { return };
    for p in p.one_or_many() {
        if p.str("type").is_some_and(|kind| kind != "rope") && p.str("prefix").is_some_and(|p| p != "default_") {
            let message = "only encodings of type `rope` can have a prefix of their own";
            out.push(p.problem_at("prefix", message));
        }
    }
}

fn not_yet(parent: &Node<'_>, key: &str, what: &str) -> Problem {
    parent.problem_at(key, format!("{what} is not yet supported"))
}

/// What the writer may expect otherwise and `key_effects` cannot say: something absent.
pub(super) fn warnings(root: &Node<'_>) -> Vec<Problem> {
    let mut out = Vec::new();
    let Some(d) = root.get("dialog") else { return out };
    if !d.has("sampler") {
        let problem = d.problem_at("sampler", "absent: Genie's defaults are used");
        out.push(problem.hint("libGenie refuses to create a dialog without it"));
    }
    if let Some(debug) = d.get("debug")
        && !["dump-tensors", "dump-specs", "dump-outputs"].into_iter().any(|key| debug.is_true(key))
    {
        out.push(debug.problem("writes nothing").hint("set `dump-tensors`, `dump-specs` or `dump-outputs` to true"));
    }
    if let Some(harmony) = d.get("harmony") {
        let (kind, format) = (harmony.str("type"), harmony.str("chat-format"));
        let acts = kind == Some("gpt-oss") || format == Some("harmony-gpt-oss");
        if !acts || kind.is_some_and(|kind| kind != "gpt-oss") {
            let found = kind.map_or_else(|| "no `type`".to_owned(), |kind| format!("type `{kind}`"));
            let problem = harmony.problem(format!("replies are not read as messages: found {found}"));
            out.push(problem.hint("`gpt-oss` is the only type"));
        }
    }
    for e in d.get("engine").map_or(Vec::new(), |e| e.one_or_many()) {
        for p in e.get("model").and_then(|m| m.get("positional-encoding")).map_or(Vec::new(), |p| p.one_or_many()) {
            if let Some(s) = p.get("rope-scaling")
                && !s.has("rope-type")
            {
                out.push(s.problem("ignored, as in Genie: `rope-type` is missing").hint("add `rope-type`"));
            }
        }
    }
    out
}

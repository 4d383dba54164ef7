//! Checks of the config's model values against the graphs: head width, context size, embedding table.

use nsp_graph::LayoutError;
use nsp_graph::names::{INPUT_IDS, INPUTS_EMBEDS};
use serde_json::Value;

use super::{Check, tensors};
use crate::facts::FileState;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&KV_DIM_MISSING, &KV_DIM], run: kv_dim },
    Check { rules: &[&CONTEXT_SIZE], run: context_size },
    Check { rules: &[&EMBEDDING_MISSING, &EMBEDDING_SIZE], run: embedding },
];

const KV_DIM_MISSING: Rule = Rule {
    id: "kv-dim-missing",
    severity: Severity::Error,
    title: "no `kv-dim` in the `QnnHtp` block",
    why: "the schema allows it, but libGenie then fails with `type must be number, but is number`",
    fix: Fix::Text("add `kv-dim`, the width of a head"),
};

const KV_DIM: Rule = Rule {
    id: "kv-dim",
    severity: Severity::Warning,
    title: "`kv-dim` is not the width of a head",
    why: "libGenie 1.21 reads it but uses the tensors' width; other versions may not",
    fix: Fix::Text("set it to the width of a head"),
};

const KV_DIM_KEY: &str = "/dialog/engine/backend/QnnHtp/kv-dim";

/// The key, then its value against the cache tensors.
fn kv_dim(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config().filter(|config| config.is_htp()) else { return };
    let head_dim = tensors::head_dim(facts);
    match config.htp("kv-dim") {
        None => {
            let finding = found.add(&KV_DIM_MISSING, config.at(KV_DIM_KEY), "required key is missing");
            if let Some((dim, tensor)) = head_dim {
                finding.fix(format!("add `\"kv-dim\": {dim}`, the width of a head of {tensor}"));
            }
        }
        Some(value) => {
            if let (Some(found_dim), Some((dim, tensor))) = (value.as_u64(), head_dim)
                && found_dim != dim as u64
            {
                found.add(
                    &KV_DIM,
                    config.at(KV_DIM_KEY),
                    format!("{found_dim}, but {tensor} has heads of width {dim}"),
                );
            }
        }
    }
}

const CONTEXT_SIZE: Rule = Rule {
    id: "context-size",
    severity: Severity::Error,
    title: "a context size beyond the longest compiled context",
    why: "libGenie refuses it: `Config specifies context->size`; compiled graphs have fixed context lengths",
    fix: Fix::LongerContext,
};

/// Unless old tokens are evicted, which allows longer dialogs.
fn context_size(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config() else { return };
    let layout = match (facts.layout(), facts.fused()) {
        (Some(Ok(layout)), _) => layout,
        (Some(Err(LayoutError::OnlyFused { .. })), Some(Ok(fused))) => {
            let rows = fused.context - 1;
            if let Some(size) = config.number("/context/size").filter(|size| *size > rows as i64) {
                let what = format!("{size} tokens, but the fused graphs keep {rows} rows");
                found.add(&CONTEXT_SIZE, config.at("/dialog/context/size"), what);
            }
            return;
        }
        _ => return,
    };
    let evicts = config.engine("/longcontext").is_some();
    let longest = layout.max_cl();
    if let Some(size) = config.number("/context/size")
        && !evicts
        && size > longest as i64
    {
        let mut cls: Vec<usize> = layout.variants.iter().map(|v| v.cl().get()).collect();
        cls.dedup();
        let cls: Vec<String> = cls.iter().map(|cl| format!("CL-{cl}")).collect();
        let what = format!("{size} tokens, but the graphs have {}", cls.join(", "));
        found.add(&CONTEXT_SIZE, config.at("/dialog/context/size"), what);
    }
}

const EMBEDDING_MISSING: Rule = Rule {
    id: "embedding-missing",
    severity: Severity::Error,
    title: "a graph that takes `inputs_embeds`, and no `embedding` block",
    why: "libGenie refuses it: `inputs_embeds - Wrong input shape`",
    fix: Fix::Text("add `dialog.embedding` with `lut-path`, `size` and `datatype`"),
};

const EMBEDDING_SIZE: Rule = Rule {
    id: "embedding-size",
    severity: Severity::Error,
    title: "an embedding table whose length or width differs from the config or the graph",
    why: "rows are read from wrong offsets or beyond the end: wrong text, or a crash",
    fix: Fix::Text("correct `size` and `datatype`, or copy the table again"),
};

/// The embedding block against the graphs and the file.
fn embedding(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config() else { return };
    let produced = tensors::outputs(facts, |name| name == INPUTS_EMBEDS).next().is_some();
    let ids = tensors::inputs(facts, |name| name == INPUT_IDS).next().is_some();
    let taken = tensors::inputs(facts, |name| name == INPUTS_EMBEDS).next().filter(|_| !produced && !ids);
    let Some(block) = config.dialog("/embedding") else {
        if let Some(taken) = taken {
            found.add(
                &EMBEDDING_MISSING,
                config.at("/dialog/embedding"),
                format!("missing, but {} takes {INPUTS_EMBEDS}", taken.at()),
            );
        }
        return;
    };
    let Some(size) = block.get("size").and_then(Value::as_u64).filter(|&size| size > 0) else { return };
    if let Some(taken) = &taken
        && let Some(&width) = taken.tensor.dims.last()
        && width as u64 != size
    {
        let what = format!("{size}, but {INPUTS_EMBEDS} of {} is {width} wide", taken.at());
        found.add(&EMBEDDING_SIZE, config.at("/dialog/embedding/size"), what);
        return;
    }
    let file = facts.bundle.as_ref().and_then(|bundle| bundle.embedding.as_ref());
    let Some((file, &FileState::Present { bytes })) = file.map(|file| (file, &file.file)) else { return };
    let element = match block.get("datatype").and_then(Value::as_str) {
        None | Some("float32") => 4,
        Some("ufixed8" | "sfixed8") => 1,
        Some("ufixed16" | "sfixed16") => 2,
        _ => return,
    };
    let row = size * element;
    let rows = config.number("/context/n-vocab").and_then(|n| u64::try_from(n).ok());
    if !bytes.is_multiple_of(row) || rows.is_some_and(|rows| rows > bytes / row) {
        let expected =
            rows.map_or_else(|| format!("a multiple of {row}"), |rows| format!("{} for {rows} rows", rows * row));
        found.add(&EMBEDDING_SIZE, &file.written, format!("has {bytes} bytes, expected {expected} of {row} bytes"));
    }
}

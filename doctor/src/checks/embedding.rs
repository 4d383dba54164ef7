//! Graphs that take embeddings instead of token ids need a table.

use nsp_graph::names::{INPUT_IDS, INPUTS_EMBEDS};
use serde_json::Value;

use super::facts;
use crate::case::FileState;
use crate::{Case, Findings, Rule, Severity};

/// No table.
pub const RULE: Rule = Rule {
    id: "embedding-missing",
    severity: Severity::Error,
    title: "a graph that takes `inputs_embeds`, and no `embedding` block",
    why: "Genie refuses it: `inputs_embeds - Wrong input shape`",
    cure: "add `dialog.embedding` with `lut-path`, `size` and `datatype`",
};

/// A table of another size.
pub const SIZE_RULE: Rule = Rule {
    id: "embedding-size",
    severity: Severity::Error,
    title: "an embedding table whose length or width is not what the config or the graph says",
    why: "rows are looked up at wrong places, or beyond the end: nonsense, or a crash",
    cure: "correct `size` and `datatype`, or copy the table again",
};

/// The block against graphs and file.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(config) = case.config() else { return };
    let made = facts::outputs(case, |name| name == INPUTS_EMBEDS).next().is_some();
    let ids = facts::inputs(case, |name| name == INPUT_IDS).next().is_some();
    let taken = facts::inputs(case, |name| name == INPUTS_EMBEDS).next().filter(|_| !made && !ids);
    let Some(block) = config.dialog("/embedding") else {
        if let Some(taken) = taken {
            found.add(
                &RULE,
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
        found.add(&SIZE_RULE, config.at("/dialog/embedding/size"), what);
        return;
    }
    let file = case.bundle.as_ref().and_then(|bundle| bundle.embedding.as_ref());
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
        found.add(&SIZE_RULE, &file.written, format!("has {bytes} bytes, expected {expected} of {row} bytes each"));
    }
}

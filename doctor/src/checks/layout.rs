//! The graph contract: whatever else keeps the graphs from being a model, sorted into a few rules.

use nsp_graph::LayoutError;

use super::{cache_groups, kv_encoding, position_encoding};
use crate::{Case, Findings, Rule, Severity};

macro_rules! rule {
    ($(#[$doc:meta])* $name:ident, $id:literal, $title:literal, $why:literal, $cure:literal) => {
        $(#[$doc])*
        pub const $name: Rule = Rule { id: $id, severity: Severity::Error, title: $title, why: $why, cure: $cure };
    };
}

rule! {
    /// Shapes, types and names.
    CONTRACT, "graph-contract", "a graph that breaks the contract of names, shapes and types",
    "Genie refuses it (`Model Validation Errors found`), or feeds it wrongly",
    "see docs/graph-contract.md for the tensors that are expected"
}
rule! {
    /// No mask, no index.
    INPUT_MISSING, "input-missing", "a graph without a mask, a cache index or a position table that it needs",
    "Genie refuses it: `has no associated attention mask`, `Could not find I/O tensors in loaded graphs`",
    "name the tensor as the contract does, or in `engine.cache-groups`"
}
rule! {
    /// Cache tensors.
    KV_TENSORS, "kv-tensors", "cache tensors that do not pair up, or have other lengths than the graph's AR and CL ask for",
    "Genie crashes or corrupts the cache",
    "compile the graphs again; keys and values come in pairs, in and out, in every variant"
}
rule! {
    /// No logits, no tokens.
    ENDS, "split-ends", "tokens do not enter at the first split, or logits do not leave at the last",
    "Genie refuses it: `logits - Tensor not found`",
    "give all splits of the model, and only those"
}
rule! {
    /// A split is not there.
    SPLIT_MISSING, "split-missing", "a split is missing, or the names disagree on how many there are",
    "the chain has a hole: tensors between splits are filled by nobody",
    "list every split's binary in `ctx-bins`"
}
rule! {
    /// Splits do not fit together.
    WIRING, "split-wiring", "splits that do not fit together",
    "an input is filled by no earlier split, or with other numbers than it expects",
    "take all splits from one compilation; tensors between splits meet by name"
}
rule! {
    /// A shape is not there.
    VARIANT, "variant-missing", "a split lacks an AR and CL that other splits have",
    "every query that needs it fails with -6 (`no graph for variant`)",
    "compile every split for the same widths and context lengths"
}
rule! {
    /// A shape twice.
    TWICE, "graph-twice", "two graphs of a split have the same AR and CL",
    "which one runs is left to chance; Genie refuses it",
    "list each binary once, and compile each shape once"
}
rule! {
    /// A graph that was chosen.
    SELECTION, "graph-selection", "`execute-select-graphs` names a graph that is not there",
    "no graph is left to run",
    "write the graphs' names as `genie inspect` shows them"
}
rule! {
    /// Graphs disagree.
    DIFFERS, "tensor-differs", "graphs disagree on the vocabulary, the rotary width or the embedding width",
    "they are not of one model",
    "take all graphs from one compilation"
}

/// The rule that an error of the analysis belongs to.
fn rule_of(error: &LayoutError) -> &'static Rule {
    use LayoutError as E;
    match error {
        E::SelectedGraphMissing { .. } => &SELECTION,
        E::GroupMaskMissing { .. } | E::CacheIndexMissing { .. } | E::InputMissing { .. } => &INPUT_MISSING,
        E::UnknownGroup { .. } | E::GroupTwice { .. } => &cache_groups::RULE,
        E::MixedForms { .. } => &cache_groups::FORMS_RULE,
        E::KvEncodingDiffers { .. } => &kv_encoding::RULE,
        E::KvUnpaired { .. }
        | E::PastLength { .. }
        | E::KvGeometryDiffers { .. }
        | E::KvMissing { .. }
        | E::KvInTwoSplits { .. }
        | E::NoCache { .. } => &KV_TENSORS,
        E::SplitTotalDiffers { .. } | E::SplitMissing { .. } | E::SplitUnnumbered { .. } => &SPLIT_MISSING,
        E::VariantTwice { .. } => &TWICE,
        E::VariantMissing { .. } => &VARIANT,
        E::NoTokenInput { .. } | E::NoLogits { .. } | E::LogitsTooEarly { .. } => &ENDS,
        E::InputUnknown { .. } | E::WireBackwards { .. } | E::WireDiffers { .. } => &WIRING,
        E::TensorDiffers { .. } => &DIFFERS,
        _ => &CONTRACT,
    }
}

/// The first breach that the analysis meets, unless a closer look has told it already.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(Err(error)) = case.layout() else { return };
    let rule = rule_of(&error);
    // Cache tensors whose encodings differ between variants are of another geometry, too.
    let told = found.has(rule) || (rule.id == KV_TENSORS.id && found.has(&kv_encoding::RULE) && is_geometry(&error));
    let told = told || (found.has(&position_encoding::RULE) && rule.id == position_encoding::RULE.id);
    if !told {
        found.add(rule, "graphs", error.to_string());
    }
}

fn is_geometry(error: &LayoutError) -> bool {
    matches!(error, LayoutError::KvGeometryDiffers { .. })
}

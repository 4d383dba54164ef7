//! Checks of the graphs as one model: variants, cache groups, and the rest of the graph contract.

use std::collections::BTreeMap;

use nsp_graph::names::DEFAULT_GROUP;
use nsp_graph::{LayoutError, Note};

use super::{Check, encodings};
use crate::facts::FileState;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&AR_SETS], run: ar_sets },
    Check {
        rules: &[&NARROW_HEAD, &WITHOUT_LOGITS, &HEAD_WEIGHT_INPUT, &NATIVE_KV, &IMAGE_ENCODER],
        run: not_for_libgenie,
    },
    Check { rules: &[&HEAD_WEIGHT_FILE], run: head_weights },
    Check { rules: &[&FUSED_GRAPHS, &FUSED_OFF, &FUSED_MISSING], run: fused },
    Check { rules: &[&CACHE_GROUP, &CACHE_FORMS], run: cache_groups },
    Check {
        rules: &[
            &GRAPH_CONTRACT,
            &INPUT_MISSING,
            &KV_TENSORS,
            &SPLIT_ENDS,
            &SPLIT_MISSING,
            &SPLIT_WIRING,
            &VARIANT_MISSING,
            &GRAPH_TWICE,
            &GRAPH_SELECTION,
            &TENSOR_DIFFERS,
        ],
        run: contract,
    },
];

const AR_SETS: Rule = Rule {
    id: "ar-sets",
    severity: Severity::Error,
    title: "the set of ARs differs between context lengths (CL)",
    why: "libGenie puts large chunks into graphs of a smaller AR and generates wrong text without an error; this \
        engine plans with the variants that exist",
    fix: Fix::Text("compile every AR for every CL"),
};

/// The set of ARs of each CL.
fn ar_sets(facts: &Facts, found: &mut Findings) {
    let Some(Ok(layout)) = facts.layout() else { return };
    let mut by_cl: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for variant in &layout.variants {
        by_cl.entry(variant.cl().get()).or_default().push(variant.ar().to_string());
    }
    let mut sets = by_cl.values();
    let first = sets.next();
    if sets.any(|set| Some(set) != first) {
        let words: Vec<String> = by_cl.iter().map(|(cl, ars)| format!("CL-{cl} has AR {}", ars.join(", "))).collect();
        found.add(&AR_SETS, "graphs", words.join("; "));
    }
}

const NARROW_HEAD: Rule = Rule {
    id: "narrow-head",
    severity: Severity::Warning,
    title: "the LM head takes fewer rows than the decoders before it",
    why: "libGenie loads such a bundle and answers queries with -6; this engine runs the head on the rows whose logits \
        are wanted",
    fix: Fix::Text("for libGenie, compile the head for every AR"),
};
const WITHOUT_LOGITS: Rule = Rule {
    id: "without-logits",
    severity: Severity::Warning,
    title: "graphs of which only cache rows come out",
    why: "libGenie refuses them, or answers queries with -6; this engine runs the last tokens of a prompt on other graphs",
    fix: Fix::Text("for libGenie, compile all graphs with logits"),
};

const HEAD_WEIGHT_INPUT: Rule = Rule {
    id: "head-weight-input",
    severity: Severity::Warning,
    title: "the LM head takes its weight as an input",
    why: "libGenie feeds the input zeros and answers with token 0: no key of its config names the folder of weights",
    fix: Fix::Text("for libGenie, compile the weight into the graphs"),
};
const NATIVE_KV: Rule = Rule {
    id: "native-kv",
    severity: Severity::Warning,
    title: "cache tensors in hardware tiles",
    why: "no chip has confirmed the order of elements that this engine uses; the x86 emulator refuses such graphs",
    fix: Fix::Text("compare with a flat cache on the device: `genie verify`"),
};
const IMAGE_ENCODER: Rule = Rule {
    id: "image-encoder",
    severity: Severity::Warning,
    title: "an image encoder among the dialog's binaries",
    why: "libGenie takes image encoders as nodes of a pipeline; this engine runs it for `genie run --image` only",
    fix: Fix::Text("for libGenie, leave it out of `ctx-bins`"),
};
const HEAD_WEIGHT_FILE: Rule = Rule {
    id: "head-weight-file",
    severity: Severity::Error,
    title: "the file of a weight that the LM head takes as an input is missing or of another length",
    why: "the bundle cannot be opened without it",
    fix: Fix::Text("copy the file from where the bundle was made, or compile it again"),
};

/// The files of weights that are inputs.
fn head_weights(facts: &Facts, found: &mut Findings) {
    let Some(Ok(layout)) = facts.layout() else { return };
    let Some(bundle) = &facts.bundle else { return };
    for weight in &layout.weights {
        let files = bundle.binaries.get(weight.binary).map_or(&[][..], |binary| &binary.weights);
        let Some(file) = files.iter().find(|file| file.tensor == weight.info.name) else { continue };
        let expected = weight.info.size_bytes() as u64;
        let what = match &file.file {
            FileState::Present { bytes } if *bytes == expected => continue,
            FileState::Present { bytes } => format!("it has {bytes} bytes, expected {expected}"),
            FileState::Missing { .. } => "it does not exist".to_owned(),
            FileState::Unusable(why) => why.clone(),
        };
        found.add(&HEAD_WEIGHT_FILE, file.path.display().to_string(), what);
    }
}

/// Kinds of graphs that this engine runs and libGenie does not.
fn not_for_libgenie(facts: &Facts, found: &mut Findings) {
    let Some(Ok(layout)) = facts.layout() else { return };
    for note in &layout.notes {
        if matches!(note, Note::NarrowHead { .. }) {
            found.add(&NARROW_HEAD, "graphs", note.to_string());
        }
    }
    let without = layout.variants.iter().zip(&layout.gives_logits).filter(|(_, gives_logits)| !**gives_logits);
    let names: Vec<String> = without.map(|(variant, _)| variant.to_string()).collect();
    if !names.is_empty() {
        found.add(&WITHOUT_LOGITS, "graphs", names.join(", "));
    }
    for weight in &layout.weights {
        found.add(&HEAD_WEIGHT_INPUT, "graphs", format!("`{}`", weight.info.name));
    }
    if layout.native_kv {
        found.add(&NATIVE_KV, "graphs", "all cache tensors have data format 8".to_owned());
    }
    for note in layout.notes.iter().filter(|note| matches!(note, Note::ImageEncoder { .. })) {
        found.add(&IMAGE_ENCODER, "graphs", note.to_string());
    }
}

const FUSED_GRAPHS: Rule = Rule {
    id: "fused-graphs",
    severity: Severity::Warning,
    title: "graphs that carry a prompt's chunk and a decode row of another request",
    why: "libGenie knows no such graphs and refuses the bundle; this engine runs them",
    fix: Fix::Text("for libGenie, compile without `--pd-total-lens`"),
};
const FUSED_OFF: Rule = Rule {
    id: "fused-off",
    severity: Severity::Error,
    title: "`pd_fusion.enable` is false, and the bundle has fused graphs alone",
    why: "no graph is left to run",
    fix: Fix::Text("remove `pd_fusion.enable`, or compile the bundle with plain graphs as well"),
};
const FUSED_MISSING: Rule = Rule {
    id: "fused-missing",
    severity: Severity::Error,
    title: "`pd_fusion.enable` is true, and the bundle has no fused graphs",
    why: "this engine refuses to run the bundle on other graphs than the config asks for",
    fix: Fix::Text("remove `pd_fusion.enable`, or compile the bundle with fused graphs"),
};

const PD_ENABLE: &str = "/dialog/engine/pd_fusion/enable";

/// Fused graphs: what they are, and whether they are what the config asks for.
fn fused(facts: &Facts, found: &mut Findings) {
    let enable = facts.config().and_then(|config| config.engine("/pd_fusion/enable")).and_then(|v| v.as_bool());
    let at = |pointer: &str| facts.config().map_or_else(|| pointer.to_owned(), |config| config.at(pointer));
    let layout = match facts.fused() {
        Some(Ok(layout)) => layout,
        Some(Err(_)) => return,
        None => {
            if enable == Some(true) && facts.layout().is_some() {
                found.add(&FUSED_MISSING, at(PD_ENABLE), "no graph has input `fusion_ctrl`".to_owned());
            }
            return;
        }
    };
    let names: Vec<String> = layout.graphs().map(|graph| format!("`{}`", graph.info.name)).collect();
    found.add(&FUSED_GRAPHS, "graphs", names.join(", "));
    if enable == Some(false) && matches!(facts.layout(), Some(Err(LayoutError::OnlyFused { .. }))) {
        found.add(&FUSED_OFF, at(PD_ENABLE), format!("the graphs are {}", names.join(", ")));
    }
}

const CACHE_GROUP: Rule = Rule {
    id: "cache-group",
    severity: Severity::Error,
    title: "cache tensors with a prefix that the config does not name",
    why: "libGenie refuses them: `Invalid cache-group prefix detected`",
    fix: Fix::Text("list each prefix in `engine.cache-groups`, or name the tensors `past_key_L_in` and so on"),
};

const CACHE_FORMS: Rule = Rule {
    id: "cache-forms",
    severity: Severity::Error,
    title: "one cache group concatenates, another scatters",
    why: "libGenie feeds the scatter group a wrong index and generates wrong text without an error",
    fix: Fix::Text("compile all groups in the same form"),
};

/// The prefixes and forms of the graphs' cache groups.
fn cache_groups(facts: &Facts, found: &mut Findings) {
    let Some(Ok(layout)) = facts.layout() else { return };
    if let Some(config) = facts.config()
        && config.cache_groups().is_empty()
    {
        for group in layout.groups.iter().filter(|group| group.prefix != DEFAULT_GROUP) {
            let what = format!("the graphs have cache tensors `{}..`, which no cache group names", group.prefix);
            found.add(&CACHE_GROUP, config.at("/dialog/engine/cache-groups"), what);
        }
    }
    if layout.groups.iter().any(|group| group.form != layout.groups[0].form) {
        let words: Vec<_> = layout.groups.iter().map(|g| format!("`{}` is in {} form", g.prefix, g.form)).collect();
        found.add(&CACHE_FORMS, "graphs", words.join(", "));
    }
}

const GRAPH_CONTRACT: Rule = Rule {
    id: "graph-contract",
    severity: Severity::Error,
    title: "a graph that breaks the contract of names, shapes and types",
    why: "libGenie refuses it (`Model Validation Errors found`), or feeds it wrongly",
    fix: Fix::Text("see docs/graph-contract.md for the expected tensors"),
};
const INPUT_MISSING: Rule = Rule {
    id: "input-missing",
    severity: Severity::Error,
    title: "a graph without a mask, a cache index or a position table that it needs",
    why: "libGenie refuses it: `has no associated attention mask`, `Could not find I/O tensors in loaded graphs`",
    fix: Fix::Text("name the tensor as the contract does, or in `engine.cache-groups`"),
};
const KV_TENSORS: Rule = Rule {
    id: "kv-tensors",
    severity: Severity::Error,
    title: "cache tensors without a counterpart, or with another length than AR and CL require",
    why: "libGenie crashes or corrupts the cache",
    fix: Fix::Text("compile the graphs again; keys and values come in pairs, in and out, in every variant"),
};
const SPLIT_ENDS: Rule = Rule {
    id: "split-ends",
    severity: Severity::Error,
    title: "tokens do not enter at the first split, or logits do not leave at the last",
    why: "libGenie refuses it: `logits - Tensor not found`",
    fix: Fix::Text("list all splits of the model, and only those"),
};
const SPLIT_MISSING: Rule = Rule {
    id: "split-missing",
    severity: Severity::Error,
    title: "a split is missing, or the names disagree on the number of splits",
    why: "tensors between splits have no source",
    fix: Fix::Text("list every split's binary in `ctx-bins`"),
};
const SPLIT_WIRING: Rule = Rule {
    id: "split-wiring",
    severity: Severity::Error,
    title: "splits that do not fit together",
    why: "an input is written by no earlier split, or with another encoding than it expects",
    fix: Fix::Text("take all splits from one compilation; tensors between splits are matched by name"),
};
const VARIANT_MISSING: Rule = Rule {
    id: "variant-missing",
    severity: Severity::Error,
    title: "a split lacks an AR and CL that other splits have",
    why: "each query that needs it fails with -6 (`no graph for variant`)",
    fix: Fix::Text("compile every split for the same ARs and CLs"),
};
const GRAPH_TWICE: Rule = Rule {
    id: "graph-twice",
    severity: Severity::Error,
    title: "two graphs of a split have the same AR and CL",
    why: "which of them runs is undefined; libGenie refuses it",
    fix: Fix::Text("list each binary once, and compile each variant once"),
};
const GRAPH_SELECTION: Rule = Rule {
    id: "graph-selection",
    severity: Severity::Error,
    title: "`execute-select-graphs` names a graph that does not exist",
    why: "no graph is left to run",
    fix: Fix::NameGraphs,
};
const TENSOR_DIFFERS: Rule = Rule {
    id: "tensor-differs",
    severity: Severity::Error,
    title: "graphs disagree on the vocabulary, the rotary width or the embedding width",
    why: "they do not belong to one model",
    fix: Fix::Text("take all graphs from one compilation"),
};

/// The rule that an error of the analysis breaks.
fn rule_of(error: &LayoutError) -> &'static Rule {
    use LayoutError as E;
    match error {
        E::SelectedGraphMissing { .. } => &GRAPH_SELECTION,
        E::GroupMaskMissing { .. } | E::CacheIndexMissing { .. } | E::InputMissing { .. } => &INPUT_MISSING,
        E::UnknownGroup { .. } | E::GroupTwice { .. } => &CACHE_GROUP,
        E::MixedForms { .. } => &CACHE_FORMS,
        E::KvEncodingDiffers { .. } => &encodings::KV_ENCODING,
        E::KvUnpaired { .. }
        | E::PastLength { .. }
        | E::KvGeometryDiffers { .. }
        | E::KvMissing { .. }
        | E::KvInTwoSplits { .. }
        | E::NoCache { .. } => &KV_TENSORS,
        E::SplitTotalDiffers { .. } | E::SplitMissing { .. } | E::SplitUnnumbered { .. } => &SPLIT_MISSING,
        E::VariantTwice { .. } => &GRAPH_TWICE,
        E::VariantMissing { .. } => &VARIANT_MISSING,
        E::NoTokenInput { .. } | E::NoLogits { .. } | E::LogitsTooEarly { .. } => &SPLIT_ENDS,
        E::InputUnknown { .. } | E::WireBackwards { .. } | E::WireDiffers { .. } => &SPLIT_WIRING,
        E::TensorDiffers { .. } => &TENSOR_DIFFERS,
        _ => &GRAPH_CONTRACT,
    }
}

/// The first error of the analysis, unless another check has reported it.
fn contract(facts: &Facts, found: &mut Findings) {
    if let Some(Err(error)) = facts.fused() {
        found.add(&GRAPH_CONTRACT, "graphs", error.to_string());
    }
    let Some(Err(error)) = facts.layout() else { return };
    // These are read by their own contract.
    if matches!(error, LayoutError::OnlyFused { .. }) {
        return;
    }
    let rule = rule_of(&error);
    // Cache tensors whose encodings differ between variants also differ in geometry.
    let reported =
        found.has(rule) || (rule.id == KV_TENSORS.id && found.has(&encodings::KV_ENCODING) && is_geometry(&error));
    let reported = reported || (found.has(&encodings::POSITION_ENCODING) && rule.id == encodings::POSITION_ENCODING.id);
    if !reported {
        found.add(rule, "graphs", error.to_string());
    }
}

fn is_geometry(error: &LayoutError) -> bool {
    matches!(error, LayoutError::KvGeometryDiffers { .. })
}

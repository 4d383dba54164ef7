//! The dialog configuration of a bundle, as libGenie 1.21 accepts it.
//!
//! *Units*: `size` in tokens; `rope-dim` is the width of the position tables, half a head.
//! *Source*: measured config schema of API 1.21 (`docs/genie.md`); layout as in the golden bundles.

use crate::family::{LOCAL_TABLES, LocalRope, ModelSpec};
use crate::lora::Adapter;
use crate::lower::{WINDOW_GROUP, Windows};
use crate::options::GraphKinds;
use genie_bundle::{EMBEDDINGS_FILE, HTP_CONFIG_FILE, TOKENIZER_FILE};
use genie_types::RopeScaling;
use nsp_graph::names::DEFAULT_GROUP;
use serde_json::{Value, json};

/// Genie's way to write "none" for an id.
const UNSET: i64 = -1;
/// Default seed: sampling is repeatable.
const SEED: u32 = 42;

/// The whole document. `binaries` in execution order, `ctx_size` the longest CL compiled; `htp` when there is a backend
/// config beside it.
pub(crate) fn genie_config(
    spec: &ModelSpec,
    windows: Windows,
    ctx_size: usize,
    binaries: &[String],
    htp: bool,
    adapters: &[Adapter],
    kinds: &GraphKinds,
) -> Value {
    // A window on all layers drops what lies beyond it, so a dialog ends where the trained positions do.
    let size = match windows {
        Windows::Everywhere { .. } => spec.max_positions.unwrap_or(0).max(ctx_size),
        Windows::Unused | Windows::Group { .. } => ctx_size,
    };
    // A fused pair keeps every row, beside the one that a step computes.
    let only_fused = kinds.pd.as_ref().is_some_and(|pd| pd.only);
    let size = if only_fused { size - 1 } else { size };
    let mut binary = json!({ "version": 1, "ctx-bins": binaries });
    if !adapters.is_empty() {
        let adapter = |a: &Adapter| json!({ "version": 1, "name": a.name, "alphas": [a.alpha()] });
        let list: Vec<Value> = adapters.iter().map(adapter).collect();
        binary["lora"] = json!({ "version": 1, "lora-version": 2, "adapters": list });
        // libGenie writes every adapter's strength to this one input, and to none without it.
        if let [only] = adapters {
            binary["lora"]["alpha-tensor-name"] = json!(only.alpha());
        }
    }
    let tokens = &spec.tokens;
    let eos = match tokens.eos.as_slice() {
        [] => json!(UNSET),
        [one] => json!(one.0),
        many => many.iter().map(|id| id.0).collect(),
    };
    let mut context = json!({
        "version": 1,
        "size": size,
        "n-vocab": spec.vocab,
        "bos-token": tokens.bos.map_or(UNSET, |id| i64::from(id.0)),
        "eos-token": eos,
    });
    if let Some(pad) = tokens.pad {
        context["pad-token"] = json!(pad.0);
    }
    let sampler = &spec.sampler;
    let mut config = json!({
        "dialog": {
            "version": 1,
            "type": "basic",
            "context": context,
            "sampler": {
                "version": 1,
                "seed": SEED,
                "temp": number(sampler.temperature),
                "top-k": sampler.top_k,
                "top-p": number(sampler.top_p),
                "greedy": sampler.temperature == 0.0,
            },
            "tokenizer": { "version": 1, "path": TOKENIZER_FILE },
            "engine": {
                "version": 1,
                "n-threads": 0,
                "backend": backend(spec, htp),
                "model": {
                    "version": 1,
                    "type": "binary",
                    "binary": binary,
                    "positional-encoding": positional_encoding(spec),
                },
            },
        },
    });
    if kinds.embeddings_input {
        config["dialog"]["embedding"] = json!({
            "version": 1,
            "type": "lut",
            "size": spec.hidden,
            "datatype": "float32",
            "lut-path": EMBEDDINGS_FILE,
        });
    }
    let engine = &mut config["dialog"]["engine"];
    if let Some(pd) = &kinds.pd {
        let total_len = pd.total_lens.iter().copied().max().unwrap_or(0);
        engine["pd_fusion"] = json!({
            "total_len": total_len,
            "prefill_len": total_len.saturating_sub(1),
            "kv_update": pd.update,
        });
        // Beside plain graphs it is for whoever runs the bundle to say.
        if pd.only {
            engine["pd_fusion"]["enable"] = true.into();
        }
    }
    match windows {
        Windows::Unused => {}
        Windows::Everywhere { tokens } => engine["longcontext"] = sliding_window(tokens),
        Windows::Group { tokens, .. } => {
            engine["cache-groups"] = json!([
                { "version": 1, "prefix": DEFAULT_GROUP },
                { "version": 1, "prefix": WINDOW_GROUP, "longcontext": sliding_window(tokens) },
            ]);
        }
    }
    config
}

/// The rule of a cache group whose tokens see the last ones only.
fn sliding_window(tokens: usize) -> Value {
    json!({
        "version": 1,
        "type": "sliding-window",
        "reserved-tokens": 0,
        "sliding-window": { "version": 1, "window-size": tokens },
    })
}

fn backend(spec: &ModelSpec, htp: bool) -> Value {
    let mut backend = json!({
        "version": 1,
        "type": "QnnHtp",
        "QnnHtp": {
            "version": 1,
            // The embedded backend reads weights faster from memory of its own.
            "use-mmap": htp,
            "spill-fill-bufsize": 0,
            "mmap-budget": 0,
            "poll": false,
            "cpu-mask": "0xe0",
            "kv-dim": spec.head_dim,
            "allow-async-init": false,
        },
    });
    if htp {
        backend["extensions"] = json!(HTP_CONFIG_FILE);
    }
    backend
}

fn positional_encoding(spec: &ModelSpec) -> Value {
    if spec.learned_positions.is_some() {
        return json!({ "type": "absolute" });
    }
    let table = |theta: f64, scaling: Option<&RopeScaling>| {
        let mut rope = json!({ "type": "rope", "rope-dim": spec.rope_dim(), "rope-theta": number(theta) });
        if let Some(scaling) = scaling {
            rope["rope-scaling"] = rope_scaling(scaling);
        }
        rope
    };
    let rope = table(spec.rope.theta, spec.rope.scaling.as_ref());
    match &spec.local_rope {
        Some(LocalRope::Table { theta, scaling }) => {
            let mut local = table(*theta, scaling.as_ref());
            local["prefix"] = json!(LOCAL_TABLES);
            json!([rope, local])
        }
        Some(LocalRope::Columns { .. }) | None => rope,
    }
}

fn rope_scaling(scaling: &RopeScaling) -> Value {
    let list = |list: &[f64]| list.iter().copied().map(number).collect::<Value>();
    let numbers = match scaling {
        RopeScaling::Linear { factor } => json!({ "factor": number(*factor) }),
        RopeScaling::Llama3(llama3) => json!({
            "factor": number(llama3.factor),
            "low-freq-factor": number(llama3.low_freq_factor),
            "high-freq-factor": number(llama3.high_freq_factor),
            "original-max-position-embeddings": number(llama3.original_max_position),
        }),
        RopeScaling::LongRope(long) => json!({
            "factor": number(long.factor),
            "original-max-position-embeddings": number(long.original_max_position),
            "short-factor": list(&long.short_factor),
            "long-factor": list(&long.long_factor),
        }),
        RopeScaling::Yarn(yarn) => json!({
            "factor": number(yarn.factor),
            "dim": yarn.dim,
            "original-max-position-embeddings": number(yarn.original_max_position),
            "extrapolation-factor": number(yarn.extrapolation_factor),
            "attn-factor": number(yarn.attn_factor),
            "beta-fast": number(yarn.beta_fast),
            "beta-slow": number(yarn.beta_slow),
        }),
        RopeScaling::Proportional { factor, partial_rotary_factor } => json!({
            "factor": number(*factor),
            "partial-rotary-factor": number(*partial_rotary_factor),
        }),
        RopeScaling::Hunyuan => json!({}),
        RopeScaling::Mrope { sections, .. } => json!({ "mrope-section": sections }),
    };
    let mut block = json!({ "rope-type": scaling.rope_type() });
    for (key, value) in numbers.as_object().into_iter().flatten() {
        block[key] = value.clone();
    }
    block
}

/// Whole numbers are written as integers, which every consumer of the file reads.
fn number(value: f64) -> Value {
    let whole = value as i64;
    if whole as f64 == value { json!(whole) } else { json!(value) }
}

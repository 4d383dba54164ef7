//! Which tensor of an adapter belongs to which projection of the model.
//!
//! *Names*: `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`. A projection that holds several of the model's, `qkv_proj`
//! `c_attn` or `gate_up_proj`, has one A for all of them, and B has their rows one behind the other.

use std::collections::BTreeMap;
use std::ops::Range;

use super::config::AdapterConfig;
use crate::checkpoint::{Checkpoint, SourceDtype};
use crate::family::{ModelSpec, gpt2};
use crate::{CompileError, Result};

/// A projection of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
}

impl Target {
    pub(crate) const ALL: [Self; 7] = [Self::Q, Self::K, Self::V, Self::O, Self::Gate, Self::Up, Self::Down];

    /// Its name in a layer.
    pub(crate) const fn part(self) -> &'static str {
        match self {
            Self::Q => "self_attn.q_proj",
            Self::K => "self_attn.k_proj",
            Self::V => "self_attn.v_proj",
            Self::O => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    /// The last part of it.
    pub(crate) fn name(self) -> &'static str {
        self.part().rsplit_once('.').map_or("", |(_, name)| name)
    }

    /// Widths of what it gives and takes.
    pub(crate) fn dims(self, spec: &ModelSpec) -> (usize, usize) {
        let (heads, kv) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        match self {
            Self::Q => (heads, spec.hidden),
            Self::K | Self::V => (kv, spec.hidden),
            Self::O => (spec.hidden, heads),
            Self::Gate | Self::Up => (spec.ffn, spec.hidden),
            Self::Down => (spec.hidden, spec.ffn),
        }
    }
}

/// Where the matrices of one projection are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) rank: usize,
    pub(super) scaling: f64,
    /// Tensor of A.
    pub(super) down: String,
    /// Tensor of B.
    pub(super) up: String,
    /// Its rows of B.
    pub(super) rows: Range<usize>,
}

/// By layer and projection.
pub(super) type Parts = BTreeMap<(usize, Target), Part>;

/// A module's name in a layer, with the projections that it holds.
pub(crate) const MODULES: &[(&str, &[Target])] = &[
    ("self_attn.q_proj", &[Target::Q]),
    ("self_attn.k_proj", &[Target::K]),
    ("self_attn.v_proj", &[Target::V]),
    ("self_attn.o_proj", &[Target::O]),
    ("mlp.gate_proj", &[Target::Gate]),
    ("mlp.up_proj", &[Target::Up]),
    ("mlp.down_proj", &[Target::Down]),
    ("self_attn.qkv_proj", &[Target::Q, Target::K, Target::V]),
    ("mlp.gate_up_proj", &[Target::Gate, Target::Up]),
];

const PREFIX: &str = "base_model.model.";
const DOWN: &str = ".lora_A.weight";
const UP: &str = ".lora_B.weight";

/// All parts of an adapter; every tensor has a place in the model.
pub(super) fn read(weights: &Checkpoint, config: &AdapterConfig, spec: &ModelSpec) -> Result<Parts> {
    let bad = |name: &str, detail: String| CompileError::AdapterTensor {
        dir: weights.dir().into(),
        name: name.into(),
        detail,
    };
    let mut parts = Parts::new();
    for (name, entry) in weights.tensors() {
        let inner = name.strip_prefix(PREFIX).unwrap_or(name);
        let module = inner.strip_suffix(DOWN).or_else(|| inner.strip_suffix(UP));
        let module = module.ok_or_else(|| bad(name, format!("expected names that end in `{DOWN}` or `{UP}`")))?;
        let partner = if inner.ends_with(DOWN) { name.replace(DOWN, UP) } else { name.replace(UP, DOWN) };
        let Some(other) = weights.tensors().get(&partner) else {
            return Err(bad(name, format!("its partner `{partner}` is missing")));
        };
        if let SourceDtype::Other(found) = &entry.dtype {
            return Err(bad(name, format!("found element type {found}, expected F32, F16 or BF16")));
        }
        if inner.ends_with(UP) {
            continue;
        }
        let (layer, targets) = place(module, spec).ok_or_else(|| {
            let known: Vec<String> = modules(spec).map(|part| format!("`{part}`")).collect();
            let n = spec.n_layers;
            bad(name, format!("expected a projection of one of {n} decoder layers: {}", known.join(", ")))
        })?;
        if let Some(listed) = &config.targets
            && !listed.iter().any(|target| module == target || module.ends_with(&format!(".{target}")))
        {
            return Err(bad(name, "its module is not in `target_modules`".into()));
        }
        let rank = config.rank_of(module);
        let inner_width = targets[0].dims(spec).1;
        let out: usize = targets.iter().map(|target| target.dims(spec).0).sum();
        for (tensor, found, expected) in
            [(name, &entry.dims, [rank, inner_width]), (&partner, &other.dims, [out, rank])]
        {
            if *found != expected {
                return Err(bad(tensor, format!("found shape {found:?}, expected {expected:?}")));
            }
        }
        let mut first = 0;
        for &target in targets {
            let rows = first..first + target.dims(spec).0;
            first = rows.end;
            let scaling = config.scaling_of(module);
            let part = Part { rank, scaling, down: name.clone(), up: partner.clone(), rows };
            if parts.insert((layer, target), part).is_some() {
                return Err(bad(name, format!("`{}` of layer {layer} is adapted twice", target.part())));
            }
        }
    }
    if parts.is_empty() {
        return Err(CompileError::EmptyAdapter { path: config.path.clone() });
    }
    Ok(parts)
}

/// Names of the modules that an adapter of the model may change.
fn modules(spec: &ModelSpec) -> impl Iterator<Item = String> {
    MODULES.iter().filter_map(|(part, _)| {
        if spec.learned_positions.is_none() {
            return Some((*part).to_owned());
        }
        let stored = gpt2::stored_name(&format!("model.layers.0.{part}"), "")?;
        stored.strip_prefix("h.0.").map(str::to_owned)
    })
}

/// The layer of a module, and its projections.
fn place(module: &str, spec: &ModelSpec) -> Option<(usize, &'static [Target])> {
    let own = spec.learned_positions.and_then(|_| gpt2::own_name(module));
    let module = own.as_deref().unwrap_or(module);
    let (digits, part) = module.strip_prefix("model.layers.")?.split_once('.')?;
    let layer = digits.parse::<usize>().ok().filter(|layer| *layer < spec.n_layers && layer.to_string() == digits)?;
    let (_, targets) = MODULES.iter().find(|(name, _)| *name == part)?;
    (spec.gated || !targets.contains(&Target::Gate)).then_some((layer, *targets))
}

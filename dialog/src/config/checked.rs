//! From a validated document to values: token ids, absolute paths, sampler settings.
//!
//! What the schema lets through but nobody can use (a context of size 0, a token id of -7) is found here.

use std::path::{Path, PathBuf};

use engine::{EngineConfig, GroupOptions, RopeConfig, RopeScaling};
use genie_types::TokenId;

use super::embedding;
use super::problem::Problem;
use super::raw::{
    OneOrMany, RawBackend, RawContext, RawDialog, RawEngine, RawHtp, RawPositions, RawSampler, RawScaling,
};
use super::rules::parse_mask;
use super::settings::{BackendSettings, ContextSettings};
use crate::sampler::{SamplerSettings, SettingsError, TokenPenalty};

/// All values of a dialog, before they are wrapped up.
pub(super) struct Values {
    pub(super) context: ContextSettings,
    pub(super) sampler: SamplerSettings,
    pub(super) tokenizer: PathBuf,
    pub(super) engine: EngineConfig,
    pub(super) backend: BackendSettings,
    pub(super) stop_sequences: Vec<String>,
    pub(super) max_num_tokens: Option<usize>,
}

pub(super) fn values(raw: RawDialog, base: &Path, problems: &mut Vec<Problem>) -> Option<Values> {
    for (i, s) in raw.stop_sequence.iter().enumerate() {
        if s.is_empty() {
            problems.push(Problem::new(format!("/dialog/stop-sequence/{i}"), "expected a non-empty string"));
        }
    }
    let context = context(&raw.context, problems);
    let sampler = sampler(raw.sampler).map_err(|e| {
        let at = if e.key.ends_with("penalty") { "token-penalty/" } else { "" };
        let message = format!("expected {}, found {}", e.expected, e.value);
        problems.push(Problem::new(format!("/dialog/sampler/{at}{}", e.key), message));
    });
    let backend = backend(&raw.engine.backend, base);
    let mut engine = engine(raw.engine, &context, base, problems);
    engine.embedding = raw.embedding.and_then(|e| embedding::lut(e, base, problems));
    Some(Values {
        context,
        sampler: sampler.ok()?,
        tokenizer: resolve(base, &raw.tokenizer.path),
        engine,
        backend,
        stop_sequences: raw.stop_sequence,
        max_num_tokens: raw.max_num_tokens,
    })
}

/// Relative paths start at the config's folder, so a bundle can be moved and run from anywhere.
pub(super) fn resolve(base: &Path, path: &str) -> PathBuf {
    base.join(path.trim())
}

fn context(raw: &RawContext, problems: &mut Vec<Problem>) -> ContextSettings {
    if raw.size == 0 {
        problems.push(Problem::new("/dialog/context/size", "expected at least 1 token, found 0"));
    }
    let mut token = |key: &str, id: i64| match (id, u32::try_from(id)) {
        (-1, _) => None,
        (_, Ok(id)) => Some(TokenId(id)),
        _ => {
            let message = format!("expected a token id, or -1 for unset, found {id}");
            problems.push(Problem::new(format!("/dialog/context/{key}"), message));
            None
        }
    };
    let eos = match &raw.eos_token {
        OneOrMany::One(id) => token("eos-token", *id).into_iter().collect(),
        OneOrMany::Many(ids) => {
            ids.iter().enumerate().filter_map(|(i, id)| token(&format!("eos-token/{i}"), *id)).collect()
        }
    };
    ContextSettings {
        bos: token("bos-token", raw.bos_token),
        eos,
        eot: raw.eot_token.and_then(|id| token("eot-token", id)),
        pad: raw.pad_token.and_then(|id| token("pad-token", id)),
        size: raw.size,
        n_vocab: raw.n_vocab,
        n_embd: raw.n_embd,
    }
}

fn sampler(raw: Option<RawSampler>) -> Result<SamplerSettings, SettingsError> {
    let mut s = SamplerSettings::default();
    let Some(raw) = raw else { return Ok(s) };
    // A seed of -1 asks for a random one; other negative seeds are taken bit for bit, as C does.
    s = s.with_seed(raw.seed.filter(|seed| *seed != -1).map(i32::cast_unsigned)).with_greedy(raw.greedy);
    if let Some(temp) = raw.temp {
        s = s.with_temp(temp)?;
    }
    if let Some(k) = raw.top_k {
        s = s.with_top_k(k);
    }
    if let Some(p) = raw.top_p {
        s = s.with_top_p(p)?;
    }
    if let Some(p) = raw.token_penalty {
        let off = TokenPenalty::default();
        s = s.with_penalty(TokenPenalty {
            last_n: p.penalize_last_n.unwrap_or(off.last_n),
            repetition: p.repetition_penalty.unwrap_or(off.repetition),
            presence: p.presence_penalty.unwrap_or(off.presence),
            frequency: p.frequency_penalty.unwrap_or(off.frequency),
        })?;
    }
    Ok(s)
}

fn engine(raw: RawEngine, context: &ContextSettings, base: &Path, problems: &mut Vec<Problem>) -> EngineConfig {
    let positions = raw.model.positional_encoding.and_then(|p| p.into_vec().into_iter().next());
    let rope = rope(positions, &raw.backend.htp, problems);
    let mut config = EngineConfig::new(raw.model.binary.ctx_bins.iter().map(|p| resolve(base, p)));
    config.context_size = Some(context.size);
    config.n_threads = raw.n_threads;
    config.rope = rope;
    // Genie's rule: the pad token, else the first EOS. Padded rows are masked, so any id does.
    config.pad_token = context.pad.or(context.eos.first().copied()).unwrap_or(TokenId(0));
    config.cache_groups = raw
        .cache_groups
        .into_iter()
        .map(|g| GroupOptions {
            prefix: g.prefix,
            mask: g.attention_mask_tensor_name,
            index: g.cache_index_tensor_name,
        })
        .collect();
    let select = raw.backend.htp.execute_select_graphs;
    config.select_graphs = (!select.is_empty()).then_some(select);
    config
}

fn backend(raw: &RawBackend, base: &Path) -> BackendSettings {
    let htp = &raw.htp;
    let extensions = raw.extensions.as_ref().map_or(&[][..], OneOrMany::as_slice);
    BackendSettings {
        // An empty string is how some configs say "no extensions".
        extensions: extensions.iter().filter(|p| !p.trim().is_empty()).map(|p| resolve(base, p)).collect(),
        use_mmap: htp.use_mmap,
        mmap_budget_mb: htp.mmap_budget,
        spill_fill_bytes: htp.spill_fill_bufsize,
        cpu_mask: parse_mask(&htp.cpu_mask).unwrap_or(0),
        poll: htp.poll,
        kv_dim: htp.kv_dim.and_then(|n| usize::try_from(n).ok()),
    }
}

const DEFAULT_THETA: f64 = 10_000.0;

/// Rotary positions, where their width is stated: the block of the model, or the older keys of `QnnHtp`.
fn rope(positions: Option<RawPositions>, htp: &RawHtp, problems: &mut Vec<Problem>) -> Option<RopeConfig> {
    const AT: &str = "/dialog/engine/model/positional-encoding";
    const HTP: &str = "/dialog/engine/backend/QnnHtp";
    let (dim, theta, scaling, dim_at, theta_at) = match positions {
        Some(p) => (p.rope_dim, p.rope_theta, p.rope_scaling, format!("{AT}/rope-dim"), format!("{AT}/rope-theta")),
        None => (htp.pos_id_dim, htp.rope_theta, None, format!("{HTP}/pos-id-dim"), format!("{HTP}/rope-theta")),
    };
    let theta = theta.unwrap_or(DEFAULT_THETA);
    if !theta.is_finite() || theta <= 0.0 {
        problems.push(Problem::new(theta_at, format!("expected a number above 0, found {theta}")));
    }
    let scaling = scaling.map_or(RopeScaling::Default, |s| rope_scaling(&s, &format!("{AT}/rope-scaling"), problems));
    match (dim?, usize::try_from(dim?)) {
        (1.., Ok(rope_dim)) => Some(RopeConfig { rope_dim, theta, scaling }),
        (found, _) => {
            problems.push(Problem::new(dim_at, format!("expected at least 1, found {found}")));
            None
        }
    }
}

fn rope_scaling(s: &RawScaling, at: &str, problems: &mut Vec<Problem>) -> RopeScaling {
    if s.rope_type.as_deref() != Some("llama3") {
        return RopeScaling::Default;
    }
    let mut need = |key: &str, value: Option<f64>| {
        let message = match value {
            Some(v) if v > 0.0 => return Some(v),
            Some(v) => format!("expected a number above 0, found {v}"),
            None => "required when the rope type is `llama3`".into(),
        };
        problems.push(Problem::new(format!("{at}/{key}"), message));
        None
    };
    let factor = need("factor", s.factor);
    let low = need("low-freq-factor", s.low_freq_factor);
    let high = need("high-freq-factor", s.high_freq_factor);
    let original = need("original-max-position-embeddings", s.original_max_position_embeddings);
    if let (Some(low), Some(high)) = (low, high)
        && low >= high
    {
        let message = format!("expected more than `low-freq-factor`, {low}, found {high}");
        problems.push(Problem::new(format!("{at}/high-freq-factor"), message));
    }
    match (factor, low, high, original) {
        (Some(factor), Some(low_freq_factor), Some(high_freq_factor), Some(original_max_position)) => {
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position }
        }
        _ => RopeScaling::Default,
    }
}

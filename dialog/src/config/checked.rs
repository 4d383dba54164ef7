//! From a validated document to values: token ids, absolute paths, sampler settings.
//!
//! What the schema lets through but nobody can use (a context of size 0, a token id of -7) is found here.

use std::path::{Path, PathBuf};

use genie_types::TokenId;

use super::problem::Problem;
use super::raw::{OneOrMany, RawContext, RawDialog, RawEngine, RawHtp, RawPositions, RawSampler, RawScaling};
use super::rules::parse_mask;
use super::settings::{ContextSettings, EngineSettings, HtpSettings, RopeScaling, RopeSettings};
use crate::sampler::{SamplerSettings, SettingsError, TokenPenalty};

/// All values of a dialog, before they are wrapped up.
pub(super) struct Values {
    pub(super) context: ContextSettings,
    pub(super) sampler: SamplerSettings,
    pub(super) tokenizer: PathBuf,
    pub(super) engine: EngineSettings,
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
    let engine = engine(raw.engine, base, problems);
    Some(Values {
        context,
        sampler: sampler.ok()?,
        tokenizer: resolve(base, &raw.tokenizer.path),
        engine,
        stop_sequences: raw.stop_sequence,
        max_num_tokens: raw.max_num_tokens,
    })
}

/// Relative paths start at the config's folder, not at the working directory as in the real Genie.
fn resolve(base: &Path, path: &str) -> PathBuf {
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

fn engine(raw: RawEngine, base: &Path, problems: &mut Vec<Problem>) -> EngineSettings {
    let positions = raw.model.positional_encoding.and_then(|p| p.into_vec().into_iter().next());
    let rope = rope(positions, &raw.backend.htp, problems);
    let extensions = raw.backend.extensions.map_or(Vec::new(), OneOrMany::into_vec);
    let htp = raw.backend.htp;
    EngineSettings {
        n_threads: raw.n_threads,
        // An empty string is how some configs say "no extensions".
        extensions: extensions.iter().filter(|p| !p.trim().is_empty()).map(|p| resolve(base, p)).collect(),
        ctx_bins: raw.model.binary.ctx_bins.iter().map(|p| resolve(base, p)).collect(),
        rope,
        htp: HtpSettings {
            use_mmap: htp.use_mmap,
            mmap_budget_mb: htp.mmap_budget,
            spill_fill_bytes: htp.spill_fill_bufsize,
            cpu_mask: parse_mask(&htp.cpu_mask).unwrap_or(0),
            poll: htp.poll,
            kv_dim: htp.kv_dim.and_then(|n| usize::try_from(n).ok()),
            select_graphs: htp.execute_select_graphs,
        },
    }
}

const DEFAULT_THETA: f64 = 10_000.0;

fn rope(positions: Option<RawPositions>, htp: &RawHtp, problems: &mut Vec<Problem>) -> RopeSettings {
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
    if let Some(d) = dim
        && d < 1
    {
        problems.push(Problem::new(dim_at, format!("expected at least 1, found {d}")));
    }
    RopeSettings {
        dim: dim.and_then(|d| usize::try_from(d).ok()),
        theta,
        scaling: scaling.map_or(RopeScaling::Default, |s| rope_scaling(&s, &format!("{AT}/rope-scaling"), problems)),
    }
}

fn rope_scaling(s: &RawScaling, at: &str, problems: &mut Vec<Problem>) -> RopeScaling {
    if s.rope_type.as_deref() != Some("llama3") {
        return RopeScaling::Default;
    }
    let mut need = |key: &str, value: Option<f64>| {
        let message = match value {
            Some(v) if v > 0.0 => return v,
            Some(v) => format!("expected a number above 0, found {v}"),
            None => "required when the rope type is `llama3`".into(),
        };
        problems.push(Problem::new(format!("{at}/{key}"), message));
        1.0
    };
    let scaling = RopeScaling::Llama3 {
        factor: need("factor", s.factor),
        low_freq_factor: need("low-freq-factor", s.low_freq_factor),
        high_freq_factor: need("high-freq-factor", s.high_freq_factor),
        original_max_positions: need("original-max-position-embeddings", s.original_max_position_embeddings),
    };
    if let RopeScaling::Llama3 { low_freq_factor: low, high_freq_factor: high, .. } = scaling
        && low == high
    {
        problems
            .push(Problem::new(format!("{at}/high-freq-factor"), format!("must differ from `low-freq-factor`, {low}")));
    }
    scaling
}

//! From a validated document to values: token ids, absolute paths, numbers in range.
//!
//! Reports what the schema accepts but nothing can use: a context of size 0, a token id of -7.

use std::path::{Path, PathBuf};

use genie_types::TokenId;

use super::embedding;
use super::long_context;
use super::problem::Problem;
use super::raw::{OneOrMany, RawBackend, RawContext, RawDialog, RawHtp, RawPositions, RawScaling};
use super::rules::parse_mask;
use super::settings::{BackendSettings, ContextSettings, EngineSettings, Llama3Scaling, RopeSettings, SamplerSettings};

/// All values of a dialog.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) kind: String,
    pub(super) context: ContextSettings,
    pub(super) sampler: SamplerSettings,
    pub(super) tokenizer: PathBuf,
    pub(super) engine: EngineSettings,
    pub(super) backend: BackendSettings,
    pub(super) stop_sequences: Vec<String>,
    pub(super) max_num_tokens: Option<usize>,
}

pub(super) fn values(raw: RawDialog, base: &Path, problems: &mut Vec<Problem>) -> Values {
    for (i, s) in raw.stop_sequence.iter().enumerate() {
        if s.is_empty() {
            problems.push(Problem::new(format!("/dialog/stop-sequence/{i}"), "expected a non-empty string"));
        }
    }
    let context = context(&raw.context, problems);
    let sampler = raw.sampler.unwrap_or_default();
    // The schema compares in float64; the value must stay in range as the float32 that samplers use.
    if let Some(p) = sampler.token_penalty.as_ref().and_then(|p| p.repetition_penalty)
        && !(p.is_finite() && p > 0.0)
    {
        let message = format!("expected a finite number above 0, found {p}");
        problems.push(Problem::new("/dialog/sampler/token-penalty/repetition-penalty", message));
    }
    let backend = backend(&raw.engine.backend, base);
    let positions = raw.engine.model.positional_encoding.and_then(|p| p.into_vec().into_iter().next());
    let rope = rope(positions, &raw.engine.backend.htp, problems);
    let (long_context, cache_groups) =
        long_context::settings(raw.engine.longcontext, raw.engine.cache_groups, base, problems);
    let engine = EngineSettings {
        ctx_bins: raw.engine.model.binary.ctx_bins.iter().map(|p| resolve(base, p)).collect(),
        n_threads: raw.engine.n_threads,
        rope,
        long_context,
        cache_groups,
        select_graphs: raw.engine.backend.htp.execute_select_graphs,
        embedding: raw.embedding.and_then(|e| embedding::table(e, base, problems)),
    };
    Values {
        kind: raw.kind,
        context,
        sampler,
        tokenizer: resolve(base, &raw.tokenizer.path),
        engine,
        backend,
        stop_sequences: raw.stop_sequence,
        max_num_tokens: raw.max_num_tokens,
    }
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
fn rope(positions: Option<RawPositions>, htp: &RawHtp, problems: &mut Vec<Problem>) -> Option<RopeSettings> {
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
    let llama3 = scaling.and_then(|s| rope_scaling(&s, &format!("{AT}/rope-scaling"), problems));
    match (dim?, usize::try_from(dim?)) {
        (1.., Ok(dim)) => Some(RopeSettings { dim, theta, llama3 }),
        (found, _) => {
            problems.push(Problem::new(dim_at, format!("expected at least 1, found {found}")));
            None
        }
    }
}

fn rope_scaling(s: &RawScaling, at: &str, problems: &mut Vec<Problem>) -> Option<Llama3Scaling> {
    if s.rope_type.as_deref() != Some("llama3") {
        return None;
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
    Some(Llama3Scaling {
        factor: factor?,
        low_freq_factor: low?,
        high_freq_factor: high?,
        original_max_position: original?,
    })
}

//! From a validated document to values: token ids, absolute paths, numbers in range.
//!
//! Reports what the schema accepts but nothing can use: a context of size 0, a token id of -7.

use std::path::{Path, PathBuf};

use genie_types::TokenId;

use super::embedding;
use super::kind_blocks::{self, KindBlocks};
use super::long_context;
use super::lora;
use super::positions;
use super::problem::Problem;
use super::raw::{
    OneOrMany, RawBackend, RawContext, RawDebug, RawDialog, RawEngine, RawHarmony, RawMultiStream, RawPdFusion,
};
use super::rules::parse_mask;
use super::settings::{
    BackendSettings, ContextSettings, DebugSettings, EmbeddingSettings, EngineSettings, GrammarSettings,
    HarmonySettings, MOST_ALIGNMENT, MOST_STREAMS, MultiStreamSettings, PdFusionSettings, SamplerSettings,
};

/// All values of a dialog.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) kind: String,
    pub(super) context: ContextSettings,
    pub(super) sampler: SamplerSettings,
    pub(super) tokenizer: PathBuf,
    pub(super) engine: EngineSettings,
    pub(super) backend: BackendSettings,
    pub(super) grammar: Option<GrammarSettings>,
    /// The other engine of two.
    pub(super) second: Option<Box<(EngineSettings, BackendSettings)>>,
    pub(super) kinds: KindBlocks,
    pub(super) debug: Option<DebugSettings>,
    pub(super) multistream: Option<MultiStreamSettings>,
    pub(super) stop_sequences: Vec<String>,
    pub(super) max_num_tokens: Option<usize>,
    pub(super) harmony: Option<HarmonySettings>,
}

pub(super) fn values(raw: RawDialog, base: &Path, problems: &mut Vec<Problem>) -> Values {
    for (i, s) in raw.stop_sequence.iter().enumerate() {
        if s.is_empty() {
            problems.push(Problem::new(format!("/dialog/stop-sequence/{i}"), "expected a non-empty string"));
        }
    }
    let context = context(&raw.context, problems);
    let grammar = raw.context.grammar.filter(|grammar| !grammar.backend.is_empty());
    let grammar = grammar.map(|g| GrammarSettings { path: resolve(base, &g.file), kind: g.kind });
    let sampler = raw.sampler.unwrap_or_default();
    // The schema compares in float64; the value must stay in range as the float32 that samplers use.
    if let Some(p) = sampler.token_penalty.as_ref().and_then(|p| p.repetition_penalty)
        && !(p.is_finite() && p > 0.0)
    {
        let message = format!("expected a finite number above 0, found {p}");
        problems.push(Problem::new("/dialog/sampler/token-penalty/repetition-penalty", message));
    }
    let table = raw.embedding.and_then(|e| embedding::table(e, base, problems));
    let (engine, second) = engines(raw.engine, table.as_ref(), base, problems);
    let (engine, backend) = engine;
    let kinds = kind_blocks::values(raw.kinds, base, problems);
    Values {
        kind: raw.kind,
        context,
        sampler,
        tokenizer: resolve(base, &raw.tokenizer.path),
        engine,
        backend,
        grammar,
        second: second.map(Box::new),
        kinds,
        debug: raw.debug.and_then(|d| debug(&d)),
        multistream: raw.multistream.map(|m| multistream(&m, problems)),
        stop_sequences: raw.stop_sequence,
        max_num_tokens: raw.max_num_tokens,
        harmony: raw.harmony.map(|h| harmony(&h)).filter(|harmony| harmony.parses || harmony.wraps),
    }
}

/// `reasoning-format` says how parsed replies are written, so that it does nothing without the type.
fn harmony(raw: &RawHarmony) -> HarmonySettings {
    let parses = raw.kind.as_deref() == Some("gpt-oss");
    HarmonySettings {
        parses,
        wraps: raw.chat_format.as_deref() == Some("harmony-gpt-oss"),
        as_json: parses && raw.reasoning_format.as_deref() == Some("json-formatted"),
    }
}

fn multistream(raw: &RawMultiStream, problems: &mut Vec<Problem>) -> MultiStreamSettings {
    let n_streams = usize::try_from(raw.n_streams).ok().filter(|n| (1..=MOST_STREAMS).contains(n));
    if n_streams.is_none() {
        let message = format!("expected 1 to {MOST_STREAMS} streams, found {}", raw.n_streams);
        problems.push(Problem::new("/dialog/multistream/n-streams", message));
    }
    MultiStreamSettings { n_streams: n_streams.unwrap_or(1), p_threshold: raw.p_threshold.unwrap_or(0.0) }
}

type OneEngine = (EngineSettings, BackendSettings);

/// The engine that answers first, and the other one of two. How many there are and which roles they have, the rules between
/// keys have checked.
fn engines(
    raw: OneOrMany<RawEngine>,
    table: Option<&EmbeddingSettings>,
    base: &Path,
    problems: &mut Vec<Problem>,
) -> (OneEngine, Option<OneEngine>) {
    let several = matches!(raw, OneOrMany::Many(_));
    let one = |(i, raw): (usize, RawEngine)| {
        let at = if several { format!("{ENGINE}/{i}") } else { ENGINE.to_owned() };
        let mut own = Vec::new();
        let backend = backend(&raw.backend, base);
        let settings = engine(raw, &at, table, base, &mut own);
        // Readers of the block name its keys as those of an only engine.
        own.iter_mut().for_each(|p| p.pointer = p.pointer.replacen(ENGINE, &at, 1));
        problems.extend(own);
        (settings, backend)
    };
    let mut all: Vec<OneEngine> = raw.into_vec().into_iter().enumerate().map(one).collect();
    let main = all.iter().position(|(engine, _)| engine.role.is_main()).unwrap_or(0);
    let main = all.remove(main);
    (main, all.pop())
}

const ENGINE: &str = "/dialog/engine";

fn engine(
    raw: RawEngine,
    at: &str,
    table: Option<&EmbeddingSettings>,
    base: &Path,
    problems: &mut Vec<Problem>,
) -> EngineSettings {
    let positions = positions::values(raw.model.positional_encoding, &raw.backend.htp, problems);
    if raw.backend.htp.data_alignment_size > MOST_ALIGNMENT {
        let found = raw.backend.htp.data_alignment_size;
        let message = format!("expected at most {MOST_ALIGNMENT} bytes, found {found}");
        problems.push(Problem::new(format!("{at}/backend/QnnHtp/data-alignment-size"), message));
    }
    let (long_context, cache_groups) = long_context::settings(raw.longcontext, raw.cache_groups, base, problems);
    EngineSettings {
        role: raw.role,
        at: at.to_owned(),
        ctx_bins: raw.model.binary.ctx_bins.iter().map(|p| resolve(base, p)).collect(),
        n_threads: raw.n_threads,
        positions,
        long_context,
        cache_groups,
        select_graphs: raw.backend.htp.execute_select_graphs,
        embedding: table.cloned(),
        draft_token_map: raw.model.draft_token_map.as_deref().map(|path| resolve(base, path)),
        lora: raw.model.binary.lora.map(|l| lora::values(l, base, problems)).unwrap_or_default(),
        batching: raw.batching,
        pd_fusion: raw.pd_fusion.map(|raw| pd_fusion(&raw, problems)),
    }
}

fn pd_fusion(raw: &RawPdFusion, problems: &mut Vec<Problem>) -> PdFusionSettings {
    let mut rows = |key: &str, n: Option<i32>, least: i32| {
        let n = n?;
        if n < least {
            let message = format!("expected at least {least}, found {n}");
            problems.push(Problem::new(format!("{ENGINE}/pd_fusion/{key}"), message));
        }
        usize::try_from(n).ok()
    };
    PdFusionSettings {
        enable: raw.enable,
        // A graph has a decode row beside its chunk.
        total_len: rows("total_len", raw.total_len, 2),
        prefill_len: rows("prefill_len", raw.prefill_len, 1),
        in_place: raw.in_place,
        kv_update: raw.kv_update,
    }
}

/// Unlike what is read, what is written lies where the program was started, as libGenie has it: bundles may be read-only.
fn debug(raw: &RawDebug) -> Option<DebugSettings> {
    let asks = raw.dump_tensors || raw.dump_specs || raw.dump_outputs;
    asks.then(|| DebugSettings {
        path: raw.path.as_deref().unwrap_or("genie_debug").into(),
        dump_tensors: raw.dump_tensors,
        dump_specs: raw.dump_specs,
        dump_outputs: raw.dump_outputs,
        dump_start: raw.dump_start,
        dump_end: raw.dump_end,
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

fn backend(raw: &RawBackend, base: &Path) -> BackendSettings {
    let htp = &raw.htp;
    let extensions = raw.extensions.as_ref().map_or(&[][..], OneOrMany::as_slice);
    BackendSettings {
        // An empty string is how some configs say "no extensions".
        extensions: extensions.iter().filter(|p| !p.trim().is_empty()).map(|p| resolve(base, p)).collect(),
        use_mmap: htp.use_mmap,
        mmap_budget_mb: htp.mmap_budget,
        spill_fill_bytes: htp.spill_fill_bufsize,
        graph_switching: htp.enable_graph_switching,
        async_init: htp.allow_async_init,
        data_alignment: htp.data_alignment_size,
        retention_order: htp.graph_retention_order.clone(),
        cpu_mask: parse_mask(&htp.cpu_mask).unwrap_or(0),
        poll: htp.poll,
        kv_dim: htp.kv_dim.and_then(|n| usize::try_from(n).ok()),
        batch_size: htp.batch_size.filter(|n| *n > 0),
    }
}

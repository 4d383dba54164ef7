//! The JSON as serde sees it, after the schema has accepted it: only the blocks that dialogs on `QnnHtp` use.
//!
//! Unknown keys are not refused here: the tables have done that, with a better message and for all kinds.

use serde::Deserialize;

use super::embedding::RawEmbedding;
use super::kind_blocks::RawKindBlocks;
use super::long_context::{RawCacheGroup, RawLongContext};
use super::lora::RawLora;
use super::positions::RawPositions;
use super::settings::{BatchingSettings, EngineRole, SamplerSettings};
use crate::manifest::PdUpdate;

#[derive(Deserialize)]
pub(super) struct RawRoot {
    pub(super) dialog: RawDialog,
}

/// Mirrors `dialog`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawDialog {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) context: RawContext,
    pub(super) sampler: Option<SamplerSettings>,
    pub(super) tokenizer: RawTokenizer,
    pub(super) engine: OneOrMany<RawEngine>,
    pub(super) embedding: Option<RawEmbedding>,
    pub(super) debug: Option<RawDebug>,
    pub(super) multistream: Option<RawMultiStream>,
    #[serde(default)]
    pub(super) stop_sequence: Vec<String>,
    pub(super) max_num_tokens: Option<usize>,
    pub(super) harmony: Option<RawHarmony>,
    #[serde(flatten)]
    pub(super) kinds: RawKindBlocks,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawHarmony {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) chat_format: Option<String>,
    pub(super) reasoning_format: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawContext {
    pub(super) bos_token: i64,
    pub(super) eos_token: OneOrMany<i64>,
    pub(super) eot_token: Option<i64>,
    pub(super) pad_token: Option<i64>,
    pub(super) size: usize,
    pub(super) n_vocab: usize,
    pub(super) n_embd: Option<usize>,
    pub(super) grammar: Option<RawGrammar>,
}

#[derive(Deserialize)]
pub(super) struct RawGrammar {
    #[serde(default)]
    pub(super) backend: String,
    #[serde(default, rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) file: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawDebug {
    pub(super) path: Option<String>,
    #[serde(default)]
    pub(super) dump_tensors: bool,
    #[serde(default)]
    pub(super) dump_specs: bool,
    #[serde(default)]
    pub(super) dump_outputs: bool,
    pub(super) dump_start: Option<u32>,
    pub(super) dump_end: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawMultiStream {
    pub(super) n_streams: i64,
    pub(super) p_threshold: Option<f32>,
}

#[derive(Deserialize)]
pub(super) struct RawTokenizer {
    pub(super) path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawEngine {
    #[serde(default)]
    pub(super) role: EngineRole,
    pub(super) n_threads: usize,
    pub(super) backend: RawBackend,
    pub(super) model: RawModel,
    pub(super) longcontext: Option<RawLongContext>,
    #[serde(default)]
    pub(super) cache_groups: Vec<RawCacheGroup>,
    pub(super) batching: Option<BatchingSettings>,
    #[serde(rename = "pd_fusion")]
    pub(super) pd_fusion: Option<RawPdFusion>,
}

#[derive(Deserialize)]
pub(super) struct RawPdFusion {
    pub(super) enable: Option<bool>,
    pub(super) total_len: Option<i32>,
    pub(super) prefill_len: Option<i32>,
    #[serde(default = "yes")]
    pub(super) in_place: bool,
    pub(super) kv_update: Option<PdUpdate>,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
pub(super) struct RawBackend {
    pub(super) extensions: Option<OneOrMany<String>>,
    #[serde(rename = "QnnHtp")]
    pub(super) htp: RawHtp,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawHtp {
    pub(super) spill_fill_bufsize: u64,
    pub(super) mmap_budget: u64,
    pub(super) use_mmap: bool,
    pub(super) cpu_mask: String,
    pub(super) poll: bool,
    pub(super) pos_id_dim: Option<i64>,
    pub(super) kv_dim: Option<i64>,
    pub(super) batch_size: Option<usize>,
    pub(super) rope_theta: Option<f64>,
    #[serde(default)]
    pub(super) execute_select_graphs: Vec<String>,
    #[serde(default)]
    pub(super) enable_graph_switching: bool,
    #[serde(default)]
    pub(super) allow_async_init: bool,
    #[serde(default)]
    pub(super) data_alignment_size: usize,
    #[serde(default)]
    pub(super) graph_retention_order: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawModel {
    pub(super) binary: RawBinary,
    pub(super) positional_encoding: Option<OneOrMany<RawPositions>>,
    pub(super) draft_token_map: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawBinary {
    #[serde(alias = "fcb")]
    pub(super) ctx_bins: Vec<String>,
    pub(super) lora: Option<RawLora>,
}

/// A key that takes a value or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(x) => std::slice::from_ref(x),
            Self::Many(xs) => xs,
        }
    }

    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(x) => vec![x],
            Self::Many(xs) => xs,
        }
    }
}

//! The values of a dialog config, as plain data.

use std::path::PathBuf;

use genie_types::{Dtype, PositionKind, RopeConfig, TokenId};
use serde::Deserialize;

use super::long_context::{LongContextKind, LongContextSettings};
use super::lora::LoraSettings;
use crate::manifest::PdUpdate;

/// The `context` block. Token ids that Genie writes as -1 (unset) are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextSettings {
    /// Prepended to the first turn, and to later ones that are not continuations.
    pub bos: Option<TokenId>,
    /// Each of them ends a turn; the first is also what separates turns.
    pub eos: Vec<TokenId>,
    /// Ends a turn, too.
    pub eot: Option<TokenId>,
    /// Fills short chunks; the first `eos` where unset.
    pub pad: Option<TokenId>,
    /// Context length in tokens that the dialog may use; at least 1.
    pub size: usize,
    /// Vocabulary size that the config states. Genie does not check it against the logits.
    pub n_vocab: usize,
    /// Embedding width, where stated.
    pub n_embd: Option<usize>,
}

/// The `grammar` block of the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarSettings {
    /// The language: `json-schema`, `regex`, `ebnf` or `lark`.
    pub kind: String,
    /// The grammar's file.
    pub path: PathBuf,
}

/// The `sampler` block as written; what is absent is the sampler's to choose.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SamplerSettings {
    /// `basic`, or `custom`: a program's function chooses.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The name of that function.
    pub callback_name: Option<String>,
    /// Seed of the random sequence; -1 asks for a random one.
    pub seed: Option<i32>,
    /// Temperature, at least 0.
    pub temp: Option<f32>,
    /// How many of the largest logits are kept.
    pub top_k: Option<usize>,
    /// Probability mass kept, 0 to 1.
    pub top_p: Option<f32>,
    /// Always the likeliest token.
    #[serde(default)]
    pub greedy: bool,
    /// Penalties for recent tokens.
    pub token_penalty: Option<PenaltySettings>,
}

/// The `token-penalty` block as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PenaltySettings {
    /// How many of the last tokens count.
    pub penalize_last_n: Option<usize>,
    /// Above 0 and finite.
    pub repetition_penalty: Option<f32>,
    /// Subtracted once from every token in the window.
    pub presence_penalty: Option<f32>,
    /// Subtracted once per occurrence in the window.
    pub frequency_penalty: Option<f32>,
}

/// The `multistream` block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiStreamSettings {
    /// Most streams; 1 to [`MOST_STREAMS`].
    pub n_streams: usize,
    /// A first token that is less likely begins no stream.
    pub p_threshold: f32,
}

/// Most streams of a dialog: sequences that one cache can hold.
pub const MOST_STREAMS: usize = 64;

/// The `debug` block, where it asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugSettings {
    /// The folder that is written to: `genie_debug` where none is named; relative to the current folder.
    pub path: PathBuf,
    /// Inputs and outputs of the graphs.
    pub dump_tensors: bool,
    /// Descriptions of the graphs.
    pub dump_specs: bool,
    /// Logits.
    pub dump_outputs: bool,
    /// First step whose tensors are written.
    pub dump_start: Option<u32>,
    /// Last step whose tensors are written.
    pub dump_end: Option<u32>,
}

/// What a model is to a dialog of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineRole {
    /// The one that answers; also a dialog's only one.
    #[default]
    Primary,
    /// The one that answers, beside a draft.
    Target,
    /// The one that goes on for the primary one.
    Secondary,
    /// The one that proposes tokens.
    Draft,
}

impl EngineRole {
    /// Whether it is the one that answers first.
    pub fn is_main(self) -> bool {
        matches!(self, Self::Primary | Self::Target)
    }

    /// Genie's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Target => "target",
            Self::Secondary => "secondary",
            Self::Draft => "draft",
        }
    }
}

/// The model's binaries and how they are fed.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// What it is to the dialog.
    pub role: EngineRole,
    /// JSON pointer of its block.
    pub at: String,
    /// Context binaries in execution order, absolute if the base was.
    pub ctx_bins: Vec<PathBuf>,
    /// Worker threads; 0 lets the engine choose.
    pub n_threads: usize,
    /// How positions enter the model: of the tables without a prefix first, in the order of the config. Empty where nothing
    /// is stated.
    pub positions: Vec<PositionSettings>,
    /// What the default cache group drops once it is full, where the engine says it.
    pub long_context: Option<LongContextSettings>,
    /// Named caches beside the usual one.
    pub cache_groups: Vec<CacheGroupSettings>,
    /// The only graphs to use; empty uses all.
    pub select_graphs: Vec<String>,
    /// A file of token embeddings for graphs that take `inputs_embeds`.
    pub embedding: Option<EmbeddingSettings>,
    /// LoRA adapters.
    pub lora: LoraSettings,
    /// How queries share steps, where it is said.
    pub batching: Option<BatchingSettings>,
    /// Which id of the draft model is which of the target's, absolute if the base was.
    pub draft_token_map: Option<PathBuf>,
    /// How fused graphs are run, where the engine says it.
    pub pd_fusion: Option<PdFusionSettings>,
}

/// The `pd_fusion` block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PdFusionSettings {
    /// Run on them, or on the plain graphs; `None` for the plain ones where there are any.
    pub enable: Option<bool>,
    /// Widest graph to use, in rows.
    pub total_len: Option<usize>,
    /// Most rows of a prompt in one step.
    pub prefill_len: Option<usize>,
    /// Updated pasts are bound to the buffers of the pasts that they come from.
    pub in_place: bool,
    /// How the graphs were compiled, where it is said.
    pub kv_update: Option<PdUpdate>,
}

/// One item of `positional-encoding`, or the older keys of `QnnHtp`.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionSettings {
    /// What the names of its tensors begin with; empty for the usual ones.
    pub prefix: String,
    /// The rule.
    pub kind: PositionKind,
    /// The rotary embedding, for the kind `rope` where its width is stated; its numbers have been checked.
    pub rope: Option<RopeConfig>,
}

/// One of `cache-groups`.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheGroupSettings {
    /// What the names of its tensors begin with.
    pub prefix: String,
    /// Name of its attention mask, where it has one of its own.
    pub attention_mask_tensor_name: Option<String>,
    /// Name of its cache index, where it has one of its own.
    pub cache_index_tensor_name: Option<String>,
    /// What it drops once it is full.
    pub long_context: Option<LongContextSettings>,
}

/// A file of token embeddings: one row after the other, by id.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSettings {
    /// The file, absolute if the base was.
    pub path: PathBuf,
    /// Elements of a row; at least 1.
    pub size: usize,
    /// Element type in the file.
    pub dtype: TableDtype,
}

/// Element type of an embedding file, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub enum TableDtype {
    /// float32.
    Float32,
    /// The type and encoding of the graph's input.
    Native,
    /// Quantised values with one scale and offset: `real = (value + offset) * scale`.
    Fixed {
        /// `UFixed8`, `UFixed16`, `SFixed8` or `SFixed16`.
        dtype: Dtype,
        /// Step between two values; above 0.
        scale: f32,
        /// Added before scaling.
        offset: i32,
    },
    /// Codes of 2, 4, 8 or 16 bits, whose scales and offsets may differ by column or by row.
    Codes {
        /// Bits of a code; narrower ones than a byte are packed, the first in the lowest bits.
        bits: u32,
        /// Codes are two's complement.
        signed: bool,
        /// Step between two codes: one, or a file of float32.
        scale: TableNumbers<f32>,
        /// Added before scaling: one, or a file of int32.
        offset: TableNumbers<i32>,
    },
}

/// Numbers of a table's quantisation.
#[derive(Clone, Debug, PartialEq)]
pub enum TableNumbers<T> {
    /// One for the table.
    One(T),
    /// A file, absolute if the base was: one number, one per column, or one per row.
    File(PathBuf),
}

/// Largest `data-alignment-size`: 2 MB, a huge page.
pub const MOST_ALIGNMENT: usize = 2 << 20;

/// The `batching` block: how queries of several clients share steps. What is absent is the scheduler's to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BatchingSettings {
    /// Most queries at a time.
    pub max_slots: Option<usize>,
    /// Most tokens of a prompt that a step takes.
    pub prefill_chunk_size: Option<usize>,
    /// A step may hold tokens of prompts and of replies.
    pub mixed_prefill_decode: Option<bool>,
    /// Microseconds to wait for further queries before a step.
    pub coalesce_window_us: Option<u64>,
    /// Prompts are taken in, no reply is generated.
    pub prefill_only: Option<bool>,
}

/// The `backend` block of an engine on `QnnHtp`: what concerns the QNN library rather than the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSettings {
    /// Backend extension configs (SoC, performance), absolute if the base was.
    pub extensions: Vec<PathBuf>,
    /// Map binaries instead of reading them.
    pub use_mmap: bool,
    /// Megabytes to map at once; 0 is no limit.
    pub mmap_budget_mb: u64,
    /// Bytes of the spill-fill buffer shared by contexts; 0 is off.
    pub spill_fill_bytes: u64,
    /// Graphs are swapped where they do not fit the chip's memory together.
    pub graph_switching: bool,
    /// Graphs that stay longest then.
    pub retention_order: Vec<String>,
    /// The graphs may be loaded beside other work.
    pub async_init: bool,
    /// Bytes of which a graph's buffers begin at a multiple; at most [`MOST_ALIGNMENT`], 0 is the engine's own choice.
    pub data_alignment: usize,
    /// CPUs to run on, bit 0 first; 0 is any.
    pub cpu_mask: u64,
    /// Wait busily for the NPU.
    pub poll: bool,
    /// Width of a head's keys and values, where stated.
    pub kv_dim: Option<usize>,
    /// Rows of the batch that the graphs compute at once, where stated; 0 says nothing.
    pub batch_size: Option<usize>,
}

/// The response format `harmony`, of gpt-oss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HarmonySettings {
    /// Replies are messages in channels: type `gpt-oss`.
    pub parses: bool,
    /// Prompts are written as messages: `chat-format`.
    pub wraps: bool,
    /// Each piece of a reply is a JSON object: `reasoning-format`.
    pub as_json: bool,
}

impl EngineSettings {
    /// The rotary embedding of the tables with that prefix; empty for the usual ones.
    pub fn rope(&self, prefix: &str) -> Option<&RopeConfig> {
        self.positions.iter().find(|p| p.prefix == prefix).and_then(|p| p.rope.as_ref())
    }

    /// The networks that score keys, by the places of their paths.
    pub(super) fn scoring_networks(&self) -> impl Iterator<Item = (String, &PathBuf)> {
        const KEY: &str = "longcontext/keydiff/scoring-network";
        let own = self.long_context.iter().map(|long| (format!("/dialog/engine/{KEY}"), long));
        let of_groups = self.cache_groups.iter().enumerate().filter_map(|(i, group)| {
            Some((format!("/dialog/engine/cache-groups/{i}/{KEY}"), group.long_context.as_ref()?))
        });
        own.chain(of_groups).filter_map(|(at, long)| match &long.kind {
            LongContextKind::KeyDiff { scoring_network, .. } => Some((at, scoring_network.as_ref()?)),
            LongContextKind::SlidingWindow { .. } => None,
        })
    }
}

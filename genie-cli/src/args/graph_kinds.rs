//! Flags of `genie compile` for kinds of graphs beside the plain ones.

use std::path::PathBuf;

use clap::ValueEnum;
use compiler::{CacheUpdate, GraphKinds, KvCacheType, PdGraphs, PdUpdate};

use super::number;

/// Kinds of graphs that bundles made elsewhere have as well.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Kinds of graphs")]
pub struct GraphKindArgs {
    /// Widths (AR) of which only new cache rows come out: all but a prompt's last tokens run there. Other widths give logits.
    #[arg(long, value_name = "AR", value_delimiter = ',', value_parser = number::count_u32)]
    pub rows_only: Vec<u32>,
    /// Widths (AR) of the LM head's graphs, of those of `--ar` [default: all of them].
    #[arg(long, value_name = "AR", value_delimiter = ',', value_parser = number::count_u32)]
    pub lmhead_ar: Vec<u32>,
    /// How new rows get into the cache.
    #[arg(long, value_enum, default_value_t)]
    pub cache_update: CacheUpdateArg,
    /// How the numbers of the KV cache are kept.
    #[arg(long, value_enum, default_value_t)]
    pub kv_cache: KvCacheArg,
    /// Text whose keys and values give the scales of `--kv-cache u8`, its first 511 tokens [default: a few lines of English].
    #[arg(long, value_name = "FILE")]
    pub kv_text: Option<PathBuf>,
    /// Keep the cache in the tiles of the Hexagon matrix unit. For the embedded backend: no tool at hand makes a chip's
    /// graphs of this kind.
    #[arg(long, conflicts_with = "soc")]
    pub native_kv: bool,
    /// Make the LM head's weight an input of its graphs, with a file of its own in the bundle.
    #[arg(long)]
    pub lmhead_weight_input: bool,
    /// Let graphs take embeddings instead of token ids; the table becomes a file of the bundle. Needed for `--image-features`.
    #[arg(long)]
    pub inputs_embeds: bool,
    /// Let all graphs give `last_hidden_states`, which an EAGLE head drafts from (`--eagle-of`, `--spec eaglet:BUNDLE`).
    #[arg(long)]
    pub hidden_states: bool,
    /// Add graphs that carry a chunk of one prompt and a decode row of another request: rows of each, the decode row included. For
    /// the longest context, with a graph for a decode row alone.
    #[arg(long, value_name = "ROWS", value_delimiter = ',', value_parser = number::count_u32)]
    pub pd_total_lens: Vec<u32>,
    /// How new rows get into the caches of those graphs.
    #[arg(long, value_enum, default_value_t, requires = "pd_total_lens")]
    pub pd_kv_update: PdUpdateArg,
    /// Leave out the graphs of `--ar`: only those of `--pd-total-lens` are made.
    #[arg(long, requires = "pd_total_lens")]
    pub pd_only: bool,
}

/// How the numbers of the KV cache are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum KvCacheArg {
    /// As floats of `--precision`.
    #[default]
    Plain,
    /// As floats of `--precision`, keys row by row as values are: a new token is appended several times as fast. For the embedded backend.
    Rows,
    /// As 8-bit numbers in blocks of 32 along a head, each with a float16 scale: 8.5 bits for each number. For the embedded backend.
    #[value(name = "q8_0")]
    Q8_0,
    /// As 8-bit numbers with one scale for each tensor, from a run of the model in floats before it is compiled.
    U8,
}

/// How new rows get into the caches of a fused pair.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum PdUpdateArg {
    /// The client writes them.
    #[default]
    Host,
    /// The graph writes them by native ops, at the cost of one row.
    Graph,
    /// The graph writes them by the op `PDKVCacheUpdate` of package `LLaMAPackage`.
    Op,
}

/// How new rows get into the cache.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum CacheUpdateArg {
    /// The client appends them to a past of CL - AR rows.
    #[default]
    Concat,
    /// The graph writes them into a past of CL rows, from the slot `cache_index [1]` on.
    ScatterFrom,
    /// The graph writes each to its slot of `cache_index [AR]`.
    ScatterEach,
}

impl GraphKindArgs {
    /// As the compiler takes them.
    pub fn kinds(&self) -> GraphKinds {
        GraphKinds {
            rows_only: self.rows_only.clone(),
            head: self.lmhead_ar.clone(),
            cache: match self.cache_update {
                CacheUpdateArg::Concat => CacheUpdate::Concat,
                CacheUpdateArg::ScatterFrom => CacheUpdate::ScatterFrom,
                CacheUpdateArg::ScatterEach => CacheUpdate::ScatterEach,
            },
            kv_cache: match self.kv_cache {
                KvCacheArg::Plain => KvCacheType::Plain,
                KvCacheArg::Rows => KvCacheType::Rows,
                KvCacheArg::Q8_0 => KvCacheType::Q8_0,
                KvCacheArg::U8 => KvCacheType::U8,
            },
            native_kv: self.native_kv,
            head_weight_input: self.lmhead_weight_input,
            embeddings_input: self.inputs_embeds,
            hidden_states: self.hidden_states,
            pd: (!self.pd_total_lens.is_empty()).then(|| PdGraphs {
                total_lens: self.pd_total_lens.clone(),
                update: match self.pd_kv_update {
                    PdUpdateArg::Host => PdUpdate::Host,
                    PdUpdateArg::Graph => PdUpdate::Graph,
                    PdUpdateArg::Op => PdUpdate::Op,
                },
                only: self.pd_only,
            }),
        }
    }
}

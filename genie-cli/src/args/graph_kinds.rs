//! Flags of `genie compile` for kinds of graphs beside the plain ones.

use clap::ValueEnum;
use compiler::{CacheUpdate, GraphKinds};

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
            native_kv: self.native_kv,
            head_weight_input: self.lmhead_weight_input,
            embeddings_input: self.inputs_embeds,
        }
    }
}

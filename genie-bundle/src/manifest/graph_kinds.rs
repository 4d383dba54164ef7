//! Which kinds of graphs a bundle has beside the plain ones, as asked of the compiler.

use serde::{Deserialize, Serialize};

/// Kinds of graphs that are asked for. The default is the plain ones: ids in, logits out of every graph, caches concatenated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GraphKinds {
    /// Widths (AR) of the graphs of which only new cache rows come out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows_only: Vec<u32>,
    /// Widths (AR) of the LM head's graphs, where it is a split; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub head: Vec<u32>,
    /// How new rows get into the cache.
    #[serde(skip_serializing_if = "CacheUpdate::is_plain")]
    pub cache: CacheUpdate,
    /// How the numbers of cache rows are kept.
    #[serde(skip_serializing_if = "KvCacheType::is_plain")]
    pub kv_cache: KvCacheType,
    /// Cache tensors are in the tiles of the Hexagon matrix unit.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub native_kv: bool,
    /// The LM head's weight is an input, and a file of the bundle.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub head_weight_input: bool,
    /// Graphs take embeddings; the table is a file of the bundle.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub embeddings_input: bool,
    /// Graphs give the hidden states that the LM head takes, for an EAGLE head to draft from.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub hidden_states: bool,
    /// Graphs that carry a chunk of one prompt and a decode row of another request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pd: Option<PdGraphs>,
}

/// Graphs that carry a chunk of one prompt and a decode row of another request, for the longest context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct PdGraphs {
    /// Rows of each graph, the decode row included.
    pub total_lens: Vec<u32>,
    /// How new rows get into the caches.
    pub update: PdUpdate,
    /// There are no other graphs.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub only: bool,
}

/// How new rows get into the caches of a fused pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PdUpdate {
    /// The client writes them.
    #[default]
    Host,
    /// The graph does, by native ops; the last row of a past is not used.
    Graph,
    /// The graph does, by the op `PDKVCacheUpdate` of package `LLaMAPackage`.
    Op,
}

impl GraphKinds {
    /// True where nothing but the plain graphs is asked for.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// How new rows get into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheUpdate {
    /// The client appends them; graphs see the past of CL - AR rows and the new ones.
    #[default]
    Concat,
    /// The graph scatters them into a past of CL rows, from the slot `cache_index [1]` on.
    ScatterFrom,
    /// The graph scatters each to its slot of `cache_index [AR]`.
    ScatterEach,
}

/// How the numbers of cache rows are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvCacheType {
    /// As floats of the model's precision.
    #[default]
    Plain,
    /// As floats of the model's precision, and keys row by row as values are: a new row is one stretch of memory, not an element
    /// in each of head_dim rows of columns.
    Rows,
    /// As 8-bit numbers in blocks of 32 along a head, each with a scale in float16: 8.5 bits for each number.
    Q8_0,
    /// As 8-bit numbers with one scale for each tensor.
    U8,
}

impl KvCacheType {
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }

    /// Keys are `[n_kv, 1, rows, head_dim]`; `[n_kv, 1, head_dim, rows]` otherwise.
    pub fn keys_by_row(self) -> bool {
        matches!(self, Self::Rows | Self::Q8_0)
    }

    /// As the manifest and the command line call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Rows => "rows",
            Self::Q8_0 => "q8_0",
            Self::U8 => "u8",
        }
    }
}

impl CacheUpdate {
    fn is_plain(&self) -> bool {
        *self == Self::Concat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_written() {
        let text = |kinds: &GraphKinds| serde_json::to_string(kinds).unwrap();
        assert_eq!(text(&GraphKinds::default()), "{}");
        let kinds = GraphKinds { rows_only: vec![8], cache: CacheUpdate::ScatterEach, ..GraphKinds::default() };
        assert_eq!(text(&kinds), r#"{"rows-only":[8],"cache":"scatter-each"}"#);
        assert_eq!(serde_json::from_str::<GraphKinds>(&text(&kinds)).unwrap(), kinds);
        assert!(GraphKinds::default().is_plain() && !kinds.is_plain());
        let kinds = GraphKinds { kv_cache: KvCacheType::Q8_0, ..GraphKinds::default() };
        assert_eq!(text(&kinds), r#"{"kv-cache":"q8_0"}"#);
        for kind in [KvCacheType::Rows, KvCacheType::Q8_0, KvCacheType::U8] {
            let kinds = GraphKinds { kv_cache: kind, ..GraphKinds::default() };
            assert_eq!(text(&kinds), format!(r#"{{"kv-cache":"{}"}}"#, kind.name()));
        }
    }
}

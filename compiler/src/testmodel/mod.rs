//! Small random checkpoints in Hugging Face's layout, for tests, benchmarks and trying things out.
//!
//! The same spec gives the same bytes on every machine: the random numbers are integer sums and need no `libm`.
//! Weights are scaled so that activations stay near unit size and logits spread by about two, which makes greedy
//! choices stable under f16.

mod adapter;
mod eagle;
mod files;
mod gguf;
mod random;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use adapter::TestAdapter;
pub use eagle::TestEagle;
pub use gguf::{DraftTensor, GgufDraft, GgufValue, Matrices};

use crate::family::{
    Activation, FactorKeys, Factors, Family, LocalPositions, LocalRope, ModelSpec, Rope, RopeScaling, SamplerDefaults,
    SlidingWindow, SpecialTokens, Window,
};
use crate::{CompileError, Result};
use genie_types::{Llama3Scaling, TokenId};
use std::path::Path;

/// Entries of the byte-level alphabet; the two special tokens follow.
pub const N_BYTES: usize = 256;
/// Id of the token that starts a text.
pub const BOS: TokenId = TokenId(256);
/// Id of the token that ends one.
pub const EOS: TokenId = TokenId(257);

/// One layer in this many has no window, in families with layers of both kinds.
const WINDOW_PATTERN: usize = 2;
/// Factors of families that have keys for them.
const EMBEDDING: f64 = 6.0;
const RESIDUAL: f64 = 0.22;
const SCORES: f64 = 0.3;
const LOGITS: f64 = 3.0;
/// Bounds of families that have them: so low that they matter.
const SCORES_CAP: f64 = 2.0;
const LOGITS_CAP: f64 = 3.0;

/// Element type of the written weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileDtype {
    /// IEEE single.
    #[default]
    F32,
    /// IEEE half.
    F16,
    /// Upper half of an IEEE single.
    Bf16,
}

/// A random model. Start from [`TestModel::tiny`] and change what matters.
#[derive(Clone, Debug, PartialEq)]
pub struct TestModel {
    /// Its architecture.
    pub family: Family,
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head. Written to `config.json` where it is not `hidden / heads` or the family has a default.
    pub head_dim: usize,
    /// Width of the feed-forward part.
    pub ffn: usize,
    /// Vocabulary entries, at least 258.
    pub vocab: usize,
    /// The LM head is the embedding.
    pub tied: bool,
    /// Value of `attention_bias`, for families that read it.
    pub attention_bias: bool,
    /// Value of `mlp_bias`, for families that read it.
    pub mlp_bias: bool,
    /// Base of the rotary angles.
    pub rope_theta: f64,
    /// `llama3` scaling.
    pub scaling: Option<RopeScaling>,
    /// Of the feed-forward part.
    pub activation: Activation,
    /// The part of each head that is rotated.
    pub rotary_part: f64,
    /// `query_pre_attn_scalar`, for families that read it; `None` for the width of a head.
    pub scores_scalar: Option<f64>,
    /// `sliding_window`; 0 for none. For families that have one by themselves.
    pub window: usize,
    /// Every layer of this number is not rotated, in families that have such layers.
    pub no_rope_interval: usize,
    /// `max_position_embeddings`.
    pub max_positions: usize,
    /// Element type of the weights.
    pub dtype: FileDtype,
    /// Number of safetensors files; with more than one there is an index.
    pub shards: usize,
    /// Seed of the random weights.
    pub seed: u64,
}

impl TestModel {
    /// Two layers, hidden 64, four heads over two key heads, vocabulary 320: runs in milliseconds.
    pub fn tiny(family: Family) -> Self {
        Self {
            family,
            layers: 2,
            hidden: 64,
            heads: 4,
            kv_heads: if family.info().learned_positions { 4 } else { 2 },
            head_dim: if family.info().defaults.head_dim.is_some() { 32 } else { 16 },
            ffn: 96,
            vocab: 320,
            tied: true,
            attention_bias: false,
            mlp_bias: false,
            rope_theta: match family.info().local_positions {
                LocalPositions::OwnBase(_) => 1_000_000.0,
                LocalPositions::Same | LocalPositions::Unscaled => 10_000.0,
            },
            scaling: None,
            activation: family.info().defaults.activation,
            rotary_part: if family.info().defaults.rotary_part == 1.0 { 1.0 } else { 0.5 },
            scores_scalar: None,
            window: match family.info().sliding_window {
                SlidingWindow::All { default: None } | SlidingWindow::OffByDefault => 0,
                SlidingWindow::All { .. } | SlidingWindow::AllBut { .. } => 4096,
            },
            no_rope_interval: 2,
            max_positions: 4096,
            dtype: FileDtype::F32,
            shards: 1,
            seed: 1,
        }
    }

    /// More than 64 MiB of weights in float16, which the host backend does not compare while it loads them.
    pub fn large(family: Family) -> Self {
        let kv_heads = if family.info().learned_positions { 8 } else { 2 };
        Self { hidden: 512, heads: 8, kv_heads, head_dim: 64, ffn: 11_264, ..Self::tiny(family) }
    }

    /// Scaling numbers that matter for contexts of a few hundred tokens, as Llama 3.1's do for thousands.
    pub fn short_llama3_scaling() -> RopeScaling {
        let (low_freq_factor, high_freq_factor) = (1.0, 4.0);
        Llama3Scaling { factor: 8.0, low_freq_factor, high_freq_factor, original_max_position: 64.0 }.into()
    }

    /// Writes `config.json`, `generation_config.json`, `tokenizer.json` and the weights into `dir`, which is made if
    /// it is not there.
    ///
    /// # Errors
    /// A spec that no model can have, files that cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        self.check()?;
        std::fs::create_dir_all(dir).map_err(crate::fs::io_err("create", dir))?;
        files::write_configs(self, dir)?;
        crate::fs::write(&dir.join("tokenizer.json"), tokenizer::json(self.vocab).to_string().as_bytes())?;
        files::write_weights(self, dir)
    }

    /// The factors of the family's random models, other ones than those of a configuration without the keys.
    fn factors(&self) -> Factors {
        let plain = Factors::plain(self.head_dim);
        match self.family.info().factors {
            FactorKeys::None => plain,
            FactorKeys::Multipliers => {
                Factors { embedding: EMBEDDING, residual: RESIDUAL, scores: SCORES, logits: 1.0 / LOGITS, ..plain }
            }
            FactorKeys::Gemma { .. } => Factors {
                embedding: (self.hidden as f64).sqrt(),
                scores: self.scores_scalar.unwrap_or(self.head_dim as f64).sqrt().recip(),
                scores_cap: self.capped().then_some(SCORES_CAP),
                logits_cap: self.capped().then_some(LOGITS_CAP),
                ..plain
            },
        }
    }

    /// Scores and logits are bounded.
    fn capped(&self) -> bool {
        matches!(self.family.info().factors, FactorKeys::Gemma { caps: [Some(_), _] })
    }

    /// The window, and which layers have it.
    pub(crate) fn window(&self) -> Option<Window> {
        let every = match self.family.info().sliding_window {
            SlidingWindow::AllBut { .. } => WINDOW_PATTERN,
            _ => usize::MAX,
        };
        let layers = (0..self.layers).map(|layer| (layer + 1) % every != 0).collect();
        (self.window > 0).then_some(Window { tokens: self.window, layers })
    }

    fn check(&self) -> Result<()> {
        let bad = |what, found, expected| Err(CompileError::TestModel { what, found, expected });
        if self.vocab < N_BYTES + 2 {
            return bad("a vocabulary of", self.vocab, "at least 258: all bytes and two special tokens");
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return bad("a key head count of", self.kv_heads, "a divisor of the query heads");
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return bad("a head width of", self.head_dim, "an even number");
        }
        let whole = self.heads * self.head_dim == self.hidden && self.kv_heads == self.heads;
        if self.family.info().learned_positions && !whole {
            return bad(
                "a GPT-2 with heads of",
                self.head_dim,
                "the width over the heads, as many of keys as of queries",
            );
        }
        if self.layers == 0 || self.hidden == 0 || self.ffn == 0 {
            return bad("an extent of", 0, "at least 1");
        }
        if self.no_rope_interval == 0 {
            return bad("an interval of layers that do not rotate of", 0, "at least 1");
        }
        if self.shards == 0 {
            return bad("a shard count of", 0, "at least 1");
        }
        Ok(())
    }

    /// The spec that the compiler reads from it.
    pub fn spec(&self) -> ModelSpec {
        let family = self.family.info();
        ModelSpec {
            family: self.family,
            n_layers: self.layers,
            hidden: self.hidden,
            n_heads: self.heads,
            n_kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            ffn: self.ffn,
            vocab: self.vocab,
            rotary_dim: (self.head_dim as f64 * self.rotary_part) as usize,
            norm: family.norm,
            norm_place: family.norm_place,
            norm_eps: files::RMS_EPS as f32,
            activation: self.activation,
            gated: family.gated,
            factors: self.factors(),
            rope: Rope { theta: self.rope_theta, scaling: self.scaling.clone(), part: self.rotary_part },
            local_rope: match (family.local_positions, &self.scaling) {
                (LocalPositions::Same, _) | (LocalPositions::Unscaled, None) => None,
                (LocalPositions::OwnBase(_), None) => Some(LocalRope::Columns { global_step: 3, local_step: 2 }),
                (LocalPositions::OwnBase(theta), Some(_)) => Some(LocalRope::Table { theta, scaling: None }),
                (LocalPositions::Unscaled, Some(_)) => Some(LocalRope::Table { theta: self.rope_theta, scaling: None }),
            },
            rotated_layers: (0..self.layers)
                .map(|i| !family.learned_positions && (!family.no_rope_keys || (i + 1) % self.no_rope_interval != 0))
                .collect(),
            learned_positions: family.learned_positions.then_some(self.max_positions),
            window: self.window(),
            max_positions: Some(self.max_positions),
            tied: self.tied,
            biases: family.biases(|key| if key == "mlp_bias" { self.mlp_bias } else { self.attention_bias }),
            qk_norm: family.qk_norm,
            eagle: None,
            tokens: SpecialTokens { bos: family.prepends_bos.then_some(BOS), eos: vec![EOS], pad: None },
            sampler: SamplerDefaults::default(),
        }
    }
}

//! The forms that the decoder's graphs can have.

use std::path::PathBuf;

use engine::{EngineConfig, ModelHash, RopeConfig};
use genie_types::{Dtype, Quant};

use super::model::Decoder;

/// What one split holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Ids come in here.
    pub tokens: bool,
    /// These layers.
    pub layers: std::ops::Range<usize>,
    /// Logits go out here.
    pub logits: bool,
}

/// Layers that share a prefix, a mask and a context length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `past` for the default group.
    pub prefix: &'static str,
    /// Its layers.
    pub layers: Vec<usize>,
    /// Its own context length; the model's if not given.
    pub ctx: Option<usize>,
}

/// Element type of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheType {
    /// That of the activations.
    Float,
    /// uint8 codes: `real = (code - 128) * scale`.
    U8 {
        /// Step between two codes.
        scale: f32,
    },
}

/// How the graphs are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// Weights and activations.
    pub dtype: Dtype,
    /// Cache rows.
    pub cache: CacheType,
    /// New rows are scattered into a past of CL rows, at an index.
    pub scatter: bool,
    /// The cache groups, the default one first.
    pub groups: Vec<Group>,
    /// AR and CL of each graph.
    pub variants: Vec<(usize, usize)>,
    /// The splits.
    pub parts: Vec<Part>,
    /// For the HTP backend.
    pub htp: bool,
}

impl Form {
    /// float32, concat, one group, one split.
    pub fn new(variants: &[(usize, usize)]) -> Self {
        Self {
            dtype: Dtype::F32,
            cache: CacheType::Float,
            scatter: false,
            groups: vec![Group { prefix: "past", layers: vec![0, 1], ctx: None }],
            variants: variants.to_vec(),
            parts: vec![Part { tokens: true, layers: 0..2, logits: true }],
            htp: false,
        }
    }

    /// Layer 0 sees everything, layer 1 has a group `swa_` with a context of its own.
    #[must_use]
    pub fn with_window_group(mut self, ctx: usize) -> Self {
        self.groups = vec![
            Group { prefix: "past", layers: vec![0], ctx: None },
            Group { prefix: "swa", layers: vec![1], ctx: Some(ctx) },
        ];
        self
    }

    /// LUT, one split a layer, LM head.
    #[must_use]
    pub fn cut(mut self, n_layers: usize) -> Self {
        let layer = |l| Part { tokens: false, layers: l..l + 1, logits: false };
        let first = Part { tokens: true, layers: 0..0, logits: false };
        let last = Part { tokens: false, layers: n_layers..n_layers, logits: true };
        self.parts = std::iter::once(first).chain((0..n_layers).map(layer)).chain([last]).collect();
        self
    }

    pub(super) fn group_of(&self, layer: usize) -> &Group {
        self.groups.iter().find(|g| g.layers.contains(&layer)).expect("every layer has a group")
    }

    /// Element type and encoding of cache tensors.
    pub(super) fn cache_type(&self) -> (Dtype, Quant) {
        match self.cache {
            CacheType::Float => (self.dtype, Quant::None),
            CacheType::U8 { scale } => (Dtype::UFixed8, Quant::PerTensor { scale, offset: -128 }),
        }
    }

    /// A number as the cache keeps it.
    pub fn kept(&self, x: f64) -> f64 {
        match (self.cache, self.dtype) {
            (CacheType::U8 { scale }, _) => {
                let code = (x / f64::from(scale)).round_ties_even() + 128.0;
                (code.clamp(0.0, 255.0) - 128.0) * f64::from(scale)
            }
            (_, Dtype::F16) => half::f16::from_f64(x).to_f64(),
            _ => f64::from(x as f32),
        }
    }

    /// An engine's configuration for the binaries.
    pub fn config(&self, decoder: &Decoder, bins: Vec<PathBuf>) -> EngineConfig {
        let rope = Some(RopeConfig::new(decoder.size.rope_dim(), decoder.size.theta));
        EngineConfig { rope, model_hash: Some(ModelHash([7; 32])), ..EngineConfig::new(bins) }
    }
}

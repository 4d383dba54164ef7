//! The forms that the decoder's graphs can have.

use std::path::PathBuf;

use engine::{EngineConfig, ModelHash, RopeConfig};
use genie_types::{Dtype, Quant};

use super::decoder::Decoder;

/// What one split holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Ids (or embeddings) are inputs of this split.
    pub tokens: bool,
    /// Its layers.
    pub layers: std::ops::Range<usize>,
    /// Logits are an output of this split.
    pub logits: bool,
}

/// Layers that share a prefix, a mask and a context length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `past` for the default group.
    pub prefix: &'static str,
    /// Its layers.
    pub layers: Vec<usize>,
    /// Its own context length; the model's if `None`.
    pub ctx: Option<usize>,
}

/// Element type of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheType {
    /// That of the activations.
    Float,
    /// uint8: `real = (q - 128) * scale`.
    U8 {
        /// Distance of two neighbouring values.
        scale: f32,
    },
    /// uint16: `real = (q - 32768) * scale`.
    U16 {
        /// Distance of two neighbouring values.
        scale: f32,
    },
}

/// How the graphs are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// Weights and activations: float32 or float16.
    pub dtype: Dtype,
    /// Cache rows.
    pub cache: CacheType,
    /// New rows are scattered into a past of CL rows, at an index.
    pub scatter: bool,
    /// Scatter graphs take the slot of each row instead of the first row's.
    pub slot_per_row: bool,
    /// AR of the graphs of which only new cache rows come out.
    pub rows_only: &'static [usize],
    /// AR of the graphs that the split without layers in front of the logits has; all if `None`.
    pub head_ars: Option<&'static [usize]>,
    /// One cache tensor per key head instead of one for all.
    pub per_head: bool,
    /// Mask and rotary inputs of rank 3 instead of 4.
    pub rank3: bool,
    /// `inputs_embeds` instead of `input_ids`.
    pub embeds: bool,
    /// Cache tensors are in the tiles of the Hexagon matrix unit; needs heads of a multiple of 32 elements.
    pub native_kv: bool,
    /// The LM head's weight is an input, and a file beside its binary.
    pub head_weight_input: bool,
    /// Mask, rotary inputs and logits are quantised to 16 bits.
    pub quantised_edge: bool,
    /// The cache groups, the default one first.
    pub groups: Vec<Group>,
    /// AR and CL of each graph.
    pub variants: Vec<(usize, usize)>,
    /// The splits.
    pub parts: Vec<Part>,
    /// File names of the splits; `part1.bin` and so on by default.
    pub files: Option<&'static [&'static str]>,
    /// Graphs have a running anchor of each layer's keys as inputs and outputs.
    pub anchors: bool,
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
            slot_per_row: false,
            rows_only: &[],
            head_ars: None,
            per_head: false,
            rank3: false,
            embeds: false,
            native_kv: false,
            head_weight_input: false,
            quantised_edge: false,
            groups: vec![Group { prefix: "past", layers: vec![0, 1], ctx: None }],
            variants: variants.to_vec(),
            parts: vec![Part { tokens: true, layers: 0..2, logits: true }],
            files: None,
            anchors: false,
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

    /// LUT, one split per layer, LM head.
    #[must_use]
    pub fn cut(self, n_layers: usize) -> Self {
        self.with_layers_in((0..n_layers).map(|l| l..l + 1), true)
    }

    /// Decoder, LM head.
    #[must_use]
    pub fn in_two(self) -> Self {
        self.with_layers_in(std::iter::once(0..2), false)
    }

    /// LUT, decoder, LM head.
    #[must_use]
    pub fn in_three(self) -> Self {
        self.with_layers_in(std::iter::once(0..2), true)
    }

    fn with_layers_in(mut self, layers: impl IntoIterator<Item = std::ops::Range<usize>>, lut: bool) -> Self {
        let lut_part = lut.then_some(Part { tokens: true, layers: 0..0, logits: false });
        let decoders = layers.into_iter().map(|layers| Part { tokens: !lut, layers, logits: false });
        let head = Part { tokens: false, layers: 0..0, logits: true };
        self.parts = lut_part.into_iter().chain(decoders).chain([head]).collect();
        self
    }

    /// True if the part has a graph of that AR: an LM head is of no use beside graphs that end in cache rows.
    pub(super) fn has_graph(&self, part: &Part, ar: usize) -> bool {
        let is_head = part.logits && part.layers.is_empty() && !part.tokens;
        !is_head || (self.head_ars.is_none_or(|ars| ars.contains(&ar)) && !self.rows_only.contains(&ar))
    }

    /// True if new cache rows are all that comes out of the part's graphs of that AR.
    pub(super) fn gives_rows_only(&self, part: &Part, ar: usize) -> bool {
        let last = self.parts.iter().map(|p| p.layers.end).max().unwrap_or(0);
        self.rows_only.contains(&ar) && !part.layers.is_empty() && part.layers.end == last
    }

    pub(super) fn group_of(&self, layer: usize) -> &Group {
        self.groups.iter().find(|g| g.layers.contains(&layer)).expect("every layer has a group")
    }

    /// Element type and quantisation of cache tensors.
    pub(super) fn cache_type(&self) -> (Dtype, Quant) {
        match self.cache {
            CacheType::Float => (self.dtype, Quant::None),
            CacheType::U8 { scale } => (Dtype::UFixed8, Quant::PerTensor { scale, offset: -128 }),
            CacheType::U16 { scale } => (Dtype::UFixed16, Quant::PerTensor { scale, offset: -32768 }),
        }
    }

    /// A number as the cache keeps it.
    pub fn kept(&self, x: f64) -> f64 {
        let quantised = |scale: f32, zero: f64| {
            let q = (x / f64::from(scale)).round_ties_even() + zero;
            (q.clamp(0.0, 2.0 * zero - 1.0) - zero) * f64::from(scale)
        };
        match (self.cache, self.dtype) {
            (CacheType::U8 { scale }, _) => quantised(scale, 128.0),
            (CacheType::U16 { scale }, _) => quantised(scale, 32768.0),
            (CacheType::Float, Dtype::F16) => half::f16::from_f64(x).to_f64(),
            (CacheType::Float, _) => f64::from(x as f32),
        }
    }

    /// An engine's configuration for the binaries.
    pub fn config(&self, decoder: &Decoder, bins: Vec<PathBuf>) -> EngineConfig {
        let rope = Some(RopeConfig::new(decoder.size.rope_dim(), decoder.size.theta));
        EngineConfig { rope, model_hash: Some(ModelHash([7; 32])), ..EngineConfig::new(bins) }
    }
}

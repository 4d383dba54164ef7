//! Layouts of small models in every form that the contract has.

use genie_types::{Dtype, GraphInfo, Quant, TensorInfo, TokenId};
use nsp_graph::{BinaryGraphs, ModelLayout, Options, analyze};

use crate::{EngineConfig, RopeConfig};

pub(super) const N_LAYERS: usize = 3;
pub(super) const VOCAB: usize = 61;
pub(super) const HIDDEN: usize = 4;
pub(super) const HEAD_DIM: usize = 4;
pub(super) const PAD: TokenId = TokenId(7);

/// How a model is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cut {
    Mono,
    /// Decoder, LM head.
    Two,
    /// LUT, decoder, LM head.
    Three,
    /// LUT, two decoders, LM head.
    Four,
    /// LUT with one layer; two layers with the logits.
    Layers,
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Types {
    F32,
    F16,
    /// uint8 cache, uint16 mask, rotary rows and logits.
    Mixed,
    /// uint16 cache, uint8 logits and mask.
    Wide,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) cut: Cut,
    pub(super) types: Types,
    pub(super) scatter: bool,
    pub(super) rank3: bool,
    pub(super) per_head: bool,
    /// Layer 1 has a cache group of its own, `swa_`, that sees this many columns.
    pub(super) swa: Option<usize>,
    pub(super) variants: &'static [(usize, usize)],
}

impl Form {
    pub(super) const fn plain(variants: &'static [(usize, usize)]) -> Self {
        Self { cut: Cut::Mono, types: Types::F32, scatter: false, rank3: false, per_head: false, swa: None, variants }
    }

    fn fixed(name: &str, dims: Vec<usize>, dtype: Dtype, scale: f32, offset: i32) -> TensorInfo {
        TensorInfo::new(name, dims, dtype).with_quant(Quant::PerTensor { scale, offset })
    }

    fn float(self, name: &str, dims: Vec<usize>) -> TensorInfo {
        TensorInfo::new(name, dims, if self.types == Types::F32 { Dtype::F32 } else { Dtype::F16 })
    }

    fn cache(self, name: &str, dims: Vec<usize>) -> TensorInfo {
        match self.types {
            Types::Mixed => Self::fixed(name, dims, Dtype::UFixed8, 1.0, -128),
            Types::Wide => Self::fixed(name, dims, Dtype::UFixed16, 1.0, -32768),
            _ => self.float(name, dims),
        }
    }

    fn mask(self, name: &str, dims: Vec<usize>) -> TensorInfo {
        match self.types {
            // A scale that makes no sense for masks must not matter.
            Types::Mixed => Self::fixed(name, dims, Dtype::UFixed16, 3.0, -5),
            Types::Wide => TensorInfo::new(name, dims, Dtype::U8),
            _ => self.float(name, dims),
        }
    }

    fn rope(self, name: &str, dims: Vec<usize>) -> TensorInfo {
        match self.types {
            Types::Mixed => Self::fixed(name, dims, Dtype::UFixed16, 2.0 / 65535.0, -32768),
            _ => self.float(name, dims),
        }
    }

    fn logits(self, dims: Vec<usize>) -> TensorInfo {
        match self.types {
            Types::Mixed => Self::fixed("logits", dims, Dtype::UFixed16, 1.0, -1000),
            Types::Wide => Self::fixed("logits", dims, Dtype::UFixed8, 1.0, 0),
            _ => self.float("logits", dims),
        }
    }

    /// What each part holds: tokens, layers, logits.
    fn parts(self) -> Vec<(bool, std::ops::Range<usize>, bool)> {
        match self.cut {
            Cut::Mono => vec![(true, 0..3, true)],
            Cut::Two => vec![(true, 0..3, false), (false, 3..3, true)],
            Cut::Three => vec![(true, 0..0, false), (false, 0..3, false), (false, 3..3, true)],
            Cut::Four => vec![(true, 0..0, false), (false, 0..1, false), (false, 1..3, false), (false, 3..3, true)],
            Cut::Layers => vec![(true, 0..1, false), (false, 1..3, true)],
        }
    }

    fn graph(self, ar: usize, cl: usize, split: usize) -> GraphInfo {
        let parts = self.parts();
        let (tokens, layers, logits) = parts[split].clone();
        let mut g =
            GraphInfo { name: format!("ar{ar}_cl{cl}_{}_of_{}", split + 1, parts.len()), ..GraphInfo::default() };
        let rows = |width| if self.rank3 { vec![1, ar, width] } else { vec![1, 1, ar, width] };
        if tokens {
            g.inputs.push(TensorInfo::new("input_ids", [1, ar], Dtype::I32));
        } else {
            g.inputs.push(self.float(&format!("hidden_{}", split - 1), vec![1, ar, HIDDEN]));
        }
        if !layers.is_empty() {
            g.inputs.push(self.mask("attention_mask", rows(cl)));
            g.inputs.push(self.rope("position_ids_cos", rows(HEAD_DIM / 2)));
            g.inputs.push(self.rope("position_ids_sin", rows(HEAD_DIM / 2)));
            if self.scatter {
                g.inputs.push(TensorInfo::new("cache_index", [1], Dtype::I32));
            }
        }
        if let Some(width) = self.swa.filter(|_| layers.contains(&1)) {
            g.inputs.push(self.mask("swa_attention_mask", rows(width)));
            if self.scatter {
                g.inputs.push(TensorInfo::new("swa_cache_index", [1], Dtype::I32));
            }
        }
        for layer in layers {
            let (prefix, width) = self.swa.filter(|_| layer == 1).map_or(("past", cl), |width| ("swa", width));
            let past = if self.scatter { width } else { width - ar };
            let heads = if self.per_head { vec![("_h0", 1), ("_h1", 1)] } else { vec![("", 2)] };
            for (suffix, n) in heads {
                let name = |kind: &str, end: &str| format!("{prefix}_{kind}_{layer}{suffix}_{end}");
                if ar != cl {
                    g.inputs.push(self.cache(&name("key", "in"), vec![n, 1, HEAD_DIM, past]));
                    g.inputs.push(self.cache(&name("value", "in"), vec![n, 1, past, HEAD_DIM]));
                }
                g.outputs.push(self.cache(&name("key", "out"), vec![n, 1, HEAD_DIM, ar]));
                g.outputs.push(self.cache(&name("value", "out"), vec![n, 1, ar, HEAD_DIM]));
            }
        }
        if logits {
            g.outputs.push(self.logits(vec![1, ar, VOCAB]));
        } else {
            g.outputs.push(self.float(&format!("hidden_{split}"), vec![1, ar, HIDDEN]));
        }
        g
    }

    pub(super) fn binaries(self) -> Vec<BinaryGraphs> {
        let graphs = |split| self.variants.iter().map(|&(ar, cl)| self.graph(ar, cl, split)).collect();
        let binary = |split| BinaryGraphs { source: format!("part{}.bin", split + 1), graphs: graphs(split) };
        (0..self.parts().len()).map(binary).collect()
    }

    pub(super) fn layout(self) -> ModelLayout {
        analyze(&self.binaries(), &Options::default()).unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }
}

pub(super) fn config() -> EngineConfig {
    EngineConfig { rope: Some(RopeConfig::new(HEAD_DIM / 2, 100.0)), pad_token: PAD, ..EngineConfig::new(["unused"]) }
}

//! GGUF files put together in memory, as llama.cpp's converter writes them, and open to changes: tests damage one thing at a time.

use super::files::{RMS_EPS, tensors, values};
use super::{
    BOS, EMBEDDING, EOS, LOGITS, LOGITS_CAP, RESIDUAL, SCORES, SCORES_CAP, TestModel, WINDOW_PATTERN, tokenizer,
};
use crate::family::{FactorKeys, Family, ModelSpec, NormKind, RopeScaling, SlidingWindow};
use crate::gguf::gguf_name;
use crate::{CompileError, Result};
use half::{bf16, f16};

/// Numbers of value types in files.
mod kind {
    pub(super) const U8: u32 = 0;
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const BOOL: u32 = 7;
    pub(super) const TEXT: u32 = 8;
    pub(super) const LIST: u32 = 9;
    pub(super) const U64: u32 = 10;
}

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the types")]
pub enum GgufValue {
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Bytes(Vec<u8>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    /// A type's number, and the bytes behind it, whatever they are.
    Raw(u32, Vec<u8>),
}

/// How matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, missing_docs, reason = "the formats' own names")]
pub enum Matrices {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
}

/// A tensor as it will be written.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftTensor {
    /// Name in the file.
    pub name: String,
    /// Extents, outermost first.
    pub dims: Vec<u64>,
    /// Number of the element type.
    pub ty: u32,
    /// Its data.
    pub bytes: Vec<u8>,
    /// Offset to write in place of where the data is.
    pub offset: Option<u64>,
}

/// A file in the making.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufDraft {
    /// Keys and values in the order of the file.
    pub values: Vec<(String, GgufValue)>,
    /// Tensors in the order of the file.
    pub tensors: Vec<DraftTensor>,
}

impl GgufDraft {
    /// Sets a key, in its old place if it is there.
    pub fn set(&mut self, key: &str, value: GgufValue) -> &mut Self {
        match self.values.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.values.push((key.into(), value)),
        }
        self
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) -> &mut Self {
        self.values.retain(|(k, _)| k != key);
        self
    }

    /// The tensor of that name.
    ///
    /// # Panics
    /// There is none.
    pub fn tensor(&mut self, name: &str) -> &mut DraftTensor {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap_or_else(|| panic!("no tensor `{name}`"))
    }

    /// Removes a tensor.
    pub fn remove_tensor(&mut self, name: &str) -> &mut Self {
        self.tensors.retain(|t| t.name != name);
        self
    }

    /// Adds a tensor of floats, all of one value.
    pub fn add(&mut self, name: &str, dims: &[u64], value: f32) -> &mut Self {
        let n: u64 = dims.iter().product();
        let bytes = (0..n).flat_map(|_| value.to_le_bytes()).collect();
        self.tensors.push(DraftTensor { name: name.into(), dims: dims.into(), ty: 0, bytes, offset: None });
        self
    }

    /// The file's bytes, with the default alignment of 32.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.values.len() as u64).to_le_bytes());
        for (key, value) in &self.values {
            let (kind, bytes) = value.encoded();
            file.extend(text(key));
            file.extend(kind.to_le_bytes());
            file.extend(bytes);
        }
        let mut data = Vec::new();
        for tensor in &self.tensors {
            data.resize(data.len().next_multiple_of(32), 0);
            file.extend(text(&tensor.name));
            file.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().rev().for_each(|d| file.extend(d.to_le_bytes()));
            file.extend(tensor.ty.to_le_bytes());
            file.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&tensor.bytes);
        }
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(data);
        file
    }
}

impl GgufValue {
    fn encoded(&self) -> (u32, Vec<u8>) {
        let list = |of: u32, n: usize, bytes: Vec<u8>| {
            (kind::LIST, [&of.to_le_bytes()[..], &(n as u64).to_le_bytes(), &bytes].concat())
        };
        match self {
            Self::U32(n) => (kind::U32, n.to_le_bytes().into()),
            Self::I32(n) => (kind::I32, n.to_le_bytes().into()),
            Self::U64(n) => (kind::U64, n.to_le_bytes().into()),
            Self::F32(x) => (kind::F32, x.to_le_bytes().into()),
            Self::Bool(b) => (kind::BOOL, vec![u8::from(*b)]),
            Self::Text(t) => (kind::TEXT, text(t)),
            Self::Texts(all) => list(kind::TEXT, all.len(), all.iter().flat_map(|t| text(t)).collect()),
            Self::Bytes(all) => list(kind::U8, all.len(), all.clone()),
            Self::U32s(all) => list(kind::U32, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
            Self::I32s(all) => list(kind::I32, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
            Self::F32s(all) => list(kind::F32, all.len(), all.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Self::Raw(kind, bytes) => (*kind, bytes.clone()),
        }
    }
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

impl TestModel {
    /// The model as a GGUF file.
    ///
    /// # Errors
    /// A spec that no model can have.
    pub fn gguf(&self, matrices: Matrices) -> Result<GgufDraft> {
        self.check()?;
        let spec = self.spec();
        let mut draft = GgufDraft::default();
        let arch = spec.family.gguf_name();
        draft.set("general.architecture", GgufValue::Text(arch.into()));
        for (key, n) in [
            ("block_count", spec.n_layers),
            ("context_length", self.max_positions),
            ("embedding_length", spec.hidden),
            ("feed_forward_length", spec.ffn),
            ("attention.head_count", spec.n_heads),
            ("attention.head_count_kv", spec.n_kv_heads),
            ("attention.key_length", spec.head_dim),
            ("attention.value_length", spec.head_dim),
        ] {
            draft.set(&format!("{arch}.{key}"), GgufValue::U32(n as u32));
        }
        let eps = if spec.norm == NormKind::Layer { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        for (key, x) in [(&*format!("attention.{eps}"), RMS_EPS), ("rope.freq_base", self.rope_theta)] {
            draft.set(&format!("{arch}.{key}"), GgufValue::F32(x as f32));
        }
        self.set_family_keys(&mut draft, &spec)?;
        self.set_tokenizer(&mut draft);
        for tensor in tensors(self) {
            let mut values = values(self, &tensor);
            if tensor.name.ends_with("norm.weight") && spec.norm == NormKind::RmsPlusOne {
                values.iter_mut().for_each(|weight| *weight += 1.0);
            }
            let rows = ["q_proj", "k_proj"].iter().any(|part| tensor.name.contains(part));
            if rows && spec.family.info().gguf_paired_heads {
                values = paired(&values, values.len() / tensor.dims[0], spec.head_dim);
            }
            // Tables of positions stay as they are, as `llama-quantize` leaves them.
            let is_matrix = tensor.dims.len() == 2 && !tensor.name.contains("position_embeddings");
            let (ty, bytes) = match matrices {
                Matrices::F16 if is_matrix => {
                    (1, values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect())
                }
                Matrices::Bf16 if is_matrix => {
                    (30, values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect())
                }
                Matrices::Q8_0 if is_matrix => (8, q8_0(&values)),
                Matrices::Q4_0 if is_matrix => (2, q4_0(&values)),
                _ => (0, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            };
            let name = gguf_name(&tensor.name, self.family).unwrap_or_else(|| tensor.name.clone());
            let dims = tensor.dims.iter().map(|&d| d as u64).collect();
            draft.tensors.push(DraftTensor { name, dims, ty, bytes, offset: None });
        }
        Ok(draft)
    }

    /// Keys that some families have, and those of scaled positions.
    fn set_family_keys(&self, draft: &mut GgufDraft, spec: &ModelSpec) -> Result<()> {
        let bad = |what, found, expected| Err(CompileError::TestModel { what, found, expected });
        let info = self.family.info();
        let arch = self.family.gguf_name();
        let mut set = |key: &str, value| {
            draft.set(&format!("{arch}.{key}"), value);
        };
        let float = |x: f64| GgufValue::F32(x as f32);
        match info.factors {
            FactorKeys::None => {}
            FactorKeys::Multipliers => {
                set("embedding_scale", float(EMBEDDING));
                set("residual_scale", float(RESIDUAL));
                set("attention.scale", float(SCORES));
                set("logit_scale", float(LOGITS));
            }
            FactorKeys::Gemma { .. } => {
                if self.scores_scalar.is_some_and(|scalar| scalar != self.head_dim as f64) {
                    return bad(
                        "a score factor in a GGUF file that is not of a width of",
                        self.head_dim,
                        "that of a head",
                    );
                }
                if self.capped() {
                    set("attn_logit_softcapping", float(SCORES_CAP));
                    set("final_logit_softcapping", float(LOGITS_CAP));
                }
            }
        }
        if matches!(info.sliding_window, SlidingWindow::AllBut { .. }) {
            set("attention.sliding_window_pattern", GgufValue::U32(WINDOW_PATTERN as u32));
        }
        if self.activation != info.defaults.activation {
            return bad("activations that a GGUF file does not state:", 1, "that of the family");
        }
        if info.no_rope_keys && self.no_rope_interval != 4 {
            return bad("an interval of layers that do not rotate, in a GGUF file, of", self.no_rope_interval, "4");
        }
        if matches!(self.family, Family::Phi3 | Family::Gemma2 | Family::Gemma3 | Family::Olmo3) {
            set("attention.sliding_window", GgufValue::U32(self.window as u32));
        }
        if matches!(self.family, Family::Phi3 | Family::StableLm) {
            set("rope.dimension_count", GgufValue::U32(spec.rotary_dim as u32));
        }
        let original = |length: f64| ("rope.scaling.original_context_length", GgufValue::U32(length as u32));
        let mut divisors: Vec<(&str, &[f64])> = Vec::new();
        match &self.scaling {
            None => {}
            Some(RopeScaling::Linear { factor }) => {
                set("rope.scaling.type", GgufValue::Text("linear".into()));
                set("rope.scaling.factor", float(*factor));
            }
            Some(RopeScaling::Yarn(yarn)) => {
                let (key, length) = original(yarn.original_max_position);
                set("rope.scaling.type", GgufValue::Text("yarn".into()));
                set("rope.scaling.factor", float(yarn.factor));
                set(key, length);
                set("rope.scaling.attn_factor", float(yarn.attn_factor));
                set("rope.scaling.yarn_beta_fast", float(yarn.beta_fast));
                set("rope.scaling.yarn_beta_slow", float(yarn.beta_slow));
            }
            Some(RopeScaling::LongRope(long)) => {
                let (key, length) = original(long.original_max_position);
                set(key, length);
                set("rope.scaling.attn_factor", float(long.amplitude()));
                divisors.push(("rope_factors_long.weight", &long.long_factor));
                divisors.push(("rope_factors_short.weight", &long.short_factor));
            }
            Some(_) => return bad("rope scalings that a GGUF file does not state:", 1, "linear, yarn or longrope"),
        }
        for (name, list) in divisors {
            let bytes = list.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
            let (name, dims) = (name.into(), vec![list.len() as u64]);
            draft.tensors.push(DraftTensor { name, dims, ty: 0, bytes, offset: None });
        }
        Ok(())
    }

    fn set_tokenizer(&self, draft: &mut GgufDraft) {
        let (tokens, merges) = tokenizer::lists(self.vocab);
        let kinds = (0..self.vocab).map(|id| if [BOS, EOS].iter().any(|t| t.0 as usize == id) { 3 } else { 1 });
        draft
            .set("tokenizer.ggml.model", GgufValue::Text("gpt2".into()))
            .set("tokenizer.ggml.pre", GgufValue::Text("gpt-2".into()))
            .set("tokenizer.ggml.tokens", GgufValue::Texts(tokens))
            .set("tokenizer.ggml.token_type", GgufValue::I32s(kinds.collect()))
            .set("tokenizer.ggml.merges", GgufValue::Texts(merges))
            .set("tokenizer.ggml.bos_token_id", GgufValue::U32(BOS.0))
            .set("tokenizer.ggml.eos_token_id", GgufValue::U32(EOS.0))
            .set("tokenizer.ggml.add_bos_token", GgufValue::Bool(self.family.info().prepends_bos));
    }
}

/// Rows of each head as llama.cpp orders them: 0, d/2, 1, d/2 + 1, ...
fn paired(values: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let rows: Vec<&[f32]> = values.chunks(cols).collect();
    let order =
        |head: usize| (0..head_dim / 2).flat_map(move |j| [0, 1].map(|p| head * head_dim + p * head_dim / 2 + j));
    (0..rows.len() / head_dim).flat_map(order).flat_map(|row| rows[row].iter().copied()).collect()
}

fn q8_0(values: &[f32]) -> Vec<u8> {
    let block = |block: &[f32]| {
        let scale = f16::from_f32(block.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0);
        let code = |v: &f32| ((v / scale.to_f32()).round_ties_even().clamp(-127.0, 127.0) as i8).cast_unsigned();
        scale.to_le_bytes().into_iter().chain(block.iter().map(code)).collect::<Vec<u8>>()
    };
    values.chunks(32).flat_map(block).collect()
}

fn q4_0(values: &[f32]) -> Vec<u8> {
    let block = |block: &[f32]| {
        let scale = f16::from_f32(block.iter().fold(0.0f32, |m, v| if v.abs() > m.abs() { *v } else { m }) / -8.0);
        let code = |v: f32| (v / scale.to_f32() + 8.0).round().clamp(0.0, 15.0) as u8;
        let codes = (0..16).map(|i| code(block[i]) | code(block[i + 16]) << 4);
        scale.to_le_bytes().into_iter().chain(codes).collect::<Vec<u8>>()
    };
    values.chunks(32).flat_map(block).collect()
}

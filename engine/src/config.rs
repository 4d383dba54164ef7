//! The settings of an engine. Plain data: `genie-bundle` reads it from Genie's JSON, tests make it by hand.
//!
//! Anything that can be checked without the bundle is checked in [`EngineConfig::check`], the rest when the bundle is opened.

use std::path::PathBuf;
use std::sync::Arc;

use genie_types::{Dtype, PositionKind, Quant, RopeConfig, TokenId};
use kvmanager::{Eviction, HolePolicy, ModeKind, Policy};
use nsp_graph::GroupOptions;
use qnn_api::SharedMemory;
use session_store::ModelHash;

use crate::buffer::Buffer;
use crate::embedding_codes::CodeTable;
use crate::quant::QuantParams;
use crate::{ContextShift, DumpOptions, EngineError};

/// Most threads that move cache rows.
const MAX_THREADS: usize = 1024;

/// Largest alignment of buffers: a huge page.
const MAX_ALIGNMENT: usize = 2 << 20;

/// Everything about one engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Context binaries, in any order.
    pub ctx_bins: Vec<PathBuf>,
    /// Most tokens of a dialog; `None` for the largest CL. More than that only if the default group drops rows.
    pub context_size: Option<usize>,
    /// Threads that move cache rows; 0 moves them on the caller's.
    pub n_threads: usize,
    /// Rotary positions of `position_ids_cos` and `position_ids_sin`; needed when the graphs take them.
    pub rope: Option<RopeConfig>,
    /// Rotary positions of tables whose names begin with a prefix, by it.
    pub prefixed_ropes: Vec<(String, RopeConfig)>,
    /// By which rule positions enter the model; `None` for whatever the graphs take.
    pub positions: Option<PositionKind>,
    /// The id that fills the unused rows of a step (Genie's `pad-token`, else its first `eos-token`).
    pub pad_token: TokenId,
    /// How graphs are chosen.
    pub policy: Policy,
    /// How cache rows lie and move; `None` for what the bundle's cache tensors ask for.
    pub kv_mode: Option<ModeKind>,
    /// What to do with the holes that removals leave in the cache.
    pub holes: HolePolicy,
    /// Token embeddings, for graphs that take `inputs_embeds`.
    pub embedding: Option<EmbeddingLut>,
    /// The same from a program, where there is no table.
    pub embedding_callback: Option<EmbeddingCallback>,
    /// Cache groups with the names of their masks and indices; empty for the contract's names.
    pub cache_groups: Vec<GroupOptions>,
    /// What cache groups drop once their past is full, by prefix; a group that is not listed keeps everything. Under policy
    /// `genie` a window on the default group is libGenie's ring of slots.
    pub long_context: Vec<(String, Eviction)>,
    /// Drops old tokens and moves the others up where the context is full, for callers that ask
    /// [`make_room`](crate::TokenModel::make_room) before they process; `None` ends there.
    pub context_shift: Option<ContextShift>,
    /// Where a group drops rows by `KeyDiff`: the share of the newest mean in the running anchor that keys are compared with,
    /// above 0 and at most 1; `None` for the mean itself. [`Engine::set_scorer`](crate::Engine::set_scorer) takes any other scorer.
    pub anchor_alpha: Option<f32>,
    /// A binary whose network scores the keys of the group that drops rows by `KeyDiff`, in place of the program's own scores.
    pub scoring_network: Option<PathBuf>,
    /// LoRA adapters that the graphs have strengths for, or that are sections of the context binaries.
    pub lora: LoraConfig,
    /// Load and use only these graphs.
    pub select_graphs: Option<Vec<String>>,
    /// What saved caches are marked with; `None` for a mark taken from the context binaries' bytes. Give the source's own
    /// hash, and a saved cache fits every bundle of the same weights, whatever its AR and CL.
    pub model_hash: Option<ModelHash>,
    /// Layers rotate keys in different ways, which the graphs do not show: rows are not moved to other positions.
    pub mixed_rotation: bool,
    /// The bundle's name, which saved caches keep for messages; may be empty.
    pub bundle_name: String,
    /// Map context binaries; else read them into memory. The embedded backend maps them for the first 16 steps at least, and moves them
    /// then if memory has room (Linux).
    pub use_mmap: bool,
    /// HTP: most megabytes of a binary's file to read at a time; 0 is no limit.
    pub mmap_budget_mb: u64,
    /// HTP: bytes of one spill buffer that all binaries use in turn; 0 leaves each its own. Left out with a warning where the
    /// library refuses it, like the next two.
    pub spill_fill_bytes: u64,
    /// Rows of the batch that the graphs must have; `None` takes what they have.
    pub batch_size: Option<usize>,
    /// HTP: megabytes that graphs may take at a time, others are swapped out; 0 is no limit.
    pub memory_limit_mb: u64,
    /// HTP: graphs that stay longest where there is a limit.
    pub retention_order: Vec<String>,
    /// Where the files of weights are that the LM head takes as inputs; `None` beside the binary that has the head.
    pub weight_folder: Option<PathBuf>,
    /// Load a context binary when one of its graphs is to run, and free it when another's is. Spares memory where a
    /// bundle has several, and costs a load at each change.
    pub dynamic_load: bool,
    /// Embedded backend: weights leave memory as soon as a step has read them, to be read from the file by the next.
    pub lets_weights_go: bool,
    /// Settings of a bundle's fused graphs; `None` for the defaults. An [`Engine`](crate::Engine) does not look at them.
    pub pd: Option<crate::PairConfig>,
    /// Memory that the NPU sees as well, for the cache and the tensors of the graphs; `None` for plain memory, which the
    /// library copies.
    pub shared_memory: Option<Arc<SharedMemory>>,
    /// Bytes of which the buffers of the graphs begin at a multiple, where that is more than 64; 0 for 64. The cache's own
    /// tensors begin at a multiple of 64.
    pub data_alignment: usize,
    /// Tensors to write to files.
    pub dump: Option<DumpOptions>,
}

impl EngineConfig {
    /// The defaults for those binaries: all of the context, no worker threads, no rotary inputs, policy `lenient`.
    pub fn new(ctx_bins: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            ctx_bins: ctx_bins.into_iter().map(Into::into).collect(),
            context_size: None,
            n_threads: 0,
            rope: None,
            prefixed_ropes: Vec::new(),
            positions: None,
            pad_token: TokenId(0),
            policy: Policy::default(),
            kv_mode: None,
            holes: HolePolicy::Close,
            embedding: None,
            embedding_callback: None,
            cache_groups: Vec::new(),
            long_context: Vec::new(),
            context_shift: None,
            anchor_alpha: None,
            scoring_network: None,
            lora: LoraConfig::default(),
            select_graphs: None,
            model_hash: None,
            mixed_rotation: false,
            bundle_name: String::new(),
            use_mmap: true,
            mmap_budget_mb: 0,
            spill_fill_bytes: 0,
            batch_size: None,
            memory_limit_mb: 0,
            retention_order: Vec::new(),
            weight_folder: None,
            pd: None,
            dynamic_load: false,
            lets_weights_go: false,
            shared_memory: None,
            data_alignment: 0,
            dump: None,
        }
    }

    /// Numbers that no bundle could make right.
    ///
    /// # Errors
    ///
    /// [`EngineError::Config`] with the key and what it should be.
    pub fn check(&self) -> Result<(), EngineError> {
        let bad = |what: &'static str, expected: &'static str, found: String| {
            Err(EngineError::Config { what, expected, found })
        };
        if self.ctx_bins.is_empty() {
            return bad("context binaries", "at least one path", "none".into());
        }
        if self.context_size == Some(0) {
            return bad("context size", "at least 1", "0".into());
        }
        if self.data_alignment > MAX_ALIGNMENT {
            return bad("data-alignment-size", "at most 2097152", self.data_alignment.to_string());
        }
        if self.n_threads > MAX_THREADS {
            return bad("n-threads", "0 to 1024", self.n_threads.to_string());
        }
        for rope in self.rope.iter().chain(self.prefixed_ropes.iter().map(|(_, rope)| rope)) {
            if let Some(problem) = rope.problems().into_iter().next() {
                return Err(EngineError::Rope(problem));
            }
        }
        if let Some(lut) = &self.embedding {
            if lut.size == 0 {
                return bad("embedding size", "at least 1", "0".into());
            }
            if let LutDtype::Fixed { scale, .. } = lut.dtype
                && !(scale.is_finite() && scale > 0.0)
            {
                return bad("embedding scale", "a finite number above 0", scale.to_string());
            }
        }
        Ok(())
    }
}

/// LoRA adapters of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoraConfig {
    /// Each with a name of its own.
    pub adapters: Vec<LoraAdapter>,
    /// Adapters that share quantisation parameters; an adapter is in one of them at most.
    pub groups: Vec<LoraGroup>,
    /// Inputs that hold strengths, beside those of the adapters.
    pub alphas: Vec<String>,
}

/// One LoRA adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoraAdapter {
    /// Its name.
    pub name: String,
    /// The inputs that hold its strength.
    pub alphas: Vec<String>,
    /// Sections that replace parts of the context binaries, one file for each binary in the order of the binaries; or none.
    pub bin_sections: Vec<PathBuf>,
}

/// Adapters that share quantisation parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoraGroup {
    /// Its name.
    pub name: String,
    /// Names of its adapters.
    pub members: Vec<String>,
    /// Sections that are applied before those of its first adapter, one file for each binary.
    pub quant_bin_sections: Vec<PathBuf>,
}

/// A file of token embeddings: one row after the other, by id.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingLut {
    /// The file.
    pub path: PathBuf,
    /// Elements of a row.
    pub size: usize,
    /// Element type in the file.
    pub dtype: LutDtype,
}

/// Element type of an embedding file, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub enum LutDtype {
    /// float32.
    Float32,
    /// The type and encoding of the graph's input: bytes are copied.
    Native,
    /// Quantised values with one scale and offset: `real = (quantised + offset) * scale`.
    Fixed {
        /// `UFixed8`, `UFixed16`, `SFixed8` or `SFixed16`.
        dtype: Dtype,
        /// Step between two quantised values.
        scale: f32,
        /// Added to the quantised value before scaling.
        offset: i32,
    },
    /// Codes of few bits, or with scales of their own for columns or rows.
    Codes(CodeTable),
}

impl LutDtype {
    /// Numbers of rows in that type, one after the other; `None` for [`LutDtype::Native`], which the graphs know.
    ///
    /// # Errors
    ///
    /// [`EngineError::EmbeddingRows`] for bytes that are no whole numbers; [`EngineError::Config`] for a type without numbers.
    pub fn decode(&self, bytes: &[u8]) -> Result<Option<Vec<f32>>, EngineError> {
        let encoding = match self {
            Self::Native => return Ok(None),
            Self::Float32 => QuantParams::of(Dtype::F32, &Quant::None),
            Self::Fixed { dtype, scale, offset } => {
                QuantParams::of(*dtype, &Quant::PerTensor { scale: *scale, offset: *offset })
            }
            Self::Codes(_) => None,
        };
        let Some(encoding) = encoding else {
            let expected = "float32, ufixed8, ufixed16, sfixed8 or sfixed16";
            return Err(EngineError::Config { what: "type of embeddings", expected, found: format!("{self:?}") });
        };
        decode(encoding, bytes).map(Some)
    }
}

/// Numbers in an encoding, from bytes that may lie anywhere.
pub(crate) fn decode(encoding: QuantParams, bytes: &[u8]) -> Result<Vec<f32>, EngineError> {
    let width = encoding.size_bytes();
    if !bytes.len().is_multiple_of(width) {
        let (expected, found) = (format!("numbers of {width} bytes"), format!("{} bytes", bytes.len()));
        return Err(EngineError::EmbeddingRows { expected, found });
    }
    let mut aligned = Buffer::zeroed(bytes.len());
    aligned.bytes_mut().copy_from_slice(bytes);
    let mut numbers = vec![0.0; bytes.len() / width];
    encoding.decode(aligned.bytes(), &mut numbers);
    Ok(numbers)
}

/// A program's function that writes the embedding of a token.
#[derive(Clone)]
pub struct EmbeddingCallback(Arc<WriteRow>);

type WriteRow = dyn Fn(TokenId, &mut [f32]) + Send + Sync;

impl EmbeddingCallback {
    /// The function is given the token and a row of zeros to fill; it may be called from any thread.
    pub fn new(callback: impl Fn(TokenId, &mut [f32]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) fn write(&self, token: TokenId, row: &mut [f32]) {
        row.fill(0.0);
        (self.0)(token, row);
    }
}

impl std::fmt::Debug for EmbeddingCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmbeddingCallback")
    }
}

#[cfg(test)]
mod tests {
    use genie_types::Llama3Scaling;

    use super::*;

    #[test]
    fn bad_numbers_are_named() {
        let good = || EngineConfig { rope: Some(RopeConfig::new(16, 1e4)), ..EngineConfig::new(["model.bin"]) };
        let llama3 = |factor, low_freq_factor, high_freq_factor, original_max_position| {
            let scaling = Llama3Scaling { factor, low_freq_factor, high_freq_factor, original_max_position };
            RopeConfig::new(16, 1e4).with_scaling(genie_types::RopeScaling::Llama3(scaling))
        };
        let rope = |rope| EngineConfig { rope: Some(rope), ..good() };
        let lut = |size, scale| EngineConfig {
            embedding: Some(EmbeddingLut {
                path: "lut.raw".into(),
                size,
                dtype: LutDtype::Fixed { dtype: Dtype::UFixed8, scale, offset: 0 },
            }),
            ..good()
        };
        assert!(good().check().is_ok());
        assert!(rope(llama3(8.0, 1.0, 4.0, 8192.0)).check().is_ok());
        let cases = [
            (EngineConfig { ctx_bins: vec![], ..good() }, "context binaries: expected at least one path, found none"),
            (EngineConfig { context_size: Some(0), ..good() }, "context size: expected at least 1, found 0"),
            (EngineConfig { n_threads: 1025, ..good() }, "n-threads: expected 0 to 1024, found 1025"),
            (rope(RopeConfig::new(0, 1e4)), "`rope-dim` of the rotary positions: expected at least 1, found 0"),
            (
                rope(RopeConfig::new(16, -1.0)),
                "`rope-theta` of the rotary positions: expected a finite number above 0, found -1",
            ),
            (
                rope(RopeConfig::new(16, f64::NAN)),
                "`rope-theta` of the rotary positions: expected a finite number above 0, found NaN",
            ),
            (
                rope(llama3(0.0, 1.0, 4.0, 8192.0)),
                "`factor` of the rotary positions: expected a finite number above 0, found 0",
            ),
            (
                rope(llama3(8.0, 4.0, 4.0, 8192.0)),
                "`high-freq-factor` of the rotary positions: expected more than `low-freq-factor`, 4, found 4",
            ),
            (lut(0, 1.0), "embedding size: expected at least 1, found 0"),
            (lut(8, 0.0), "embedding scale: expected a finite number above 0, found 0"),
        ];
        for (config, want) in cases {
            assert_eq!(config.check().unwrap_err().to_string(), want);
        }
    }
}

//! Advice that belongs to an error, as data: front ends word it in the terms of their own options.

use crate::Splits;
use std::path::PathBuf;

/// What the user may do about a [`crate::CompileError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Add a context length of at least that many tokens, or drop the wider AR.
    LongerContext {
        /// Tokens.
        at_least: usize,
    },
    /// Choose a chip with float16 arithmetic; one of this architecture needs quantised activations.
    ChipWithFloat16 {
        /// Architecture of the chip asked for.
        arch: u32,
    },
    /// Leave the precision at its default, or compile for no chip.
    DefaultPrecisionOrNoChip,
    /// Use int8 weights or float weights.
    WeightsW8OrFloat,
    /// Use int8 weights.
    WeightsW8,
    /// Use float32.
    PrecisionF32,
    /// Pass Qualcomm's HTP library.
    HtpLibrary,
    /// Open the backend with [`crate::HtpOptions::backend_options`].
    OpenForChip,
    /// Cut the model like this, compile fewer variants, or share weights between them.
    FinerSplits {
        /// Split layout.
        splits: Splits,
        /// Decoder layers in a split, where the layout alone is not enough.
        layers_per_split: Option<usize>,
    },
    /// No split is fine enough: compile fewer variants, use int8 weights, or share weights between variants.
    SmallerBundle,
    /// Put fewer layers in a split, or compile fewer variants.
    FewerLayersPerSplit,
    /// Choose a split layout with several splits.
    LayoutWithSplits,
    /// Give only wider widths to graphs of cache rows, or choose the layout of one split.
    WiderRowsOnlyOrMono,
    /// Add the adapters to the weights for good.
    MergeAdapters,
    /// Compile without fused graphs.
    NoFusedGraphs,
    /// Merge the files of a split model into one.
    MergeShards,
    /// Quantise the model again, to a format that is read.
    Requantise,
    /// Pass the model that this file is a part of, or belongs to.
    ModelNotPart,
    /// Convert the model again, with its tokenizer.
    ConvertWithTokenizer,
    /// The model computes something that this compiler does not know; a newer one may.
    NewerFormat,
    /// The file's keys and tensors do not fit together: convert the model again.
    ConvertAgain,
    /// Compile this GGUF file instead of its folder.
    CompileFile(PathBuf),
    /// Convert this file to safetensors.
    ConvertToSafetensors(String),
    /// Pass the directory that holds `config.json`.
    ModelDirectory,
    /// Download the checkpoint again.
    DownloadAgain,
    /// The checkpoint has tensors of similar names, or `config.json` lacks a `tie_word_embeddings` of true.
    MissingTensor {
        /// Similar names, best first.
        near: Vec<String>,
        /// The missing tensor is the LM head of a model that may be tied.
        maybe_tied: bool,
    },
    /// Set this key of `config.json` to true where the model has these tensors.
    SetKey {
        /// The key.
        key: &'static str,
    },
    /// Remove this key of `config.json` if the model does not need it.
    RemoveKey {
        /// The key.
        key: String,
    },
    /// The configuration has keys of similar names.
    SimilarKeys {
        /// Similar names, best first.
        near: Vec<String>,
    },
    /// The model may be of another family, or `config.json` of another model.
    OtherFamilyOrConfig,
    /// Set `tie_word_embeddings` to false, or remove the head.
    UntieOrDropHead,
    /// `config.json` may belong to another model.
    OtherConfig,
    /// Pass a folder with `config.json`, safetensors and `tokenizer.json`, or a GGUF file.
    PassModel,
    /// It is a bundle already: run it.
    AlreadyCompiled,
    /// Write the tokenizer as `tokenizer.json`.
    ConvertTokenizer {
        /// The file that another kind of tokenizer has, if it is there.
        from: Option<&'static str>,
    },
    /// Save the weights as float32, float16 or bfloat16.
    SaveAsFloat,
    /// Start from the checkpoint that is not quantised.
    UnquantisedCheckpoint,
    /// Choose another output directory, or force the replacement of the bundle in it; other files there stay.
    OtherDirectoryOrForce,
    /// Choose an output directory that is empty or does not exist: only bundles are replaced.
    OtherDirectory,
    /// Choose a directory within this one.
    DirectoryInside,
    /// Choose another output directory.
    AnyOtherDirectory,
    /// Compile the bundle again with this build, or use a newer one.
    CompileAgainOrNewerBuild,
    /// Compile the bundle again.
    CompileAgain,
}

//! The checked parts of a dialog config, as plain values: any combination of them is usable.

use std::path::PathBuf;

use genie_types::TokenId;

/// The `context` block. Token ids that Genie writes as -1 (unset) are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextSettings {
    /// Prepended to the first turn, and to later ones that are not continuations.
    pub bos: Option<TokenId>,
    /// Each of them ends a turn; the first is also what separates turns.
    pub eos: Vec<TokenId>,
    /// Ends a turn, too.
    pub eot: Option<TokenId>,
    /// Fills short chunks; the first `eos` where unset.
    pub pad: Option<TokenId>,
    /// Context length in tokens that the dialog may use; at least 1.
    pub size: usize,
    /// Vocabulary size that the config states. Genie does not check it against the logits.
    pub n_vocab: usize,
    /// Embedding width, where stated.
    pub n_embd: Option<usize>,
}

/// The `engine` block of a single-engine dialog on `QnnHtp`.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// Threads that update the cache; 0 leaves it to the engine.
    pub n_threads: usize,
    /// Backend extension configs (SoC, performance), absolute.
    pub extensions: Vec<PathBuf>,
    /// Context binaries, absolute, as listed.
    pub ctx_bins: Vec<PathBuf>,
    /// Rotary positions.
    pub rope: RopeSettings,
    /// The `QnnHtp` block.
    pub htp: HtpSettings,
}

/// The keys of `QnnHtp` that change what we do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtpSettings {
    /// Map binaries instead of reading them.
    pub use_mmap: bool,
    /// Megabytes to map at once; 0 is no limit.
    pub mmap_budget_mb: u64,
    /// Bytes of the spill-fill buffer shared by contexts; 0 is off.
    pub spill_fill_bytes: u64,
    /// CPUs to run on, bit 0 first; 0 is any.
    pub cpu_mask: u64,
    /// Wait busily for the NPU.
    pub poll: bool,
    /// Width of a head's keys and values, where stated.
    pub kv_dim: Option<usize>,
    /// Only these graphs are used, where any is listed.
    pub select_graphs: Vec<String>,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSettings {
    /// Angles per position (half the head's width); `None` takes it from the graph.
    pub dim: Option<usize>,
    /// Base of the frequencies.
    pub theta: f64,
    /// Change of the frequencies for longer contexts.
    pub scaling: RopeScaling,
}

/// How rotary frequencies are changed.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// By wavelength, as Llama 3.1 does.
    Llama3 {
        /// Divides the low frequencies.
        factor: f64,
        /// Lower edge of the blend.
        low_freq_factor: f64,
        /// Upper edge of the blend.
        high_freq_factor: f64,
        /// Context length, in tokens, that the model was first trained for.
        original_max_positions: f64,
    },
}

//! The checked parts of a dialog config that are ours; what the engine needs is `engine::EngineConfig`.

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

/// The `backend` block of an engine on `QnnHtp`: what concerns the QNN library rather than the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSettings {
    /// Backend extension configs (SoC, performance), absolute if the base was.
    pub extensions: Vec<PathBuf>,
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
}

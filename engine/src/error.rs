//! What can go wrong between a bundle and its logits, with the names and numbers needed to act. Long, as it is one enum.

use std::path::PathBuf;

use genie_types::{Dtype, PositionKind, RopeProblem, TokenId};
use kvmanager::{KvError, Overflow, PlanError};
use nsp_graph::LayoutError;
use session_store::StoreError;

use crate::ExecuteError;
use crate::error_words::{and_prefix, are, for_prefix, quoted};

/// A refusal of the engine. Unless documented otherwise, the dialog's state is as before the call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A setting that is wrong for any bundle.
    #[error("{what}: expected {expected}, found {found}")]
    Config {
        /// The setting.
        what: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },

    /// A network that scores keys does not fit the model.
    #[error("tensor `{tensor}` of `{graph}`, for scoring keys: expected {expected}, found {found}")]
    ScorerTensor {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },

    /// No memory for the tensors of the graphs.
    #[error("no memory for {bytes} bytes of tensors")]
    SharedMemory {
        /// How much.
        bytes: usize,
        /// Why.
        source: qnn_api::Error,
    },

    /// The token that fills the unused columns of a step has no row in the embedding table.
    #[error("pad token {found} is not in the vocabulary of {vocab_size}")]
    PadToken {
        /// The token.
        found: TokenId,
        /// Entries of the vocabulary.
        vocab_size: usize,
    },
    /// Graphs that take another model's hidden states got another number of values, or none.
    #[error("`target_hidden_states`: expected {expected} numbers, found {found}")]
    FeatureRows {
        /// The tokens' rows.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// A LoRA adapter is asked for where there is none.
    #[error("no LoRA adapter `{wanted}`: the bundle has no adapters")]
    NoAdapters {
        /// The adapter.
        wanted: String,
    },

    /// No LoRA adapter of that name.
    #[error("no LoRA adapter `{name}`: the bundle has {}", quoted(known))]
    UnknownAdapter {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },

    /// No graph has an input for that strength of an adapter.
    #[error("no graph has the LoRA strength `{name}`: there {}", are(known))]
    UnknownAlpha {
        /// The input.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },

    /// A strength that is no number.
    #[error("LoRA strength of `{name}`: expected a finite number, found {found}")]
    LoraStrength {
        /// The adapter or the input.
        name: String,
        /// The strength.
        found: f32,
    },

    /// A strength for an adapter that has none.
    #[error("LoRA adapter `{adapter}` has no strength: no graph takes one")]
    NoStrength {
        /// The adapter.
        adapter: String,
    },

    /// Two adapters at once that have the same strength, or that both replace parts of the binaries.
    #[error(
        "LoRA adapters `{first}` and `{second}` cannot be applied at once: they use the same input or the same sections"
    )]
    SharedAlpha {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },

    /// An adapter's section files do not match the binaries.
    #[error(
        "LoRA adapter `{adapter}` has {found} section files, expected one for each of the {expected} context binaries"
    )]
    SectionCount {
        /// The adapter.
        adapter: String,
        /// Context binaries.
        expected: usize,
        /// Section files.
        found: usize,
    },

    /// A section file that the backend does not take.
    #[error("section `{path}` of LoRA adapter `{adapter}` cannot be applied")]
    Sections {
        /// The adapter.
        adapter: String,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: ExecuteError,
    },

    /// The parts that an adapter has replaced cannot be put back, only replaced by those of another.
    #[error(
        "LoRA adapter `{adapter}` has replaced parts of the context binaries, which only another adapter of that kind can"
    )]
    SectionsStay {
        /// The adapter.
        adapter: String,
    },

    /// A file that is not there.
    #[error("{what} `{path}` does not exist")]
    MissingFile {
        /// What it is for.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
    },

    /// A file that cannot be read.
    #[error("cannot read {what} `{path}`")]
    ReadFile {
        /// What it is for.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// A context binary cannot be read into memory.
    #[error("cannot read context binary `{path}`")]
    ReadBinary {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },

    /// The backend refuses a context binary.
    #[error("cannot load context binary `{path}`")]
    LoadBinary {
        /// The file.
        path: PathBuf,
        /// The backend's message.
        source: qnn_api::Error,
    },

    /// The binary's description has a graph that the backend does not know.
    #[error("cannot find graph `{graph}` in its context")]
    FindGraph {
        /// The graph.
        graph: String,
        /// The backend's message.
        source: qnn_api::Error,
    },

    /// Graphs with `fusion_ctrl` are no fused pair.
    #[error(transparent)]
    Pair(#[from] nsp_graph::pd::PairError),

    /// The graphs do not make a model.
    #[error(transparent)]
    Layout(#[from] LayoutError),

    /// The graphs need something that this engine does not do yet.
    #[error("{what} is not yet supported{hint}")]
    Unsupported {
        /// The thing.
        what: String,
        /// What to do instead, after a semicolon, or nothing.
        hint: &'static str,
    },

    /// A number of the rotary positions that no table can be made of.
    #[error("`{}` of the rotary positions: expected {}, found {}", .0.key, .0.expected, .0.found)]
    Rope(RopeProblem),

    /// The graphs take cos and sin, but no rotary positions are configured.
    #[error(
        "the graphs take `{prefix}position_ids_cos` and `{prefix}position_ids_sin` of width {rope_dim}, but no rotary positions are configured{}; add `positional-encoding` with `rope-dim` {rope_dim}{}",
        for_prefix(prefix),
        and_prefix(prefix)
    )]
    RopeMissing {
        /// What the names begin with; empty for the usual table.
        prefix: String,
        /// Width of the graphs' rows.
        rope_dim: usize,
    },

    /// Another rotary width than the graphs'.
    #[error("`{tensor}` of graph `{graph}` is {found} wide, but `rope-dim` is {expected}")]
    RopeDim {
        /// A graph that has it.
        graph: String,
        /// The table's cosines.
        tensor: String,
        /// The configuration's.
        expected: usize,
        /// The graph's.
        found: usize,
    },

    /// The configuration names positions that no graph takes.
    #[error("positional encoding `{kind}` is configured, but no graph takes `{tensor}`")]
    NoPositionInput {
        /// The configured kind.
        kind: PositionKind,
        /// The input that it fills.
        tensor: String,
    },

    /// `position_ids` takes something else than the configuration says.
    #[error(
        "`position_ids` of graph `{graph}` has shape {found:?}, but positional encoding `{kind}` fills {}",
        if *kind == PositionKind::Alibi { "[1, 1, AR, CL]" } else { "[1, AR]" }
    )]
    PositionShape {
        /// A graph that has it.
        graph: String,
        /// The configured kind.
        kind: PositionKind,
        /// Its shape.
        found: Vec<usize>,
    },

    /// The graphs take embeddings, but no table of them is configured.
    #[error("graph `{graph}` takes `inputs_embeds` of width {width}, but no embedding table is configured")]
    EmbeddingMissing {
        /// A graph that takes them.
        graph: String,
        /// Width of its rows.
        width: usize,
    },

    /// Another embedding width than the graphs'.
    #[error("`inputs_embeds` of graph `{graph}` is {found} wide, but the embedding table's `size` is {expected}")]
    EmbeddingWidth {
        /// A graph that takes them.
        graph: String,
        /// The configuration's.
        expected: usize,
        /// The graph's.
        found: usize,
    },

    /// An embedding file of the wrong length.
    #[error(
        "embedding table `{path}` has {found} bytes, expected a multiple of {row_bytes} (rows of {row_bytes} bytes), at least one"
    )]
    EmbeddingFile {
        /// The file.
        path: PathBuf,
        /// Bytes of a row.
        row_bytes: u64,
        /// Bytes of the file.
        found: u64,
    },

    /// A file of scales or offsets of another length than the table's.
    #[error(
        "quantisation parameters `{}` has {found} bytes, expected {} (one for all), {} (one per column) or {} (one per row)",
        path.display(), expected[0], expected[1], expected[2]
    )]
    QuantisationFile {
        /// The file.
        path: PathBuf,
        /// Bytes for one number, for one per column, for one per row.
        expected: [usize; 3],
        /// Bytes of the file.
        found: usize,
    },

    /// A graph that is no text encoder's.
    #[error("graph `{graph}` is no text encoder: expected a tensor `{tensor}`, found {}", quoted(found))]
    NotAnEncoder {
        /// The graph.
        graph: String,
        /// What it lacks.
        tensor: &'static str,
        /// What it has there.
        found: Vec<String>,
    },

    /// A tensor of a text encoder of another shape.
    #[error("`{tensor}` of the text encoder `{graph}` has shape {found:?}, expected {expected:?}")]
    EncoderShape {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
        /// What it should be.
        expected: Vec<usize>,
        /// What it is.
        found: Vec<usize>,
    },

    /// A text with more tokens than the encoder's longest graph.
    #[error("the text has {found} tokens, but the encoder takes at most {most}")]
    TextTooLong {
        /// Its tokens, special ones included.
        found: usize,
        /// The most there may be.
        most: usize,
    },

    /// The file of a weight that the LM head takes as an input has another length than the tensor.
    #[error("weight file `{path}` has {found} bytes, expected {expected} for input `{tensor}`, {dtype} {dims:?}")]
    WeightFile {
        /// The file.
        path: PathBuf,
        /// The input.
        tensor: String,
        /// Its extents.
        dims: Vec<usize>,
        /// Its element type.
        dtype: Dtype,
        /// Bytes of the tensor.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },

    /// An image that cannot be placed.
    #[error("the grid of an image: expected {expected}, found {found}")]
    Grid {
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },

    /// Rows of embeddings that the model cannot take.
    #[error("rows of embeddings: expected {expected}, found {found}")]
    EmbeddingRows {
        /// What they should be.
        expected: String,
        /// What they are.
        found: String,
    },

    /// A file of numbers of another form or size.
    #[error("`{path}`: expected {expected}, found {found}")]
    NumberFile {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },

    /// A binary without a graph that takes pixels.
    #[error("no graph of `{path}` takes `pixel_values` (graphs: {found})")]
    NoImageEncoder {
        /// The binary.
        path: PathBuf,
        /// Its graphs.
        found: String,
    },

    /// An input of an image encoder.
    #[error("input `{tensor}` of image encoder `{graph}`: {what}")]
    ImageInput {
        /// The graph.
        graph: String,
        /// The input.
        tensor: String,
        /// What is wrong with it.
        what: &'static str,
    },

    /// An image encoder with several outputs.
    #[error("image encoder `{graph}`: expected one output, or one of {expected}; found {found}")]
    ImageOutput {
        /// The graph.
        graph: String,
        /// Known names.
        expected: String,
        /// Its outputs.
        found: String,
    },

    /// A window that no graph can show.
    #[error(
        "the long context of cache group `{prefix}` keeps {size} tokens and {sinks} reserved ones; its graphs see at most {most}"
    )]
    WindowTooLong {
        /// The group.
        prefix: String,
        /// Tokens of the window.
        size: usize,
        /// Reserved tokens.
        sinks: usize,
        /// The most that both may be together.
        most: usize,
    },

    /// Reserved tokens leave no row for others.
    #[error("the long context of cache group `{prefix}` reserves {found} tokens, expected at most {most}")]
    TooManyReserved {
        /// The group.
        prefix: String,
        /// Reserved tokens.
        found: usize,
        /// The most there may be.
        most: usize,
    },

    /// A conversion that no bundle should need.
    #[error("cannot fill `{tensor}` of graph `{graph}`: no conversion from {from} to {to}")]
    NoConversion {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
        /// What there is.
        from: String,
        /// What it takes.
        to: Dtype,
    },

    /// No tokens to process.
    #[error("no tokens to process: at least one is needed for logits")]
    NoTokens,

    /// A token that the model does not have.
    #[error("token {token} at place {place} of the input is not in the vocabulary of {vocab_size}")]
    TokenOutOfRange {
        /// The token.
        token: TokenId,
        /// Its place in the tokens given.
        place: usize,
        /// Entries of the vocabulary.
        vocab_size: usize,
    },

    /// The tokens do not fit the context; the state is as before the call. Nothing was executed, except what libGenie runs
    /// before it gives up.
    #[error(transparent)]
    Overflow(#[from] Overflow),

    /// No plan for another reason.
    #[error(transparent)]
    Plan(PlanError),

    /// The cache refuses.
    #[error(transparent)]
    Kv(#[from] KvError),

    /// A graph failed. The dialog's state is as before the call.
    #[error("graph `{graph}` failed")]
    Execute {
        /// The graph.
        graph: String,
        /// The backend's message.
        source: crate::ExecuteError,
    },

    /// The graph ran and answered nonsense. The tokens are not kept.
    #[error(
        "logits of graph `{graph}` contain {what} at token {index}, position {position}; the weights or an activation overflow are to blame"
    )]
    NotFinite {
        /// The graph.
        graph: String,
        /// `NaN` or `+inf`.
        what: &'static str,
        /// Vocabulary entry.
        index: usize,
        /// Position of the input token.
        position: usize,
    },

    /// Tokens were removed or moved, or other sequences are there: the dialog cannot be processed again from its tokens.
    #[error(
        "the dialog cannot be processed again: its {n_known} tokens are not those of positions 0 to {n_past}, or other sequences are in the cache"
    )]
    NotReproducible {
        /// Position of its next token.
        n_past: usize,
        /// Tokens that are known.
        n_known: usize,
    },

    /// A draft that is not one step.
    #[error("a draft of {found} tokens is not one step: the cache and the graphs can take 1 to {expected} here")]
    DraftTooLong {
        /// The most that fit.
        expected: usize,
        /// Tokens of the draft.
        found: usize,
    },

    /// Rows of a step that are no tree.
    #[error(transparent)]
    Tree(#[from] kvmanager::TreeFault),

    /// Rows of a tree that are to be kept, but do not follow each other.
    #[error(
        "rows {rows:?} of the tree were chosen to be kept, expected a row without parent and then child after child"
    )]
    NotAPath {
        /// The rows.
        rows: Vec<usize>,
    },

    /// [`StopFlag`](crate::StopFlag) was set. What was processed before is kept: `n_past` has advanced by `n_processed`, except in
    /// [`make_room`](crate::TokenModel::make_room).
    #[error("stopped after {n_processed} of {n_new} tokens")]
    Stopped {
        /// Tokens that were processed and are kept.
        n_processed: usize,
        /// Tokens that the call was to process.
        n_new: usize,
    },

    /// A saved cache that cannot be written or is not accepted. The live dialog is as before.
    #[error(transparent)]
    Saved(#[from] StoreError),

    /// The state could not be put back after a failure; the engine was reset, `n_past` is 0.
    #[error("the dialog's cache was lost after a failure and has been cleared")]
    StateLost {
        /// The failure.
        source: Box<EngineError>,
    },
}

impl From<PlanError> for EngineError {
    fn from(e: PlanError) -> Self {
        match e {
            PlanError::Overflow(overflow) => Self::Overflow(overflow),
            other => Self::Plan(other),
        }
    }
}

//! What a bundle means: splits in execution order, each with a graph for every variant, and what each tensor carries.
//!
//! Invariants (made by [`crate::analyze()`], relied on by the engine): every split has a graph for every variant; cache
//! geometry, vocabulary, rotary width and dtypes of the inputs are the same in all variants; a wire's producer comes
//! before its consumers; `inputs`/`outputs` roles run parallel to the graph's own tensor lists.

use core::fmt;

use genie_types::{
    Ar, Cl, DataFormat, Dtype, GraphIdx, GraphInfo, KvForm, KvTensor, Quant, SplitIdx, TensorInfo, Variant,
};

/// Part of the model that a graph computes, known by its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphKind {
    /// Ids to embeddings: a token input, no cache, no logits.
    Lut,
    /// Layers with a cache (and perhaps one end of the model, but not both).
    Decoder,
    /// Layers of which only new cache rows come out, neither logits nor hidden states: for steps of a prompt whose
    /// logits are not wanted.
    DecoderPrefill,
    /// Hidden states to logits: neither tokens nor cache.
    LmHead,
    /// The whole model in one graph: tokens in, logits out.
    Default,
    /// An image in, embeddings out; not part of the chain of splits.
    ImageEncoder,
}

impl fmt::Display for GraphKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lut => "LUT",
            Self::Decoder => "DECODER",
            Self::DecoderPrefill => "DECODER_PREFILL",
            Self::LmHead => "LMHEAD",
            Self::Default => "DEFAULT",
            Self::ImageEncoder => "IMAGE_ENCODER",
        })
    }
}

/// Cache tensors that share a prefix, a mask and an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLayout {
    /// Prefix of the tensor names, underscore included.
    pub prefix: String,
    /// Name of the mask input.
    pub mask: String,
    /// Name of the cache index input, which only scatter graphs have.
    pub index: String,
    /// How the past is handed over, the same in every variant that has one.
    pub form: KvForm,
}

/// Cosines and sines of one rotary embedding; a model whose layers rotate differently has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RopeTable {
    /// What its names begin with before `position_ids_cos`; empty for the usual one.
    pub prefix: String,
    /// Width of its rows: angles per position.
    pub dim: usize,
}

/// Number of a cache tensor within its split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvIdx(pub usize);

/// Number of a tensor that goes between splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireIdx(pub usize);

/// One cache tensor of a split as its graphs have it, past and new together.
///
/// *Shapes*: see [`KvTensor`]; `n` is the past's rows on the way in and AR on the way out.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheTensor {
    /// What the cache keeps: layer, head, kind, geometry, group (index into [`ModelLayout::groups`]).
    pub tensor: KvTensor,
    /// Element type in the graphs.
    pub dtype: Dtype,
    /// Encoding, the same in and out.
    pub quant: Quant,
    /// Arrangement in memory, the same in and out.
    pub format: DataFormat,
}

/// What an input tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRole {
    /// Token ids.
    Ids,
    /// Token embeddings from the client.
    Embeds,
    /// Hidden states of another model, one row for each token.
    Features,
    /// Mask of a cache group (index into [`ModelLayout::groups`]).
    Mask(usize),
    /// Cosines of a rotary table (index into [`ModelLayout::rope_tables`]).
    Cos(usize),
    /// Sines of a rotary table.
    Sin(usize),
    /// Absolute positions, one for each row.
    Positions,
    /// How far each column's key is behind each row, for alibi.
    Distances,
    /// First slot to write, of a cache group, or the slot of each row.
    CacheIndex(usize),
    /// Strength of a LoRA adapter (index into [`ModelLayout::alphas`]).
    Alpha(usize),
    /// The past of a cache tensor.
    Past(KvIdx),
    /// An earlier split's output.
    Wire(WireIdx),
    /// A weight (index into [`ModelLayout::weights`]).
    Weight(usize),
}

/// What an output tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRole {
    /// The logits.
    Logits,
    /// New rows of a cache tensor.
    New(KvIdx),
    /// Read by a later split.
    Wire(WireIdx),
    /// Hidden states behind the last layer, for a model that drafts.
    Features,
    /// Not read here.
    Extra,
}

/// One graph and the meaning of its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphLayout {
    /// Index into the list of binaries.
    pub binary: usize,
    /// Index within that binary.
    pub graph: GraphIdx,
    /// The part it computes.
    pub kind: GraphKind,
    /// Rows of a step.
    pub ar: Ar,
    /// Context length; `None` if neither a tensor nor the name says one, and it then serves all.
    pub cl: Option<Cl>,
    /// True if a tensor's shape depends on the context length.
    pub carries_cl: bool,
    /// Roles, parallel to `info.inputs`.
    pub inputs: Vec<InputRole>,
    /// Roles, parallel to `info.outputs`.
    pub outputs: Vec<OutputRole>,
    /// Name and tensors.
    pub info: GraphInfo,
}

impl GraphLayout {
    /// Position and description of the input with that role.
    pub fn input(&self, role: InputRole) -> Option<(usize, &TensorInfo)> {
        self.inputs.iter().position(|r| *r == role).map(|i| (i, &self.info.inputs[i]))
    }

    /// Position and description of the output with that role.
    pub fn output(&self, role: OutputRole) -> Option<(usize, &TensorInfo)> {
        self.outputs.iter().position(|r| *r == role).map(|i| (i, &self.info.outputs[i]))
    }
}

/// One piece of the chain: the same part of the model in every variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Place in the chain.
    pub index: SplitIdx,
    /// The part it computes. Where some graphs are [`GraphKind::DecoderPrefill`], the kind of the others.
    pub kind: GraphKind,
    /// Its graphs, by variant.
    pub graphs: Vec<GraphLayout>,
    /// For each of [`ModelLayout::variants`], the index into `graphs` (a graph without CL serves several). An LM head
    /// may be narrower than the variant: it is then run on the rows whose logits are wanted.
    pub by_variant: Vec<usize>,
    /// Its cache tensors: by group, layer and head, key before value.
    pub kv: Vec<CacheTensor>,
}

impl Split {
    /// The graph that runs for a variant, by its index in [`ModelLayout::variants`].
    pub fn graph(&self, variant: usize) -> &GraphLayout {
        &self.graphs[self.by_variant[variant]]
    }
}

/// A tensor that one split writes and later ones read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Its name on both sides.
    pub name: String,
    /// Who writes it.
    pub producer: SplitIdx,
    /// Who reads it, in order.
    pub consumers: Vec<SplitIdx>,
}

/// A weight that the LM head takes as an input: the same in all graphs that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightInput {
    /// Name, extents, element type, encoding and arrangement.
    pub info: TensorInfo,
    /// Index into the list of binaries of the first one that has such a graph.
    pub binary: usize,
}

/// How tokens enter the model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelInput {
    /// As ids.
    Ids,
    /// As rows of `width` elements.
    Embeds {
        /// Elements of one token's embedding.
        width: usize,
    },
}

/// Something odd that does not stop the model from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The name claims another shape than the tensors have; the tensors are right.
    NameDisagrees {
        /// The graph.
        graph: String,
        /// What the tensors say.
        found: String,
    },
    /// A graph without any tensor of that width stands in for another context length.
    CtxBorrowed {
        /// The graph.
        graph: String,
        /// The variant it serves.
        spec: Variant,
    },
    /// An LM head has no graph as wide as the variant; a narrower one runs on the rows whose logits are wanted.
    NarrowHead {
        /// The graph of the head.
        graph: String,
        /// The variant it serves.
        spec: Variant,
    },
    /// An image encoder was found; text generation leaves it alone.
    ImageEncoder {
        /// The graph.
        graph: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameDisagrees { graph, found } => {
                write!(f, "graph `{graph}` is {found} by its tensors, whatever its name says")
            }
            Self::CtxBorrowed { graph, spec } => {
                write!(f, "graph `{graph}` also serves {spec}, which has none of its own")
            }
            Self::NarrowHead { graph, spec } => {
                write!(f, "graph `{graph}` also computes the logits of {spec}, whose LM head is missing")
            }
            Self::ImageEncoder { graph } => {
                write!(f, "graph `{graph}` is an image encoder: it runs for images only, not for tokens")
            }
        }
    }
}

/// The whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLayout {
    /// Execution order.
    pub splits: Vec<Split>,
    /// Every AR/CL pair that all splits have: by CL, then AR.
    pub variants: Vec<Variant>,
    /// For each of the variants, true if its graphs end in logits; at least one does.
    pub gives_logits: Vec<bool>,
    /// Cache groups; the default one first.
    pub groups: Vec<GroupLayout>,
    /// Tensors between splits.
    pub wires: Vec<Wire>,
    /// Weights that are inputs of graphs, by name.
    pub weights: Vec<WeightInput>,
    /// How tokens enter.
    pub input: ModelInput,
    /// Elements of a row of hidden states that the graphs take from another model; `None` where they take none.
    pub features_in: Option<usize>,
    /// Elements of a row of hidden states that every variant gives; `None` where one does not.
    pub features_out: Option<usize>,
    /// Width of the logits.
    pub vocab_size: usize,
    /// Rows of the batch that every step computes in lockstep, each with a cache of its own; 1 for most models. Cache tensors
    /// have as many times the heads.
    pub batch: usize,
    /// Rotary tables; the one without a prefix first. Empty for models without rotary inputs.
    pub rope_tables: Vec<RopeTable>,
    /// Names of the inputs that hold strengths of LoRA adapters, in order.
    pub alphas: Vec<String>,
    /// True if every cache tensor is in hardware tiles, in and out.
    pub native_kv: bool,
    /// Binaries with an image encoder (indices into the list of binaries), each once.
    pub image_encoders: Vec<usize>,
    /// Oddities, for a log or a doctor.
    pub notes: Vec<Note>,
}

impl ModelLayout {
    /// Index of a variant in [`ModelLayout::variants`].
    pub fn variant_index(&self, spec: Variant) -> Option<usize> {
        self.variants.binary_search(&spec).ok()
    }

    /// The longest compiled context.
    pub fn max_cl(&self) -> usize {
        self.variants.last().map_or(0, |v| v.cl().get())
    }

    /// Layers with a cache.
    pub fn n_layers(&self) -> usize {
        let mut layers: Vec<_> = self.splits.iter().flat_map(|s| s.kv.iter().map(|t| t.tensor.layer)).collect();
        layers.sort_unstable();
        layers.dedup();
        layers.len()
    }
}

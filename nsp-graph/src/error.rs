//! Every way to break the contract, one variant each: which graph, which tensor, what was expected, what was found.

use core::fmt;

use genie_types::Variant;

use crate::layout::GraphKind;

/// Which graph of which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphAt {
    /// Name of the graph.
    pub graph: Box<str>,
    /// Where it came from, usually a file name.
    pub source: Box<str>,
}

impl fmt::Display for GraphAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph `{}` of `{}`", self.graph, self.source)
    }
}

/// Names that look like the missing one; shown only if there are any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Near(pub Box<[Box<str>]>);

impl Near {
    /// At most three of `candidates`, nearest first, none further than a third of the wanted name's length.
    pub(crate) fn to<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        let limit = (wanted.len() / 3).max(2);
        let distance = |c: &str| match c.contains(wanted) || wanted.contains(c) {
            true => 1,
            false => strsim::levenshtein(wanted, c),
        };
        let named = candidates.into_iter().filter(|c| !c.is_empty());
        let mut ranked: Vec<_> = named.map(|c| (distance(c), c)).filter(|(d, _)| *d <= limit).collect();
        ranked.sort_unstable();
        ranked.dedup();
        Self(ranked.into_iter().take(3).map(|(_, c)| c.into()).collect())
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().enumerate() {
            write!(f, "{}`{name}`", if i == 0 { " (near names: " } else { ", " })?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// Why a list of graphs is not a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // fields say what the message says
pub enum LayoutError {
    /// Nothing to run.
    #[error("the bundle holds no graph to run (binaries: {sources})")]
    NoGraphs { sources: Box<str> },

    /// Nothing but a fused pair, which another engine runs.
    #[error("all {n_graphs} graphs of the bundle carry a prompt and a decode row side by side: there is no plain one")]
    OnlyFused { n_graphs: usize },
    /// A graph that is called a fused one, whose tensors have other names.
    #[error(
        "{at} is named as a fused graph, but has no input `fusion_ctrl` (its first is `{tensor}`): tensors are bound by name, not by their order"
    )]
    FusedUnnamed { at: GraphAt, tensor: Box<str> },

    /// A graph was selected by name and is not there.
    #[error("selected graph `{name}` is in no binary of the bundle{near}")]
    SelectedGraphMissing { name: Box<str>, near: Near },

    /// Two inputs or two outputs of one graph have the same name.
    #[error("{at} lists tensor `{tensor}` twice")]
    TensorTwice { at: GraphAt, tensor: Box<str> },

    /// No signature fits.
    #[error("cannot tell what {at} is for: no token input, no cache tensor, no logits, no image (inputs: {inputs})")]
    UnknownKind { at: GraphAt, inputs: Box<str> },

    /// A tensor has another shape than the graph's AR, CL and the contract ask for.
    #[error("{at}: tensor `{tensor}` has shape {found:?}, expected {expected}")]
    Shape { at: GraphAt, tensor: Box<str>, expected: Box<str>, found: Box<[usize]> },

    /// A tensor has an element type that cannot carry its role.
    #[error("{at}: tensor `{tensor}` is {found}, expected {expected}")]
    Dtype { at: GraphAt, tensor: Box<str>, expected: &'static str, found: genie_types::Dtype },

    /// Fixed point without a scale and offset for the whole tensor.
    #[error("{at}: tensor `{tensor}` is {found} but has no per-tensor scale and offset")]
    Encoding { at: GraphAt, tensor: Box<str>, found: genie_types::Dtype },

    /// No tensor and no name gives the number of tokens per step.
    #[error(
        "{at}: the AR (tokens per step) is neither in a tensor's shape nor in the name; expected a name like `ar1_cl512_1_of_1`"
    )]
    NoAr { at: GraphAt },

    /// No tensor and no name says how long the context is.
    #[error(
        "{at}: the CL (context length) is neither in a mask's shape nor in the name; expected a name like `ar1_cl512_1_of_1`"
    )]
    NoCl { at: GraphAt },

    /// AR > CL.
    #[error("{at}: AR-{ar} is wider than its context CL-{cl}")]
    ArExceedsCl { at: GraphAt, ar: usize, cl: usize },

    /// An input that must be there is not.
    #[error("{at} has no input `{tensor}`, {why}{near}")]
    InputMissing { at: GraphAt, tensor: Box<str>, why: &'static str, near: Near },

    /// The mask of a cache group is not there.
    #[error("{at}: cache group `{prefix}` has no attention mask `{mask}`{near}")]
    GroupMaskMissing { at: GraphAt, prefix: Box<str>, mask: Box<str>, near: Near },

    /// A scatter graph without an index.
    #[error("{at}: cache group `{prefix}` has a past of CL rows (scatter form) but no index input `{index}`{near}")]
    CacheIndexMissing { at: GraphAt, prefix: Box<str>, index: Box<str>, near: Near },

    /// A prefix that no configured group has.
    #[error("{at}: tensor `{tensor}` has cache prefix `{prefix}`, but the configured groups are {groups}")]
    UnknownGroup { at: GraphAt, tensor: Box<str>, prefix: Box<str>, groups: Box<str> },

    /// Two groups with the same prefix were configured.
    #[error("cache group `{prefix}` is configured twice")]
    GroupTwice { prefix: Box<str> },

    /// Cache rows go in but no new ones come out, or the other way round, or a key has no value.
    #[error("{at} has cache tensor `{tensor}` but not its partner `{partner}`{near}")]
    KvUnpaired { at: GraphAt, tensor: Box<str>, partner: Box<str>, near: Near },

    /// The past is neither CL nor CL - AR rows long.
    #[error(
        "{at}: tensor `{tensor}` has {found} past rows, expected {concat} (CL - AR, concat form) or {scatter} (CL, scatter form)"
    )]
    PastLength { at: GraphAt, tensor: Box<str>, concat: usize, scatter: usize, found: usize },

    /// Some graphs of a group concatenate, others scatter.
    #[error("{at}: tensor `{tensor}` is in {found} form, while cache group `{prefix}` is in {expected} form elsewhere")]
    MixedForms { at: GraphAt, tensor: Box<str>, prefix: Box<str>, expected: Box<str>, found: Box<str> },

    /// Graphs of one model compute batches of different sizes.
    #[error("{at} has a batch of {found}, but `{other}` one of {expected}")]
    BatchDiffers { at: GraphAt, expected: usize, found: usize, other: Box<str> },

    /// Past and new rows are encoded differently, so that copying would change the numbers.
    #[error(
        "{at}: `{input}` is {expected} but `{output}` is {found}; rows are copied from one to the other, so both must be the same"
    )]
    KvEncodingDiffers { at: GraphAt, input: Box<str>, output: Box<str>, expected: Box<str>, found: Box<str> },

    /// A cache tensor changes between variants.
    #[error("{at}: cache tensor `{tensor}` is {found}, but {expected} in `{other}`")]
    KvGeometryDiffers { at: GraphAt, tensor: Box<str>, expected: Box<str>, found: Box<str>, other: Box<str> },

    /// A cache tensor is missing in one variant of its split.
    #[error("{at} lacks cache tensor `{tensor}`, which `{other}` of the same split has")]
    KvMissing { at: GraphAt, tensor: Box<str>, other: Box<str> },

    /// Two splits hold the same cache tensor.
    #[error("cache tensor `{tensor}` is in {at} and also in `{other}` of another split")]
    KvInTwoSplits { at: GraphAt, tensor: Box<str>, other: Box<str> },

    /// A graph with tokens and logits but neither cache nor full context.
    #[error("{at} has no cache tensors, so it must see its whole context at once (AR == CL), but is AR-{ar} CL-{cl}")]
    NoCache { at: GraphAt, ar: usize, cl: usize },

    /// Graph names disagree on the number of splits.
    #[error("{at} says it is one of {found} splits, but `{other}` says {expected}")]
    SplitTotalDiffers { at: GraphAt, found: usize, expected: usize, other: Box<str> },

    /// A number is missing in the chain.
    #[error("split {missing} of {total} is missing; the graphs found are {found}")]
    SplitMissing { missing: usize, total: usize, found: Box<str> },

    /// Some names say which split they are, others do not.
    #[error("{at} has no `_i_of_k` in its name, while `{other}` has; splits are ordered by it")]
    SplitUnnumbered { at: GraphAt, other: Box<str> },

    /// One split, two kinds of graph.
    #[error("{at} is {found}, but `{other}` of the same split is {expected}")]
    KindDiffers { at: GraphAt, found: GraphKind, expected: GraphKind, other: Box<str> },

    /// The same shape twice in a split.
    #[error("{at} has the same AR and CL ({spec}) as `{other}` of the same split")]
    VariantTwice { at: GraphAt, spec: Box<str>, other: Box<str> },

    /// A split lacks a shape that others have.
    #[error("split {split} has no graph for {spec}; it has {found}, and `{other}` needs it")]
    VariantMissing { split: usize, spec: Variant, found: Box<str>, other: Box<str> },

    /// The first split has no token input.
    #[error("{at} is the first split but has neither `input_ids` nor `inputs_embeds`{near}")]
    NoTokenInput { at: GraphAt, near: Near },

    /// The last split has no logits.
    #[error("{at} is the last split but has no output `logits`{near}")]
    NoLogits { at: GraphAt, near: Near },

    /// Logits come before the end of the chain.
    #[error("{at} has output `logits` but is split {split} of {total}; only the last one may")]
    LogitsTooEarly { at: GraphAt, split: usize, total: usize },

    /// An input that no part of the engine fills.
    #[error(
        "{at}: nothing fills input `{tensor}`: it is neither a name of the contract nor an output of an earlier split{near}"
    )]
    InputUnknown { at: GraphAt, tensor: Box<str>, near: Near },

    /// An input whose producer runs later.
    #[error("{at}: input `{tensor}` is an output of `{producer}`, which runs later; splits are ordered by graph name")]
    WireBackwards { at: GraphAt, tensor: Box<str>, producer: Box<str> },

    /// Producer and consumer disagree on a tensor.
    #[error("{at}: input `{tensor}` is {found}, but `{producer}` writes {expected}")]
    WireDiffers { at: GraphAt, tensor: Box<str>, expected: Box<str>, found: Box<str>, producer: Box<str> },

    /// An input, the logits or the rotary width change between graphs.
    #[error("{at}: tensor `{tensor}` is {found}, but {expected} in `{other}`")]
    TensorDiffers { at: GraphAt, tensor: Box<str>, expected: Box<str>, found: Box<str>, other: Box<str> },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_first_and_nothing_far() {
        let found = Near::to("logits", ["hidden", "logit", "output_logits", "lgits"]);
        assert_eq!(found.to_string(), " (near names: `lgits`, `logit`, `output_logits`)");
        assert_eq!(Near::to("logits", ["past_key_0_out"]).to_string(), "");
    }
}

//! One graph by itself: what each tensor carries, what the graph is for, its AR and CL.
//!
//! Shapes win over names; the name is read only for what no shape says.

use genie_types::{Ar, Cl, GraphIdx, GraphInfo, TensorInfo};

use crate::check;
use crate::error::{GraphAt, LayoutError};
use crate::layout::{GraphKind, Note};
use crate::names::{self, GraphName, KvName};

/// Names that belong to one cache group.
#[derive(Clone, Debug)]
pub(crate) struct GroupNames {
    pub(crate) prefix: String,
    pub(crate) mask: String,
    pub(crate) index: String,
}

/// What an input is, before splits are wired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum InTag<'a> {
    Ids,
    Embeds,
    Features,
    Mask(usize),
    Cos(usize),
    Sin(usize),
    Positions,
    Distances,
    Index(usize),
    Kv(usize, KvName<'a>),
    Pixels,
    Alpha(usize),
    Free,
}

/// What an output is, before splits are wired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OutTag<'a> {
    Logits,
    Kv(usize, KvName<'a>),
    Free,
}

/// A graph that has been read alone.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) binary: usize,
    pub(crate) graph: GraphIdx,
    pub(crate) source: &'a str,
    pub(crate) info: &'a GraphInfo,
    pub(crate) inputs: Vec<InTag<'a>>,
    pub(crate) outputs: Vec<OutTag<'a>>,
    pub(crate) name: GraphName,
    pub(crate) kind: GraphKind,
    pub(crate) ar: Ar,
    pub(crate) cl: Option<Cl>,
    /// Rows of the batch: 1 where no tensor has such a dimension.
    pub(crate) batch: usize,
    pub(crate) carries_cl: bool,
    pub(crate) note: Option<Note>,
}

impl<'a> Draft<'a> {
    pub(crate) fn at(&self) -> GraphAt {
        GraphAt { graph: self.info.name.as_str().into(), source: self.source.into() }
    }

    pub(crate) fn tagged_inputs(&self) -> impl Iterator<Item = (InTag<'a>, &'a TensorInfo)> + use<'a, '_> {
        self.inputs.iter().copied().zip(&self.info.inputs)
    }

    pub(crate) fn tagged_outputs(&self) -> impl Iterator<Item = (OutTag<'a>, &'a TensorInfo)> + use<'a, '_> {
        self.outputs.iter().copied().zip(&self.info.outputs)
    }

    pub(crate) fn shape_error(&self, tensor: &TensorInfo, expected: impl Into<Box<str>>) -> LayoutError {
        LayoutError::Shape {
            at: self.at(),
            tensor: tensor.name.as_str().into(),
            expected: expected.into(),
            found: tensor.dims.as_slice().into(),
        }
    }
}

/// What the whole bundle says about the names of one graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'n> {
    pub(crate) groups: &'n [GroupNames],
    /// Prefixes of the rotary tables.
    pub(crate) ropes: &'n [String],
    /// Inputs with strengths of adapters.
    pub(crate) alphas: &'n [String],
    /// Some graph of the bundle outputs `inputs_embeds`, so it is not a token input.
    pub(crate) embeds_are_made: bool,
    /// The same of `target_hidden_states`, which is then a tensor between splits.
    pub(crate) features_are_made: bool,
}

/// Reads one graph.
pub(crate) fn read<'a>(
    (binary, graph, source): (usize, GraphIdx, &'a str),
    info: &'a GraphInfo,
    known: &Names<'_>,
) -> Result<Draft<'a>, LayoutError> {
    let Names { groups, ropes, alphas, embeds_are_made, features_are_made } = *known;
    let at = GraphAt { graph: info.name.as_str().into(), source: source.into() };
    for list in [&info.inputs, &info.outputs] {
        if let Some(t) = list.iter().enumerate().find_map(|(i, t)| list[..i].iter().find(|o| o.name == t.name)) {
            return Err(LayoutError::TensorTwice { at, tensor: t.name.as_str().into() });
        }
    }
    let group_of = |k: &KvName<'_>| groups.iter().position(|g| g.prefix == k.prefix);
    let inputs: Vec<InTag<'a>> = info
        .inputs
        .iter()
        .map(|t| match t.name.as_str() {
            names::INPUT_IDS => InTag::Ids,
            names::INPUTS_EMBEDS if !embeds_are_made => InTag::Embeds,
            names::TARGET_HIDDEN_STATES if !features_are_made => InTag::Features,
            names::POSITION_IDS => InTag::Positions,
            names::PIXEL_VALUES => InTag::Pixels,
            name => match KvName::parse(name).filter(|k| k.is_input) {
                Some(k) => group_of(&k).map_or(InTag::Free, |g| InTag::Kv(g, k)),
                None => groups
                    .iter()
                    .enumerate()
                    .find_map(|(g, group)| {
                        if group.mask == name {
                            Some(InTag::Mask(g))
                        } else {
                            (group.index == name).then_some(InTag::Index(g))
                        }
                    })
                    .or_else(|| rope_tag(name, ropes))
                    .or_else(|| alphas.iter().position(|alpha| alpha == name).map(InTag::Alpha))
                    .unwrap_or(InTag::Free),
            },
        })
        .collect();
    let outputs: Vec<OutTag<'a>> = info
        .outputs
        .iter()
        .map(|t| match t.name.as_str() {
            names::LOGITS => OutTag::Logits,
            name => KvName::parse(name)
                .filter(|k| !k.is_input)
                .and_then(|k| group_of(&k).map(|g| OutTag::Kv(g, k)))
                .unwrap_or(OutTag::Free),
        })
        .collect();

    let mut draft = Draft {
        binary,
        graph,
        source,
        info,
        inputs,
        outputs,
        name: GraphName::parse(&info.name),
        kind: GraphKind::Default,
        ar: Ar::new(1).expect("1 is not 0"),
        cl: None,
        batch: 1,
        carries_cl: false,
        note: None,
    };
    draft.kind = kind(&draft)?;
    if draft.kind == GraphKind::ImageEncoder {
        draft.note = Some(Note::ImageEncoder { graph: info.name.clone() });
        return Ok(draft);
    }
    draft.ar = ar(&draft)?;
    draft.cl = cl(&draft, groups)?;
    draft.batch = batch(&draft);
    for (tag, t) in draft.inputs.iter_mut().zip(&info.inputs) {
        // One position a row, or one distance a row and column.
        if *tag == InTag::Positions && t.dims.len() > 2 && t.n_elems() != draft.ar.get() {
            *tag = InTag::Distances;
        }
    }
    draft.carries_cl = draft.inputs.iter().any(|t| matches!(t, InTag::Mask(_) | InTag::Kv(..) | InTag::Distances));
    if let Some(cl) = draft.cl
        && draft.ar.get() > cl.get()
    {
        return Err(LayoutError::ArExceedsCl { at, ar: draft.ar.get(), cl: cl.get() });
    }
    check::partners(&draft, known)?;
    check::tensors(&draft, groups)?;
    draft.note = disagreement(&draft);
    Ok(draft)
}

fn rope_tag(name: &str, ropes: &[String]) -> Option<InTag<'static>> {
    let (prefix, sin) = names::rope_prefix(name)?;
    let table = ropes.iter().position(|known| known == prefix)?;
    Some(if sin { InTag::Sin(table) } else { InTag::Cos(table) })
}

/// The part of the model, by signature.
fn kind(draft: &Draft<'_>) -> Result<GraphKind, LayoutError> {
    let has = |want: fn(&InTag<'_>) -> bool| draft.inputs.iter().any(want);
    let tokens = has(|t| matches!(t, InTag::Ids | InTag::Embeds));
    let past = has(|t| matches!(t, InTag::Kv(..)));
    let new = draft.outputs.iter().any(|t| matches!(t, OutTag::Kv(..)));
    let logits = draft.outputs.contains(&OutTag::Logits);
    let rows_only = new && draft.outputs.iter().all(|t| matches!(t, OutTag::Kv(..)));
    Ok(match (tokens, past || new, logits) {
        (true, _, true) => GraphKind::Default,
        (_, _, false) if rows_only => GraphKind::DecoderPrefill,
        (_, true, _) => GraphKind::Decoder,
        (false, false, true) => GraphKind::LmHead,
        (true, false, false) => GraphKind::Lut,
        (false, false, false) if has(|t| *t == InTag::Pixels) => GraphKind::ImageEncoder,
        (false, false, false) => {
            let inputs: Vec<_> = draft.info.inputs.iter().map(|t| format!("`{}`", t.name)).collect();
            return Err(LayoutError::UnknownKind { at: draft.at(), inputs: inputs.join(", ").into() });
        }
    })
}

/// The extent `back` places from the end.
fn from_end(draft: &Draft<'_>, t: &TensorInfo, back: usize, expected: &str) -> Result<usize, LayoutError> {
    let found = t.dims.len().checked_sub(back).map(|i| t.dims[i]);
    found.filter(|&n| n > 0 && u32::try_from(n).is_ok()).ok_or_else(|| draft.shape_error(t, expected))
}

/// The outermost extent of the first tensor that has one row for each token and room for a batch before it.
fn batch(draft: &Draft<'_>) -> usize {
    let inputs = draft.tagged_inputs().filter_map(|(tag, t)| {
        let rank = match tag {
            InTag::Ids | InTag::Positions => 2,
            InTag::Embeds => 3,
            InTag::Mask(_) | InTag::Cos(_) | InTag::Sin(_) => 4,
            _ => return None,
        };
        (t.dims.len() == rank).then(|| t.dims[0])
    });
    let logits = draft.tagged_outputs().filter(|(tag, t)| *tag == OutTag::Logits && t.dims.len() == 3);
    inputs.chain(logits.map(|(_, t)| t.dims[0])).find(|&n| n > 0).unwrap_or(1)
}

fn ar(draft: &Draft<'_>) -> Result<Ar, LayoutError> {
    let by_input = |want: fn(&InTag<'_>) -> bool| draft.tagged_inputs().find(|(tag, _)| want(tag)).map(|(_, t)| t);
    let rows = |t: &InTag<'_>| matches!(t, InTag::Embeds | InTag::Mask(_) | InTag::Cos(_) | InTag::Sin(_));
    let found = if let Some(t) = by_input(|t| *t == InTag::Ids) {
        Some(from_end(draft, t, 1, "[1, AR]")?)
    } else if let Some(t) = by_input(rows) {
        Some(from_end(draft, t, 2, "[1, AR, width]")?)
    } else if let Some(t) = by_input(|t| *t == InTag::Positions) {
        Some(from_end(draft, t, 1, "[1, AR]")?)
    } else if let Some((_, t)) = draft.tagged_outputs().find(|(tag, _)| *tag == OutTag::Logits) {
        Some(from_end(draft, t, 2, "[1, AR, vocab]")?)
    } else {
        draft.name.ar.map(|n| n as usize)
    };
    let ar = found.and_then(|n| u32::try_from(n).ok()).and_then(Ar::new);
    ar.ok_or_else(|| LayoutError::NoAr { at: draft.at() })
}

/// The default group's mask, else the name, else another group's mask; a graph of no context at all sees its own step.
fn cl(draft: &Draft<'_>, groups: &[GroupNames]) -> Result<Option<Cl>, LayoutError> {
    let default = groups.iter().position(|g| g.prefix == names::DEFAULT_GROUP).unwrap_or(0);
    let masks: Vec<(usize, &TensorInfo)> = draft
        .tagged_inputs()
        .filter_map(|(tag, t)| if let InTag::Mask(g) = tag { Some((g, t)) } else { None })
        .collect();
    let width = |t: &TensorInfo| from_end(draft, t, 1, "[1, AR, CL]").map(|n| u32::try_from(n).ok().and_then(Cl::new));
    if let Some((_, t)) = masks.iter().find(|(g, _)| *g == default) {
        return width(t);
    }
    if let Some(n) = draft.name.cl {
        return Ok(Cl::new(n));
    }
    if let Some((_, t)) = masks.first() {
        return width(t);
    }
    let alone = draft.kind == GraphKind::Default && !draft.outputs.iter().any(|t| matches!(t, OutTag::Kv(..)));
    Ok(alone.then_some(draft.ar).and_then(|ar| u32::try_from(ar.get()).ok()).and_then(Cl::new))
}

fn disagreement(draft: &Draft<'_>) -> Option<Note> {
    let ar = draft.name.ar.is_some_and(|n| n as usize != draft.ar.get());
    let cl = draft.name.cl.is_some_and(|n| draft.cl.is_some_and(|cl| cl.get() != n as usize));
    let cl_text = draft.cl.map_or(String::new(), |cl| format!(" CL-{cl}"));
    (ar || cl)
        .then(|| Note::NameDisagrees { graph: draft.info.name.clone(), found: format!("AR-{}{cl_text}", draft.ar) })
}

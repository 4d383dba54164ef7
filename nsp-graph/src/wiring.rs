//! Tensors that go from one split to a later one, matched by name, and the final roles of all tensors.

use genie_types::{SplitIdx, TensorInfo};

use crate::error::{LayoutError, Near};
use crate::kv::SplitKv;
use crate::layout::{GraphKind, InputRole, OutputRole, WeightInput, Wire, WireIdx};
use crate::signature::{Draft, InTag, OutTag};
use crate::{names, weights};

/// Finds every tensor that a later split reads from an earlier one.
pub(crate) fn find(splits: &[Vec<Draft<'_>>]) -> Result<Vec<Wire>, LayoutError> {
    let mut wires: Vec<Wire> = Vec::new();
    for (s, split) in splits.iter().enumerate() {
        for draft in split {
            for (tag, t) in draft.tagged_inputs().filter(|(tag, _)| *tag == InTag::Free) {
                if weights::is_weight(draft, tag, &t.name, splits) {
                    continue;
                }
                let makes = |split: &[Draft<'_>]| split.iter().any(|d| free_output(d, &t.name).is_some());
                let Some(producer) = splits[..s].iter().rposition(|p| makes(p)) else {
                    return Err(unfilled(draft, t, splits, s));
                };
                let wire = match wires.iter_mut().find(|w| w.name == t.name && w.producer.0 == producer) {
                    Some(wire) => wire,
                    None => {
                        wires.push(Wire { name: t.name.clone(), producer: SplitIdx(producer), consumers: Vec::new() });
                        wires.last_mut().expect("just pushed")
                    }
                };
                if wire.consumers.last() != Some(&SplitIdx(s)) {
                    wire.consumers.push(SplitIdx(s));
                }
            }
        }
    }
    Ok(wires)
}

pub(crate) fn free_output<'a>(draft: &Draft<'a>, name: &str) -> Option<&'a TensorInfo> {
    draft.tagged_outputs().find(|(tag, t)| *tag == OutTag::Free && t.name == name).map(|(_, t)| t)
}

fn unfilled(draft: &Draft<'_>, t: &TensorInfo, splits: &[Vec<Draft<'_>>], s: usize) -> LayoutError {
    let at = draft.at();
    let tensor = t.name.as_str().into();
    let later = splits[s + 1..].iter().flatten().find(|d| free_output(d, &t.name).is_some());
    if let Some(producer) = later {
        return LayoutError::WireBackwards { at, tensor, producer: producer.info.name.as_str().into() };
    }
    let contract = [
        names::INPUT_IDS,
        names::INPUTS_EMBEDS,
        names::ATTENTION_MASK,
        names::POSITION_COS,
        names::POSITION_SIN,
        names::POSITION_IDS,
        names::CACHE_INDEX,
    ];
    let made = splits[..s].iter().flatten().flat_map(|d| d.tagged_outputs()).filter(|(tag, _)| *tag == OutTag::Free);
    let known: Vec<&str> = made.map(|(_, t)| t.name.as_str()).chain(contract).collect();
    LayoutError::InputUnknown { at, tensor, near: Near::to(&t.name, known) }
}

/// The wires fit in every variant: same type, same encoding, same extents except 1s.
pub(crate) fn check(wires: &[Wire], splits: &[Vec<Draft<'_>>], by_variant: &[Vec<usize>]) -> Result<(), LayoutError> {
    for wire in wires {
        for consumer in &wire.consumers {
            for (variant, &g) in by_variant[consumer.0].iter().enumerate() {
                let reader = &splits[consumer.0][g];
                let writer = &splits[wire.producer.0][by_variant[wire.producer.0][variant]];
                let Some(input) = reader.info.input(&wire.name) else { continue };
                let Some(output) = free_output(writer, &wire.name) else {
                    // Such a step ends in cache rows; its head does not run.
                    if (reader.kind, writer.kind) == (GraphKind::LmHead, GraphKind::DecoderPrefill) {
                        continue;
                    }
                    let outputs = writer.tagged_outputs().filter(|(tag, _)| *tag == OutTag::Free);
                    let near = Near::to(&wire.name, outputs.map(|(_, t)| t.name.as_str()));
                    return Err(LayoutError::InputUnknown { at: reader.at(), tensor: wire.name.as_str().into(), near });
                };
                let same = (input.dtype, &input.quant, input.format) == (output.dtype, &output.quant, output.format)
                    && same_extents(input, reader, output, writer);
                if !same {
                    return Err(LayoutError::WireDiffers {
                        at: reader.at(),
                        tensor: wire.name.as_str().into(),
                        expected: words(output).into(),
                        found: words(input).into(),
                        producer: writer.info.name.as_str().into(),
                    });
                }
            }
        }
    }
    Ok(())
}

/// The same extents, or of a head narrower than its step the same row.
fn same_extents(input: &TensorInfo, reader: &Draft<'_>, output: &TensorInfo, writer: &Draft<'_>) -> bool {
    if reader.kind != GraphKind::LmHead || reader.ar >= writer.ar {
        return extents(input).eq(extents(output));
    }
    match (row(input, reader.ar.get()), row(output, writer.ar.get())) {
        (Some(a), Some(b)) => a.iter().filter(|&&n| n != 1).eq(b.iter().filter(|&&n| n != 1)),
        _ => false,
    }
}

/// The extents of one row of a tensor of `ar` rows; `None` if rows are not its outermost extent.
fn row(t: &TensorInfo, ar: usize) -> Option<&[usize]> {
    let lead = t.dims.iter().take_while(|&&n| n == 1).count();
    let dims = &t.dims[lead..];
    if ar == 1 { Some(dims) } else { dims.split_first().filter(|(rows, _)| **rows == ar).map(|(_, row)| row) }
}

/// Extents except 1s, which do not change the bytes.
fn extents(t: &TensorInfo) -> impl Iterator<Item = usize> + '_ {
    t.dims.iter().copied().filter(|&n| n != 1)
}

pub(crate) fn words(t: &TensorInfo) -> String {
    match t.quant.per_tensor() {
        Some((scale, offset)) => format!("{} {:?} with scale {scale} and offset {offset}", t.dtype, t.dims),
        None => format!("{} {:?}", t.dtype, t.dims),
    }
}

/// Final roles of a graph's inputs and outputs.
pub(crate) fn roles(
    s: usize,
    draft: &Draft<'_>,
    kv: &SplitKv,
    wires: &[Wire],
    weights: &[WeightInput],
) -> (Vec<InputRole>, Vec<OutputRole>) {
    let wired =
        |name: &str, mine: &dyn Fn(&Wire) -> bool| wires.iter().position(|w| w.name == name && mine(w)).map(WireIdx);
    let input = |(tag, t): (InTag<'_>, &TensorInfo)| match tag {
        InTag::Ids => InputRole::Ids,
        InTag::Embeds => InputRole::Embeds,
        InTag::Features => InputRole::Features,
        InTag::Mask(g) => InputRole::Mask(g),
        InTag::Cos(table) => InputRole::Cos(table),
        InTag::Sin(table) => InputRole::Sin(table),
        InTag::Positions => InputRole::Positions,
        InTag::Distances => InputRole::Distances,
        InTag::Index(g) => InputRole::CacheIndex(g),
        InTag::Alpha(alpha) => InputRole::Alpha(alpha),
        InTag::Kv(g, name) => InputRole::Past(kv.index(g, &name).expect("kv::read saw every cache tensor")),
        InTag::Pixels | InTag::Free => {
            let reads = |w: &Wire| w.consumers.contains(&SplitIdx(s));
            let weight = || weights.iter().position(|weight| weight.info.name == t.name).map(InputRole::Weight);
            let role = wired(&t.name, &reads).map(InputRole::Wire).or_else(weight);
            role.expect("wiring::find saw every free input, and weights::find the weights")
        }
    };
    let output = |(tag, t): (OutTag<'_>, &TensorInfo)| match tag {
        OutTag::Logits => OutputRole::Logits,
        OutTag::Kv(g, name) => OutputRole::New(kv.index(g, &name).expect("kv::read saw every cache tensor")),
        OutTag::Free => match wired(&t.name, &|w| w.producer == SplitIdx(s)) {
            Some(wire) => OutputRole::Wire(wire),
            None if t.name == names::LAST_HIDDEN_STATES => OutputRole::Features,
            None => OutputRole::Extra,
        },
    };
    (draft.tagged_inputs().map(input).collect(), draft.tagged_outputs().map(output).collect())
}

//! One graph by itself, held against the contract: partners that must be there, shapes, element types, encodings.
//!
//! Cache tensors are checked in `kv`, tensors between splits in `wiring`.

use genie_types::{Cl, Dtype, TensorInfo};

use crate::error::{LayoutError, Near};
use crate::layout::GraphKind;
use crate::names;
use crate::signature::{Draft, GroupNames, InTag, Names, OutTag};

/// Every cache group has its mask, cos has sin and sin has cos.
pub(crate) fn partners(draft: &Draft<'_>, Names { groups, ropes, .. }: &Names<'_>) -> Result<(), LayoutError> {
    let input_names = || draft.info.inputs.iter().map(|t| t.name.as_str());
    let used = draft.tagged_inputs().filter_map(|(tag, _)| if let InTag::Kv(g, _) = tag { Some(g) } else { None });
    let made = draft.tagged_outputs().filter_map(|(tag, _)| if let OutTag::Kv(g, _) = tag { Some(g) } else { None });
    // New rows alone attend to nothing.
    let made = made.filter(|_| draft.kind != GraphKind::DecoderPrefill);
    for g in used.chain(made) {
        if !draft.inputs.contains(&InTag::Mask(g)) {
            let group = &groups[g];
            return Err(LayoutError::GroupMaskMissing {
                at: draft.at(),
                prefix: group.prefix.as_str().into(),
                mask: group.mask.as_str().into(),
                near: Near::to(&group.mask, input_names()),
            });
        }
    }
    for (table, prefix) in ropes.iter().enumerate() {
        let (cos, sin) = (draft.inputs.contains(&InTag::Cos(table)), draft.inputs.contains(&InTag::Sin(table)));
        if cos != sin {
            let tensor = format!("{prefix}{}", if cos { names::POSITION_SIN } else { names::POSITION_COS });
            let near = Near::to(&tensor, input_names().filter(|n| names::rope_prefix(n).is_none()));
            let why = "but has its partner";
            return Err(LayoutError::InputMissing { at: draft.at(), tensor: tensor.into(), why, near });
        }
    }
    Ok(())
}

/// Shapes and element types of everything but cache tensors and wires.
pub(crate) fn tensors(draft: &Draft<'_>, groups: &[GroupNames]) -> Result<(), LayoutError> {
    let ar = draft.ar.get();
    for (tag, t) in draft.tagged_inputs() {
        match tag {
            InTag::Ids | InTag::Positions => {
                shape(draft, t, &[Some(ar)], "AR")?;
                dtype(draft, t, &[Dtype::I32, Dtype::U32], "int32")?;
            }
            InTag::Distances => {
                shape(draft, t, &[Some(ar), draft.cl.map(Cl::get)], "AR, CL")?;
                dtype(draft, t, &[Dtype::I32, Dtype::U32], "int32")?;
            }
            InTag::Embeds | InTag::Features => {
                shape(draft, t, &[Some(ar), None], "AR, width")?;
                dtype(draft, t, FLOAT_OR_FIXED, "float16, float32, ufixed8, ufixed16, sfixed8 or sfixed16")?;
            }
            InTag::Mask(g) => {
                let default = groups[g].prefix == names::DEFAULT_GROUP;
                let cl = draft.cl.filter(|_| default).map(Cl::get);
                shape(draft, t, &[Some(ar), cl], "AR, CL")?;
                dtype(draft, t, MASK, "float16, float32, ufixed8, ufixed16, uint8 or uint16")?;
            }
            InTag::Cos(_) | InTag::Sin(_) => {
                shape(draft, t, &[Some(ar), None], "AR, rope_dim")?;
                dtype(
                    draft,
                    t,
                    &[Dtype::F16, Dtype::F32, Dtype::UFixed8, Dtype::UFixed16],
                    "float16, float32, ufixed8 or ufixed16",
                )?;
            }
            InTag::Alpha(_) => {
                if t.n_elems() == 0 {
                    return Err(draft.shape_error(t, "[1], or more numbers that are all set to the same"));
                }
                dtype(draft, t, FLOAT_OR_FIXED, "float16, float32, ufixed8, ufixed16, sfixed8 or sfixed16")?;
            }
            InTag::Index(_) => {
                // A number, or one for each row; the same for all of a batch.
                let (n, words) = if t.dims.last() == Some(&1) { (1, "") } else { (ar, "AR, or 1") };
                if t.n_elems() != n || t.dims.last() != Some(&n) {
                    shape(&Draft { batch: 1, ..draft.clone() }, t, &[Some(n)], words)?;
                }
                dtype(draft, t, &[Dtype::I32, Dtype::U32], "int32")?;
            }
            InTag::Kv(..) | InTag::Pixels | InTag::Free => {}
        }
    }
    for (tag, t) in draft.tagged_outputs() {
        if tag == OutTag::Logits {
            shape(draft, t, &[Some(ar), None], "AR, vocab")?;
            dtype(draft, t, FLOAT_OR_FIXED, "float16, float32, ufixed8, ufixed16, sfixed8 or sfixed16")?;
        }
    }
    if draft.kind == GraphKind::Default && !draft.outputs.iter().any(|t| matches!(t, OutTag::Kv(..))) {
        let cl = draft.cl.map_or(ar, Cl::get);
        if cl != ar {
            return Err(LayoutError::NoCache { at: draft.at(), ar, cl });
        }
    }
    Ok(())
}

const FLOAT_OR_FIXED: &[Dtype] =
    &[Dtype::F16, Dtype::F32, Dtype::UFixed8, Dtype::UFixed16, Dtype::SFixed8, Dtype::SFixed16];
const MASK: &[Dtype] = &[Dtype::F16, Dtype::F32, Dtype::UFixed8, Dtype::UFixed16, Dtype::U8, Dtype::U16];

/// The last extents must be as wanted (any if `None`), all before them 1, except that the outermost is the batch.
fn shape(draft: &Draft<'_>, t: &TensorInfo, want: &[Option<usize>], words: &str) -> Result<(), LayoutError> {
    let lead = t.dims.len().checked_sub(want.len());
    let ok = lead.is_some_and(|lead| {
        let (front, back) = t.dims.split_at(lead);
        is_batch(front, draft.batch) && back.iter().zip(want).all(|(&n, w)| n > 0 && w.is_none_or(|w| w == n))
    });
    if ok {
        return Ok(());
    }
    let extents: Vec<String> = want.iter().map(|w| w.map_or("any".into(), |n| n.to_string())).collect();
    let what = if words.is_empty() { String::new() } else { format!(" ({words})") };
    let lead = draft.batch;
    Err(draft.shape_error(t, format!("[{lead}, {}]{what}, with or without more leading 1s", extents.join(", "))))
}

/// Whether leading extents are those of a batch: one of them is its size, the others are 1.
fn is_batch(front: &[usize], batch: usize) -> bool {
    front.iter().product::<usize>() == batch && front.iter().all(|&n| n == 1 || n == batch)
}

fn dtype(draft: &Draft<'_>, t: &TensorInfo, allowed: &[Dtype], expected: &'static str) -> Result<(), LayoutError> {
    let tensor = || t.name.as_str().into();
    if !allowed.contains(&t.dtype) {
        return Err(LayoutError::Dtype { at: draft.at(), tensor: tensor(), expected, found: t.dtype });
    }
    // A mask's codes are fixed by the contract, whatever the encoding says.
    let scale = t.quant.per_tensor().map(|(scale, _)| scale);
    if t.dtype.is_fixed_point() && !std::ptr::eq(allowed, MASK) && !scale.is_some_and(|s| s.is_finite() && s > 0.0) {
        return Err(LayoutError::Encoding { at: draft.at(), tensor: tensor(), found: t.dtype });
    }
    Ok(())
}

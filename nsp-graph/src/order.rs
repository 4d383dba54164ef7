//! Graphs into splits, splits into execution order, and the variants that all of them have.
//!
//! Order: by the `_i_of_k` of the names; where no name has one, a binary is a split and binaries are ordered by the
//! name of their first graph, as libGenie orders them. Whole-model graphs are always one split.

use genie_types::{Cl, Variant};

use crate::error::LayoutError;
use crate::layout::{GraphKind, Note};
use crate::signature::Draft;

/// Groups the graphs; the result is in execution order, each split's graphs by CL, then AR.
pub(crate) fn into_splits<'a>(drafts: Vec<Draft<'a>>) -> Result<Vec<Vec<Draft<'a>>>, LayoutError> {
    let named = drafts.iter().find_map(|d| d.name.split.map(|split| (split, d.info.name.clone())));
    let mut splits: Vec<Vec<Draft<'a>>> = Vec::new();
    match named {
        Some(((_, total), first)) => {
            let names: Vec<&str> = drafts.iter().map(|d| d.info.name.as_str()).collect();
            let found = names.join(", ");
            splits.resize_with(total.min(drafts.len()), Vec::new);
            for draft in drafts {
                let Some((i, k)) = draft.name.split else {
                    return Err(LayoutError::SplitUnnumbered { at: draft.at(), other: first.into() });
                };
                if k != total {
                    return Err(LayoutError::SplitTotalDiffers {
                        at: draft.at(),
                        found: k,
                        expected: total,
                        other: first.into(),
                    });
                }
                if let Some(split) = splits.get_mut(i - 1) {
                    split.push(draft);
                }
            }
            let empty = splits.iter().position(Vec::is_empty).or((splits.len() < total).then_some(splits.len()));
            if let Some(i) = empty {
                return Err(LayoutError::SplitMissing { missing: i + 1, total, found: found.into() });
            }
        }
        None if are_whole(&drafts) => splits.push(drafts),
        None => {
            let mut by_binary: Vec<(usize, Vec<Draft<'a>>)> = Vec::new();
            for draft in drafts {
                match by_binary.iter_mut().find(|(binary, _)| *binary == draft.binary) {
                    Some((_, split)) => split.push(draft),
                    None => by_binary.push((draft.binary, vec![draft])),
                }
            }
            splits.extend(by_binary.into_iter().map(|(_, split)| split));
            splits.sort_by_key(|split| split.iter().map(|d| d.info.name.clone()).min());
        }
    }
    for split in &mut splits {
        split.sort_by_key(|d| (d.cl, d.ar));
    }
    Ok(splits)
}

/// True if each graph is a whole model, with or without logits.
fn are_whole(drafts: &[Draft<'_>]) -> bool {
    let whole = |d: &Draft<'_>| matches!(d.kind, GraphKind::Default | GraphKind::DecoderPrefill);
    drafts.iter().all(whole) && drafts.iter().any(|d| d.kind == GraphKind::Default)
}

/// One kind, no shape twice.
pub(crate) fn check_split(split: &[Draft<'_>]) -> Result<(), LayoutError> {
    let first = principal(split);
    for (i, draft) in split.iter().enumerate() {
        if !same_kind(first.kind, draft.kind) {
            let other = first.info.name.as_str().into();
            return Err(LayoutError::KindDiffers { at: draft.at(), found: draft.kind, expected: first.kind, other });
        }
        if let Some(twin) = split[..i].iter().find(|d| (d.ar, d.cl) == (draft.ar, draft.cl)) {
            let cl = draft.cl.map_or(String::new(), |cl| format!(" CL-{cl}"));
            let spec = format!("AR-{}{cl}", draft.ar).into();
            return Err(LayoutError::VariantTwice { at: draft.at(), spec, other: twin.info.name.as_str().into() });
        }
    }
    Ok(())
}

/// Graphs of which only cache rows come out stand beside those that do the same and more.
fn same_kind(split: GraphKind, graph: GraphKind) -> bool {
    let has_rows = matches!(split, GraphKind::Decoder | GraphKind::Default);
    split == graph || (has_rows && graph == GraphKind::DecoderPrefill)
}

/// The graph that tells what the split is: the first of which more than cache rows comes out.
fn principal<'s, 'a>(split: &'s [Draft<'a>]) -> &'s Draft<'a> {
    split.iter().find(|d| d.kind != GraphKind::DecoderPrefill).unwrap_or(&split[0])
}

/// The kind of a split whose graphs passed [`check_split`].
pub(crate) fn split_kind(split: &[Draft<'_>]) -> GraphKind {
    principal(split).kind
}

/// All AR/CL pairs of graphs whose shapes tell the CL, by CL, then AR.
pub(crate) fn variants(splits: &[Vec<Draft<'_>>]) -> Result<Vec<Variant>, LayoutError> {
    let all = || splits.iter().flatten();
    let telling = all().any(|d| d.carries_cl);
    let mut specs = Vec::new();
    for draft in all().filter(|d| d.carries_cl || !telling) {
        let cl = draft.cl.ok_or_else(|| LayoutError::NoCl { at: draft.at() })?;
        let exceeds = |_| LayoutError::ArExceedsCl { at: draft.at(), ar: draft.ar.get(), cl: cl.get() };
        specs.push(Variant::from_widths(draft.ar, cl).map_err(exceeds)?);
    }
    specs.sort_unstable();
    specs.dedup();
    Ok(specs)
}

/// For each variant, the graph of this split that serves it.
///
/// A graph none of whose tensors has the context's width may stand in for a CL other than the one in its name, and an LM
/// head for a wider step.
pub(crate) fn serve(
    number: usize,
    split: &[Draft<'_>],
    splits: &[Vec<Draft<'_>>],
    variants: &[Variant],
    notes: &mut Vec<Note>,
) -> Result<Vec<usize>, LayoutError> {
    let mut by_variant = Vec::with_capacity(variants.len());
    for spec in variants {
        let of_ar = |want: &dyn Fn(&Draft<'_>) -> bool| split.iter().position(|d| d.ar == spec.ar() && want(d));
        let exact = of_ar(&|d| d.cl == Some(spec.cl())).or_else(|| of_ar(&|d| d.cl.is_none()));
        let borrowed = || {
            let found = of_ar(&|d| !d.carries_cl)?;
            notes.push(Note::CtxBorrowed { graph: split[found].info.name.clone(), spec: *spec });
            Some(found)
        };
        let found = exact.or_else(borrowed).or_else(|| {
            let narrow = narrow_head(split, *spec)?;
            notes.push(Note::NarrowHead { graph: split[narrow].info.name.clone(), spec: *spec });
            Some(narrow)
        });
        by_variant.push(found.ok_or_else(|| {
            let needs = |d: &&Draft<'_>| d.ar == spec.ar() && d.cl == Some(spec.cl());
            let other = splits.iter().flatten().find(needs).map_or("", |d| d.info.name.as_str());
            let found: Vec<String> = split.iter().map(|d| shape_words(d.ar.get(), d.cl)).collect();
            LayoutError::VariantMissing {
                split: number,
                spec: *spec,
                found: found.join(", ").into(),
                other: other.into(),
            }
        })?);
    }
    Ok(by_variant)
}

/// The widest LM head that is narrower than the variant, of its CL if there is one.
fn narrow_head(split: &[Draft<'_>], spec: Variant) -> Option<usize> {
    let narrower = (0..split.len()).filter(|&i| split[i].kind == GraphKind::LmHead && split[i].ar < spec.ar());
    narrower.max_by_key(|&i| (split[i].ar, split[i].cl == Some(spec.cl())))
}

fn shape_words(ar: usize, cl: Option<Cl>) -> String {
    cl.map_or(format!("ar{ar}"), |cl| format!("ar{ar}_cl{cl}"))
}

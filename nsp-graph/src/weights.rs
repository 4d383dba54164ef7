//! Weights that an LM head takes as inputs: which ones, and that all its graphs agree on them.
//!
//! *Shapes*: one extent is the vocabulary's; the others are the graph's own affair. An input of that name which an earlier
//! split outputs is a tensor between splits like any other.

use crate::error::LayoutError;
use crate::layout::WeightInput;
use crate::names;
use crate::signature::{Draft, InTag, OutTag};
use crate::wiring;

/// True for an input of a graph with logits that holds a weight.
pub(crate) fn is_weight(draft: &Draft<'_>, tag: InTag<'_>, name: &str, splits: &[Vec<Draft<'_>>]) -> bool {
    let fits = tag == InTag::Free && names::is_weight(name) && draft.outputs.contains(&OutTag::Logits);
    fits && !splits.iter().flatten().any(|other| wiring::free_output(other, name).is_some())
}

/// All of them, by name.
pub(crate) fn find(splits: &[Vec<Draft<'_>>], vocab_size: usize) -> Result<Vec<WeightInput>, LayoutError> {
    let mut found: Vec<(WeightInput, &str)> = Vec::new();
    for draft in splits.iter().flatten() {
        for (tag, info) in draft.tagged_inputs().filter(|(tag, t)| is_weight(draft, *tag, &t.name, splits)) {
            debug_assert_eq!(tag, InTag::Free);
            if !info.dims.contains(&vocab_size) {
                let want = format!("an extent of {vocab_size}, as the logits have");
                return Err(draft.shape_error(info, want));
            }
            match found.iter().find(|(weight, _)| weight.info.name == info.name) {
                None => found.push((WeightInput { info: info.clone(), binary: draft.binary }, &draft.info.name)),
                Some((weight, _)) if weight.info == *info => {}
                Some((weight, other)) => {
                    return Err(LayoutError::TensorDiffers {
                        at: draft.at(),
                        tensor: info.name.as_str().into(),
                        expected: wiring::words(&weight.info).into(),
                        found: wiring::words(info).into(),
                        other: (*other).into(),
                    });
                }
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.info.name.cmp(&b.info.name));
    Ok(found.into_iter().map(|(weight, _)| weight).collect())
}

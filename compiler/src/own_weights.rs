//! The weight format that a model has by itself: what is compiled where no other is asked for.
//!
//! Float weights stay float, those of bfloat16 in their own type. Quantised ones, of a GGUF file, stay in blocks, in the smallest
//! format that keeps them: `q4_0` for Q4_0, `q8_0` for everything else. Q4_0, Q5_0, IQ4_NL, MXFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS are copied by either, and
//! matrices of floats in such a file stay floats. Where `q4_0` is not asked for but chosen here, the others have eight bits: Q8_0 is
//! copied, and what must be rounded loses least. Chips and other libraries take no blocks, and no bfloat16.

use crate::Weights;
use crate::checkpoint::{BlockFormat, Checkpoint, SourceDtype};
use crate::family::ModelSpec;
use crate::lower::{Role, all_tensors, is_copied, is_matrix};
use std::collections::{BTreeMap, BTreeSet};

/// A format, and what to say of the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnWeights {
    pub(crate) weights: Weights,
    /// Some of its linear layers have more than four bits, and get eight beside others in four.
    pub(crate) keeps_eight_bits: bool,
    /// Some of its matrices are floats, and stay so beside others in blocks or bfloat16.
    pub(crate) keeps_floats: bool,
    pub(crate) note: Option<String>,
}

/// Elements of matrices by how they are stored.
#[derive(Default)]
struct Counts {
    four_bits: usize,
    /// Copied by any format of blocks.
    copied_elems: usize,
    other_blocks: usize,
    /// Linear layers in Q8_0.
    eight_bits: usize,
    /// Matrices of bfloat16.
    bfloats: usize,
    /// Matrices of other floats.
    floats: usize,
    /// Formats of the linear layers that any format of blocks copies.
    copied: BTreeSet<&'static str>,
    /// Matrices in each of the file's formats.
    matrices: BTreeMap<String, usize>,
}

/// The format of a checkpoint's matrices; `embedded`: in a bundle for the embedded backend.
pub(crate) fn of(spec: &ModelSpec, checkpoint: &Checkpoint, embedded: bool) -> OwnWeights {
    let counts = Counts::of(spec, checkpoint);
    let blocks = counts.four_bits + counts.copied_elems + counts.eight_bits + counts.other_blocks;
    let float = |note| OwnWeights { weights: Weights::Float, keeps_eight_bits: false, keeps_floats: false, note };
    let is_float = blocks == 0;
    if is_float && (!embedded || counts.bfloats == 0) {
        return float(None);
    }
    let held: Vec<String> = counts.matrices.iter().map(|(name, n)| format!("{n} in {name}")).collect();
    let held = format!("the file's matrices are {}", held.join(", "));
    if !embedded {
        return float(Some(format!(
            "weights are widened to float: {held}, and only the embedded backend takes blocks (`w8` halves them)"
        )));
    }
    if is_float {
        let note = format!("weights stay bfloat16, as `bf16`: {held} (`float` would store all in the precision)");
        let (weights, keeps_floats) = (Weights::Bf16, counts.floats > 0);
        return OwnWeights { weights, keeps_eight_bits: false, keeps_floats, note: Some(note) };
    }
    // A few matrices of other types, as some of llama.cpp's own Q4_0 files have, do not make four bits eight.
    let others = counts.other_blocks + counts.eight_bits;
    let weights = if counts.four_bits > 0 && counts.four_bits >= 3 * others { Weights::Q4_0 } else { Weights::Q8_0 };
    let keeps_eight_bits = weights == Weights::Q4_0 && others > 0;
    let eight = (keeps_eight_bits && counts.eight_bits > 0).then_some(BlockFormat::Q8_0.name());
    let keeps_floats = counts.floats + counts.bfloats > 0;
    let floats = keeps_floats.then_some("floats");
    let kept: Vec<&str> = counts.copied.iter().copied().chain(eight).chain(floats).collect();
    let kept = if kept.is_empty() { String::new() } else { format!(", and {} as they are", kept.join(", ")) };
    let note = format!("weights stay quantised, as `{weights}`{kept}: {held} (`float` would widen them)");
    OwnWeights { weights, keeps_eight_bits, keeps_floats, note: Some(note) }
}

impl Counts {
    fn of(spec: &ModelSpec, checkpoint: &Checkpoint) -> Self {
        let mut counts = Self::default();
        for (name, dims, role) in all_tensors(spec) {
            let Some(entry) = checkpoint.tensors().get(&name) else { continue };
            if !is_matrix(role) {
                continue;
            }
            *counts.matrices.entry(entry.dtype.name()).or_default() += 1;
            let n: usize = dims.iter().product();
            // What an adapter was merged into is rounded.
            let is_kept = |format| is_copied(format, role) && !checkpoint.is_changed(&name);
            match (&entry.dtype, role) {
                (SourceDtype::Blocks(BlockFormat::Q4_0), _) => counts.four_bits += n,
                (SourceDtype::Blocks(format), Role::Linear) if is_kept(*format) => {
                    counts.copied_elems += n;
                    counts.copied.insert(format.name());
                }
                // An embedding is copied, or has eight bits, in either format of blocks, so it speaks for none.
                (SourceDtype::Blocks(_), Role::Embedding) => counts.copied_elems += n,
                (SourceDtype::Blocks(BlockFormat::Q8_0), _) => counts.eight_bits += n,
                (SourceDtype::Blocks(_), _) => counts.other_blocks += n,
                (SourceDtype::Bf16, _) => counts.bfloats += 1,
                _ => counts.floats += 1,
            }
        }
        counts
    }
}

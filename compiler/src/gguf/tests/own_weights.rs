//! D5: a quantised file stays quantised where no format is asked for; all else stays as it was.

use super::*;
use crate::testmodel::{DraftTensor, FileDtype};
use crate::{Amount, HtpOptions, Progress, Stage, Weights};
use genie_bundle::manifest::Options;
use half::f16;
use std::path::Path;
use std::time::Duration;

#[derive(Default)]
struct Notes(Vec<String>);

impl Progress for Notes {
    fn begin(&mut self, _: &Stage, _: Amount) {}
    fn item(&mut self, _: &str, _: u64) {}
    fn working(&mut self, _: &str) {}
    fn timed(&mut self, _: &str, _: Duration) {}
    fn end(&mut self, _: &Stage) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.into());
    }
}

/// The options that a bundle's manifest has, and what is said.
fn compiled_options(model: &Path, weights: Option<Weights>) -> (Options, Vec<String>) {
    let place = tempfile::tempdir().unwrap();
    let mut options = CompileOptions::new(model, place.path().join("bundle"));
    (options.ars, options.cls, options.weights) = (vec![1], vec![16], weights);
    let mut notes = Notes::default();
    let manifest = compile_with(&options, &mut FakeTarget::default(), &mut notes).unwrap();
    (manifest.options, notes.0)
}

/// The format that a model gets, and what is said.
fn compiled(model: &Path, weights: Option<Weights>) -> (Weights, Vec<String>) {
    let (options, notes) = compiled_options(model, weights);
    (options.weights, notes)
}

fn of_draft(draft: &GgufDraft, weights: Option<Weights>) -> (Weights, Vec<String>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), draft.bytes()).unwrap();
    compiled(file.path(), weights)
}

/// 64 wide, so that every row is whole blocks.
fn quantised(matrices: Matrices) -> GgufDraft {
    TestModel { ffn: 128, tied: false, ..TestModel::tiny(Family::Llama) }.gguf(matrices).unwrap()
}

/// A file in Q4_0 with these matrices in Q8_0.
fn four_with(names: &[&str]) -> GgufDraft {
    let (mut draft, mut eight) = (quantised(Matrices::Q4_0), quantised(Matrices::Q8_0));
    for name in names {
        let other: DraftTensor = eight.tensor(name).clone();
        *draft.tensor(name) = other;
    }
    draft
}

#[test]
fn a_quantised_file_stays_quantised() {
    for (matrices, weights, name) in
        [(Matrices::Q4_0, Weights::Q4_0, "16 in Q4_0"), (Matrices::Q8_0, Weights::Q8_0, "16 in Q8_0")]
    {
        let (found, notes) = of_draft(&quantised(matrices), None);
        assert_eq!(found, weights);
        let said = format!(
            "weights stay quantised, as `{weights}`: the file's matrices are {name} (`float` would widen them)"
        );
        assert!(notes.contains(&said), "{notes:?}");
        assert!(!notes.iter().any(|note| note.contains("rounding")), "all blocks are copied: {notes:?}");
        assert_eq!(of_draft(&quantised(matrices), Some(Weights::Float)).0, Weights::Float, "where it is asked for");
    }
}

/// MXFP4 is copied by either format of blocks; what is neither copied nor four bits has eight.
#[test]
fn floats_of_four_bits_stay_as_they_are() {
    let mut draft = quantised(Matrices::F32);
    for tensor in draft.tensors.iter_mut().filter(|tensor| tensor.dims.len() == 2) {
        tensor.ty = 39;
        tensor.bytes = vec![120; (tensor.dims.iter().product::<u64>() / 32 * 17) as usize];
    }
    let held = "the file's matrices are 16 in MXFP4 (`float` would widen them)";
    let (found, notes) = of_draft(&draft, None);
    assert_eq!(found, Weights::Q8_0);
    assert!(notes.contains(&format!("weights stay quantised, as `q8_0`, and MXFP4 as they are: {held}")), "{notes:?}");
    for weights in [Weights::Q8_0, Weights::Q4_0] {
        let (_, notes) = of_draft(&draft, Some(weights));
        assert!(!notes.iter().any(|note| note.contains("rounding")), "all blocks are copied: {notes:?}");
    }
    for weights in [Weights::Float, Weights::W8, Weights::W4] {
        assert_eq!(of_draft(&draft, Some(weights)).0, weights, "which needs the numbers");
    }
}

/// The least and the largest power of two that the host packs, and what is said of those beyond it, of a layer and of the table.
#[test]
fn scales_that_cannot_be_packed_are_reported() {
    let said_with = |scales: &[(&str, u8)]| {
        let mut draft = quantised(Matrices::F32);
        for tensor in draft.tensors.iter_mut().filter(|tensor| tensor.dims.len() == 2) {
            tensor.ty = 39;
            tensor.bytes = vec![0x11; (tensor.dims.iter().product::<u64>() / 32 * 17) as usize];
            tensor.bytes.chunks_mut(17).for_each(|block| block[0] = 120);
        }
        for (i, (name, scale)) in scales.iter().enumerate() {
            draft.tensor(name).bytes[17 * (2 * i + 1)] = *scale;
        }
        let notes = of_draft(&draft, None).1;
        notes.into_iter().filter(|note| note.contains("outside")).collect::<Vec<_>>()
    };
    let note = |name: &str, blocks: usize, exponent: i32| {
        format!(
            "`{name}`: {blocks} of its blocks in MXFP4 have scales outside of 2^-126 to 2^119 (the first, 2^{exponent}): it is \
             stored as bytes with float32 scales, 9 bits per weight and not 4.25, and computed in float32"
        )
    };
    let (layer, table) = ("blk.0.ffn_up.weight", "token_embd.weight");
    assert_eq!(said_with(&[(layer, 2), (layer, 247), (table, 247)]), [""; 0], "all of them are packed");
    assert_eq!(said_with(&[(layer, 248)]), [note(layer, 1, 120)]);
    assert_eq!(said_with(&[(layer, 1), (layer, 252)]), [note(layer, 2, -127)]);
    assert_eq!(said_with(&[(table, 0)]), [note(table, 1, -128)]);
}

#[test]
fn weights_that_are_not_quantised_stay_float() {
    for matrices in [Matrices::F32, Matrices::F16] {
        assert_eq!(of_draft(&quantised(matrices), None), (Weights::Float, vec![]));
    }
    let dir = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(dir.path()).unwrap();
    assert_eq!(compiled(dir.path(), None), (Weights::Float, vec![]));
}

/// With all matrices, and with one in float32; a folder's too.
#[test]
fn bfloat16_stays_bfloat16() {
    let said = |held: &str| {
        format!(
            "weights stay bfloat16, as `bf16`: the file's matrices are {held} (`float` would store all in the precision)"
        )
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let (mut draft, mut wide) = (quantised(Matrices::Bf16), quantised(Matrices::F32));
    for (held, keeps_floats) in [("16 in BF16", false), ("15 in BF16, 1 in F32", true)] {
        std::fs::write(file.path(), draft.bytes()).unwrap();
        let (options, notes) = compiled_options(file.path(), None);
        assert_eq!((options.weights, options.keeps_floats), (Weights::Bf16, keeps_floats));
        assert_eq!(notes, [said(held)], "nothing is rounded");
        std::mem::swap(draft.tensor("blk.0.attn_q.weight"), wide.tensor("blk.0.attn_q.weight"));
    }
    assert_eq!(of_draft(&quantised(Matrices::Bf16), Some(Weights::Float)), (Weights::Float, vec![]));

    let dir = tempfile::tempdir().unwrap();
    TestModel { dtype: FileDtype::Bf16, tied: false, ..TestModel::tiny(Family::Llama) }.write(dir.path()).unwrap();
    assert_eq!(compiled(dir.path(), None), (Weights::Bf16, vec![said("16 in BF16")]));
    // A chip computes in float16.
    let mut options = CompileOptions::new(dir.path(), dir.path().join("bundle"));
    (options.ars, options.cls, options.htp) = (vec![1], vec![16], Some(HtpOptions::for_target("sm8650").unwrap()));
    let manifest = compile_with(&options, &mut FakeTarget::default(), &mut Silent).unwrap();
    assert_eq!(manifest.options.weights, Weights::Float);
    (options.weights, options.force) = (Some(Weights::Bf16), true);
    let refused = compile_with(&options, &mut FakeTarget::default(), &mut Silent).unwrap_err().to_string();
    assert_eq!(refused, "target `sm8650` cannot run weights in the format `bf16`: expected `float` or `w8`");
}

#[test]
fn other_libraries_get_floats() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let widened = "weights are widened to float: the file's matrices are 16 in Q4_0, and only the embedded backend takes blocks \
                   (`w8` halves them)";
    for (matrices, said) in [(Matrices::Bf16, vec![]), (Matrices::Q4_0, vec![widened.to_owned()])] {
        std::fs::write(file.path(), quantised(matrices).bytes()).unwrap();
        let place = tempfile::tempdir().unwrap();
        let mut options = CompileOptions::new(file.path(), place.path().join("bundle"));
        (options.ars, options.cls) = (vec![1], vec![16]);
        let (mut target, mut notes) = (FakeTarget { is_other: true, ..FakeTarget::default() }, Notes::default());
        let manifest = compile_with(&options, &mut target, &mut notes).unwrap();
        assert_eq!((manifest.options.weights, notes.0), (Weights::Float, said));
    }
}

#[test]
fn weights_are_rounded_to_bfloat16_where_it_is_asked_for() {
    for (matrices, percent) in [(Matrices::F32, "0.1"), (Matrices::F16, "0.1"), (Matrices::Bf16, "")] {
        let (found, notes) = of_draft(&quantised(matrices), Some(Weights::Bf16));
        assert_eq!(found, Weights::Bf16);
        // Uniform mantissas are off by 2^-9 at most: by 0.11 % at root mean square.
        let lost = notes.iter().find(|note| note.starts_with("rounding to bf16 moved the weights by "));
        assert_eq!(lost.is_some(), !percent.is_empty(), "{matrices:?}: {notes:?}");
        assert!(lost.is_none_or(|note| note.contains(&format!("by {percent}"))), "{matrices:?}: {lost:?}");
    }
    // A number that rounds to infinity, though it is finite.
    let mut draft = quantised(Matrices::F32);
    let weight = draft.tensor("blk.0.attn_q.weight");
    weight.bytes[..4].copy_from_slice(&f32::MAX.to_le_bytes());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), draft.bytes()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let mut options = CompileOptions::new(file.path(), place.path().join("bundle"));
    (options.ars, options.cls, options.weights) = (vec![1], vec![16], Some(Weights::Bf16));
    let refused = compile_with(&options, &mut FakeTarget::default(), &mut Silent).unwrap_err().to_string();
    assert!(refused.ends_with("has inf at index [0, 0]: weights must be finite"), "{refused}");
}

/// Few or most of the matrices: the manifest tells such a bundle from one whose format was asked for.
#[test]
fn floats_among_blocks_stay_floats() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = "blk.0.attn_q.weight";
    let (mut few, mut most) = (quantised(Matrices::F16), quantised(Matrices::Q4_0));
    std::mem::swap(few.tensor(name), most.tensor(name));
    for (draft, held) in [(&few, "15 in F16, 1 in Q4_0"), (&most, "1 in F16, 15 in Q4_0")] {
        std::fs::write(file.path(), draft.bytes()).unwrap();
        let (options, notes) = compiled_options(file.path(), None);
        assert_eq!((options.weights, options.keeps_eight_bits, options.keeps_floats), (Weights::Q4_0, false, true));
        let said = format!(
            "weights stay quantised, as `q4_0`, and floats as they are: the file's matrices are {held} (`float` would widen them)"
        );
        assert_eq!(notes, [said], "nothing is rounded");
        let written = serde_json::to_value(&options).unwrap();
        assert_eq!(written.get("keeps-floats"), Some(&true.into()), "{written}");
    }
    let (options, notes) = compiled_options(file.path(), Some(Weights::Q4_0));
    assert!(!options.keeps_floats && notes.iter().any(|note| note.starts_with("rounding to q4_0")), "{notes:?}");
}

/// What a file has in Q8_0 is rounded only where four bits are asked for; the manifest tells the two apart.
#[test]
fn eight_bits_among_four_are_rounded_only_if_that_is_asked_for() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (four, mixed) = (quantised(Matrices::Q4_0), four_with(&["blk.0.attn_v.weight", "blk.1.attn_q.weight"]));
    let rounded = |notes: &[String]| notes.iter().any(|note| note.starts_with("rounding to q4_0 moved the weights by"));
    let held = "the file's matrices are 14 in Q4_0, 2 in Q8_0 (`float` would widen them)";
    let said = format!("weights stay quantised, as `q4_0`, and Q8_0 as they are: {held}");
    for (draft, asked, keeps) in [
        (&mixed, None, true),
        (&mixed, Some(Weights::Q4_0), false),
        (&four, None, false),
        (&mixed, Some(Weights::Q8_0), false),
    ] {
        std::fs::write(file.path(), draft.bytes()).unwrap();
        let (options, notes) = compiled_options(file.path(), asked);
        assert_eq!((options.weights, options.keeps_eight_bits), (asked.unwrap_or(Weights::Q4_0), keeps), "{notes:?}");
        assert_eq!(notes.contains(&said), keeps, "{notes:?}");
        assert_eq!(rounded(&notes), asked == Some(Weights::Q4_0), "{notes:?}");
        let written = serde_json::to_value(&options).unwrap();
        assert_eq!(written.get("keeps-eight-bits").is_some(), keeps, "{written}");
    }
}

/// What no format of blocks copies loses least in eight bits, where four were not asked for.
#[test]
fn other_blocks_among_four_bits_are_rounded_to_eight() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut draft = quantised(Matrices::Q4_0);
    let tensor = draft.tensor("blk.0.attn_v.weight");
    // Q4_1: scale, minimum, 32 values of four bits.
    tensor.ty = 3;
    tensor.bytes = (0..tensor.dims.iter().product::<u64>() / 32)
        .flat_map(|i| {
            let halves = [0.01, -0.033].map(|x| f16::from_f32(x).to_le_bytes());
            let values = (0..16).map(move |at| (i * 16 + at).wrapping_mul(37) as u8);
            halves.concat().into_iter().chain(values)
        })
        .collect();
    std::fs::write(file.path(), draft.bytes()).unwrap();
    let lost = |asked| {
        let (options, notes) = compiled_options(file.path(), asked);
        let note = notes.iter().find_map(|note| note.strip_prefix("rounding to ")).unwrap();
        let (to, rest) = note.split_once(" moved the weights by ").unwrap();
        let percent: f64 = rest.split_once(" %").unwrap().0.parse().unwrap();
        (options.keeps_eight_bits, to.to_owned(), percent)
    };
    let (keeps, to, percent) = lost(None);
    assert!(keeps && to == "q8_0" && percent < 1.0, "{to}: {percent} %");
    let (keeps, to, percent) = lost(Some(Weights::Q4_0));
    assert!(!keeps && to == "q4_0" && percent > 3.0, "{to}: {percent} %");
}

/// Files in several formats: the smallest that holds nearly all, beside floats where blocks cannot hold a matrix.
#[test]
fn mixed_files_get_the_smallest_format_that_holds_them() {
    let few = ["blk.0.attn_v.weight", "blk.1.attn_v.weight", "token_embd.weight"];
    assert_eq!(of_draft(&four_with(&few), None).0, Weights::Q4_0, "a few matrices of more bits");
    let many = [
        "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight",
        "blk.1.ffn_up.weight",
        "blk.1.ffn_down.weight",
        "output.weight",
    ];
    assert_eq!(of_draft(&four_with(&many), None).0, Weights::Q8_0);
    let odd = TestModel { ffn: 72, ..TestModel::tiny(Family::Llama) };
    let floats = odd.gguf(Matrices::F32).unwrap();
    // Rows of 72 stay floats, as `llama-quantize` leaves them.
    let mut draft = floats.clone();
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate"] {
        for layer in 0..2 {
            let name = format!("blk.{layer}.{name}.weight");
            let tensor = draft.tensor(&name);
            tensor.ty = 8;
            tensor.bytes = vec![1; (tensor.dims.iter().product::<u64>() / 32 * 34) as usize];
        }
    }
    let (found, notes) = of_draft(&draft, None);
    assert_eq!(found, Weights::Q8_0);
    assert!(notes[0].contains("and floats as they are: the file's matrices are 3 in F32, 12 in Q8_0"), "{notes:?}");
}

//! D5: a quantised file stays quantised where no format is asked for; all else stays as it was.

use super::*;
use crate::testmodel::DraftTensor;
use crate::{Amount, Progress, Stage, Weights};
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

/// The format that a model gets, and what is said.
fn compiled(model: &Path, weights: Option<Weights>) -> (Weights, Vec<String>) {
    let place = tempfile::tempdir().unwrap();
    let mut options = CompileOptions::new(model, place.path().join("bundle"));
    (options.ars, options.cls, options.weights) = (vec![1], vec![16], weights);
    let mut notes = Notes::default();
    let manifest = compile_with(&options, &mut FakeTarget::default(), &mut notes).unwrap();
    (manifest.options.weights, notes.0)
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

#[test]
fn a_quantised_file_stays_quantised() {
    for (matrices, weights, name) in
        [(Matrices::Q4_0, Weights::Q4_0, "16 in Q4_0"), (Matrices::Q8_0, Weights::Q8_0, "16 in Q8_0")]
    {
        let (found, notes) = of_draft(&quantised(matrices), None);
        assert_eq!(found, weights);
        let said = format!(
            "weights stay quantised, as `{weights}`: the file's quantised matrices are {name} (`float` would widen them)"
        );
        assert!(notes.contains(&said), "{notes:?}");
        assert!(!notes.iter().any(|note| note.contains("rounding")), "all blocks are copied: {notes:?}");
        assert_eq!(of_draft(&quantised(matrices), Some(Weights::Float)).0, Weights::Float, "where it is asked for");
    }
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

/// Files in several formats: the smallest that holds nearly all; float where blocks cannot hold a matrix.
#[test]
fn mixed_files_get_the_smallest_format_that_holds_them() {
    let eight = quantised(Matrices::Q8_0);
    let replaced = |with: &GgufDraft, names: &[&str]| {
        let mut draft = quantised(Matrices::Q4_0);
        for name in names {
            let other: DraftTensor = with.clone().tensor(name).clone();
            *draft.tensor(name) = other;
        }
        draft
    };
    let few = ["blk.0.attn_v.weight", "blk.1.attn_v.weight", "token_embd.weight"];
    assert_eq!(of_draft(&replaced(&eight, &few), None).0, Weights::Q4_0, "a few matrices of more bits");
    let many = [
        "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight",
        "blk.1.ffn_up.weight",
        "blk.1.ffn_down.weight",
        "output.weight",
    ];
    assert_eq!(of_draft(&replaced(&eight, &many), None).0, Weights::Q8_0);
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
    assert_eq!(found, Weights::Float);
    assert!(notes[0].contains("but `blk.0.ffn_down.weight` has rows that are no multiple of 32"), "{notes:?}");
}

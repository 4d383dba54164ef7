//! Files made here by [`GgufDraft`], good ones and ones with one thing changed.

mod blocks;
mod graphs;
mod keys;
mod own_weights;
mod structure;
mod tensors;
mod tokenizers;

use super::Gguf;
use crate::compile::compile_with;
use crate::family::Family;
use crate::lower::tests::recorder::FakeTarget;
use crate::model::Model;
use crate::testmodel::{GgufDraft, GgufValue, Matrices, TestModel};
use crate::{CompileError, CompileOptions, Hint, Result, Silent};
use std::sync::LazyLock;

static LLAMA: LazyLock<GgufDraft> =
    LazyLock::new(|| TestModel::tiny(Family::Llama).gguf(Matrices::F32).expect("a model that can be"));

/// A Llama in floats.
fn llama() -> GgufDraft {
    LLAMA.clone()
}

/// A Llama with changes.
fn changed(change: impl FnOnce(&mut GgufDraft)) -> GgufDraft {
    let mut draft = llama();
    change(&mut draft);
    draft
}

/// A Llama with another value of a key, or one more key.
fn with(key: &str, value: GgufValue) -> GgufDraft {
    changed(|draft| {
        draft.set(key, value);
    })
}

fn text(s: &str) -> GgufValue {
    GgufValue::Text(s.into())
}

fn open(bytes: &[u8]) -> Result<Gguf> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Gguf::open(file.path())
}

/// Opens the model of a file.
fn model(draft: &GgufDraft) -> Result<Model> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), draft.bytes()).unwrap();
    Model::open(file.path())
}

/// Compiles a file with a recorder: the error, with `FILE` for the path, and its hint.
fn refusal_of(bytes: &[u8]) -> Result<(), (String, Option<Hint>)> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("m.gguf");
    std::fs::write(&file, bytes).unwrap();
    let mut options = CompileOptions::new(&file, place.path().join("bundle"));
    (options.ars, options.cls) = (vec![1], vec![16]);
    let compiled = compile_with(&options, &mut FakeTarget::default(), &mut Silent);
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(compiled.is_ok() || left == ["m.gguf"], "nothing is left behind: {left:?}");
    compiled.map(drop).map_err(|e: CompileError| (e.to_string().replace(&*file.to_string_lossy(), "FILE"), e.hint()))
}

/// The error of a file that must be refused.
fn refused(draft: &GgufDraft) -> (String, Option<Hint>) {
    refusal_of(&draft.bytes()).expect_err("it must be refused")
}

/// The message of a file that must be refused.
fn message(draft: &GgufDraft) -> String {
    refused(draft).0
}

#[test]
fn the_unchanged_file_compiles() {
    refusal_of(&llama().bytes()).unwrap();
    for family in [Family::Qwen2, Family::Qwen3] {
        refusal_of(&TestModel::tiny(family).gguf(Matrices::F32).unwrap().bytes()).unwrap();
    }
}

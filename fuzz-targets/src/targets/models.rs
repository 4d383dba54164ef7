//! Checkpoints: whole compilations of tiny models, of which one file was changed.

use std::path::{Path, PathBuf};

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Silent, compile};

use super::places::{backend, check_message, file, folder};

/// The model that the seeds were made from.
pub(crate) fn tiny() -> TestModel {
    TestModel { layers: 1, hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 32, ..TestModel::tiny(Family::Llama) }
}

/// A folder with the whole model, written if it is not there.
fn model(name: &str) -> PathBuf {
    let dir = folder().join(name);
    if !dir.exists() {
        tiny().write(&dir).expect("the model is written");
    }
    dir
}

fn compile_model(model: &Path) {
    let out = folder().join("bundle");
    let options = CompileOptions { ars: vec![1, 4], cls: vec![16], force: true, ..CompileOptions::new(model, &out) };
    if let Err(error) = compile(&options, backend(), &mut Silent) {
        check_message(&error);
    }
    let _ = std::fs::remove_dir_all(&out);
}

/// A GGUF file.
pub(super) fn gguf(bytes: &[u8]) {
    compile_model(&file("model.gguf", bytes));
}

/// The weights of a good model.
pub(super) fn safetensors(bytes: &[u8]) {
    let dir = model("weights-changed");
    std::fs::write(dir.join("model.safetensors"), bytes).expect("a file in the temporary folder");
    compile_model(&dir);
}

/// The configuration of a good model.
pub(super) fn config(bytes: &[u8]) {
    let dir = model("config-changed");
    std::fs::write(dir.join("config.json"), bytes).expect("a file in the temporary folder");
    compile_model(&dir);
}

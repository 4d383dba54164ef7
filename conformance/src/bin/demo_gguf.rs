//! `demo_gguf FOLDER`: the demo model as GGUF files, for `testdata/llama_cpp/record.py`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use conformance::gguf::{Matrices, llama};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("usage: demo_gguf FOLDER"));
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    for matrices in [Matrices::F16, Matrices::Q8_0, Matrices::Q4_0] {
        std::fs::write(folder.join(format!("demo-{matrices:?}.gguf")), llama(&model, matrices))?;
    }
    Ok(())
}

//! `demo_gguf FOLDER`: the demo model as GGUF files, for `testdata/llama_cpp/record.py`; `demo_gguf --families FOLDER`: a small random model of
//! each family that GGUF files are read of, in float32, for `cargo xtask perplexity-check`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};

use compiler::Family;
use compiler::testmodel::{Matrices as Stored, TestModel};
use conformance::gguf::{Matrices, llama};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).peekable();
    let families = args.next_if(|arg| arg == "--families").is_some();
    let folder = PathBuf::from(args.next().ok_or("usage: demo_gguf [--families] FOLDER")?);
    if families {
        return write_families(&folder);
    }
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    for matrices in [Matrices::F16, Matrices::Q8_0, Matrices::Q4_0] {
        std::fs::write(folder.join(format!("demo-{matrices:?}.gguf")), llama(&model, matrices))?;
    }
    Ok(())
}

fn write_families(folder: &Path) -> Result<(), Box<dyn Error>> {
    // GGUF files of Mistral say `llama`.
    for &family in Family::ALL.iter().filter(|&&family| family != Family::Mistral) {
        // Windows shorter than a chunk, where the family has windows.
        let tiny = TestModel::tiny(family);
        let window = if tiny.window > 0 { 24 } else { 0 };
        // llama.cpp wants a head of its own of some, and takes every fourth layer of SmolLM3 as one without rotation.
        let tied = !matches!(family, Family::Olmo2 | Family::Olmo3 | Family::StableLm);
        let model = TestModel { window, tied, layers: 4, no_rope_interval: 4, ..tiny };
        match model.gguf(Stored::F32) {
            Ok(draft) => std::fs::write(folder.join(format!("family-{}.gguf", family.name())), draft.bytes())?,
            Err(why) => println!("{}: {why}", family.name()),
        }
    }
    Ok(())
}

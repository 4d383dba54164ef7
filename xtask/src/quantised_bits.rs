//! `cargo xtask quantised-bits`: the weights that bundles of llama.cpp's own files hold, against the numbers that ggml makes of the files.
//!
//! `llama-quantize` writes a float file in each type, and widens what it wrote to float32 again. `quantised_bits` of `conformance`
//! compiles both and compares them bit for bit.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::llama_cpp::quantise;
use crate::workspace::{root, sh};

/// Types of files. BF16 is no quantised one, but kept as it is too. Most others hold matrices of several: layers that matter more have
/// more bits. MXFP4, which is for experts, is so for all matrices if that is forbidden ([`flags`]).
const TYPES: [&str; 12] =
    ["BF16", "Q4_0", "Q5_0", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4_MOE"];

/// What `llama-quantize` needs besides for a type.
fn flags(ty: &str) -> &'static [&'static str] {
    if ty == "MXFP4_MOE" { &["--pure"] } else { &[] }
}

/// Where llama.cpp is, and the model.
#[derive(Args)]
pub struct QuantisedBitsArgs {
    /// Folder with llama.cpp's `llama-quantize`.
    #[arg(long, value_name = "DIR")]
    llama: PathBuf,
    /// A GGUF file of floats [default: a small random Llama with rows of 256 and 512].
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
}

/// Prints how many numbers were compared, for each file and each type in it; fails at the first that differs.
pub fn run(args: &QuantisedBitsArgs) -> Result<()> {
    let folder = root().join("target/quantised-bits");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear `{}`", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let at = |name: &str| folder.join(name).display().to_string();
    let compare = ["run", "--quiet", "-p", "conformance", "--bin", "quantised_bits", "--"];
    let model = match &args.model {
        Some(model) => model.clone(),
        None => {
            sh("cargo", &[&compare[..], &["write", &at("random.gguf")]].concat(), &[])?;
            folder.join("random.gguf")
        }
    };
    for ty in TYPES {
        let (quantised, widened) = (folder.join(format!("{ty}.gguf")), folder.join(format!("{ty}-F32.gguf")));
        quantise(&args.llama, flags(ty), &model, &quantised, ty)?;
        quantise(&args.llama, &["--allow-requantize"], &quantised, &widened, "F32")?;
        let files = [quantised.display().to_string(), widened.display().to_string()];
        sh("cargo", &[&compare[..], &["compare", &files[0], &files[1]]].concat(), &[])?;
        for file in [quantised, widened] {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove `{}`", file.display()))?;
        }
    }
    println!("all {} files: every number has the bits that ggml gives it", TYPES.len());
    Ok(())
}

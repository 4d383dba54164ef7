//! `cargo xtask perplexity-check`: perplexity by llama.cpp and by `genie` on the same GGUF files and text: the demo model in several types,
//! and a small random model of each family.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::llama_cpp::quantise;
use crate::workspace::{program, root, sh};

/// What llama-quantize makes of the float16 file; rows of 192 inputs fall back from K blocks to others, as it decides.
const TYPES: [&str; 5] = ["Q6_K", "Q5_K_M", "Q5_0", "Q4_K_M", "Q4_1"];
/// Largest difference of the two perplexities, in percent.
const MOST: f64 = 0.5;
const WINDOW: &str = "256";
/// How often a program is started that prints no figure.
const TRIES: usize = 5;

/// Where llama.cpp and the text are.
#[derive(Args)]
pub struct PerplexityCheckArgs {
    /// Folder with llama.cpp's `llama-perplexity` and `llama-quantize`.
    #[arg(long, value_name = "DIR")]
    llama: PathBuf,
    /// A text of at least 256 tokens per chunk.
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Windows of 256 tokens.
    #[arg(long, value_name = "N", default_value_t = 40)]
    chunks: usize,
}

/// Prints a line for each file; fails if one differs by more than the bound.
pub fn run(args: &PerplexityCheckArgs) -> Result<()> {
    let folder = root().join("target/perplexity-check");
    let shown = |path: &Path| path.display().to_string();
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear `{}`", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let genie = program("genie")?;
    let writer = shown(&program("demo_gguf")?);
    sh(&writer, &[&shown(&folder)], &[])?;
    sh(&writer, &["--families", &shown(&folder)], &[])?;
    let plain = folder.join("demo-F16.gguf");
    for kind in TYPES {
        let file = folder.join(format!("demo-{kind}.gguf"));
        quantise(&args.llama, &[], &plain, &file, kind)?;
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let (text, chunks) = (shown(&args.text), args.chunks.to_string());
    let (mut worst, mut n_failed) = (0.0f64, 0);
    println!("| file | llama.cpp | genie | difference |\n|---|---|---|---|");
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut theirs = Command::new(args.llama.join("llama-perplexity"));
        theirs.arg("-m").arg(&file).args(["-f", &text, "-c", WINDOW, "--chunks", &chunks]);
        let mut ours = Command::new(&genie);
        ours.arg("perplexity").arg("-m").arg(&file).args([&text, "--window", WINDOW, "--chunks", &chunks]);
        ours.env("GENIE_CACHE", folder.join("cache"));
        let (theirs, ours) = match (estimate(&mut theirs), estimate(&mut ours)) {
            (Ok(theirs), Ok(ours)) => (theirs, ours),
            (theirs, ours) => {
                n_failed += 1;
                let why = [theirs.err(), ours.err()].into_iter().flatten().map(|e| e.to_string());
                eprintln!("{name}: {}", why.collect::<Vec<_>>().join("\n"));
                continue;
            }
        };
        let percent = (ours / theirs - 1.0) * 100.0;
        worst = worst.max(percent.abs());
        println!("| {name} | {theirs:.4} | {ours:.4} | {percent:.3} % |");
    }
    ensure!(n_failed == 0, "{n_failed} files have no perplexity");
    ensure!(worst <= MOST, "they differ by {worst:.2} %, expected at most {MOST} %");
    Ok(())
}

/// The number behind `PPL =` in what a program prints. llama.cpp's log sometimes ends before its last line.
fn estimate(command: &mut Command) -> Result<f64> {
    let mut printed = String::new();
    for _ in 0..TRIES {
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if let Some(found) = number(&printed) {
            return Ok(found);
        }
    }
    bail!("{command:?} prints no final estimate:\n{printed}")
}

fn number(printed: &str) -> Option<f64> {
    let (_, rest) = printed.split_once("Final estimate: PPL = ")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn the_estimate_is_read_from_the_line() {
        assert_eq!(number("x\n1.2 I Final estimate: PPL = 26.9425 +/- 0.9\n"), Some(26.9425));
        assert_eq!(number("PPL = 3"), None);
    }
}

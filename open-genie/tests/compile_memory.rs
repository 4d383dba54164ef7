//! Compiling, the proof included, takes memory for a few tensors, not for the model.
//!
//! Each compilation runs in a process of its own, this program's ignored test, which then says what it took at most.

#![cfg(target_os = "linux")]

use std::error::Error;
use std::path::Path;
use std::process::Command;

use compiler::testmodel::{FileDtype, TestModel};
use compiler::{CompileOptions, Family, Silent, Weights};
use open_genie::Options;
use qnn_api::{Backend, BackendOptions, Library};

/// Names the folder of the model, and of the bundle beside it, for the process that compiles.
const MODEL: &str = "COMPILE_MEMORY_MODEL";
/// Names the format of weights.
const WEIGHTS: &str = "COMPILE_MEMORY_WEIGHTS";

/// The most resident memory of this process so far, mapped files included, in MiB.
fn peak_mib() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse::<u64>()? >> 10)
}

#[test]
#[ignore = "runs in processes that the other test starts"]
fn compile_and_tell() -> Result<(), Box<dyn Error>> {
    let model = std::env::var_os(MODEL).ok_or("started by the other test only")?;
    let weights = if std::env::var(WEIGHTS)? == Weights::Q4_0.to_string() { Weights::Q4_0 } else { Weights::Float };
    let backend = Backend::new(&Library::linked(qnn_host::providers())?, &BackendOptions::default())?;
    let bundle = Path::new(&model).with_extension("bundle");
    let mut options = CompileOptions::new(&model, &bundle);
    (options.weights, options.ars, options.cls) = (Some(weights), vec![1, 8, 32], vec![64]);
    let compiled = open_genie::compile(&options, &backend, &Options::new().threads(2), &mut Silent)?;
    assert_eq!(compiled.proof.steps, [1, 8], "the proof ran");
    let bytes: u64 = compiled.manifest.files.iter().map(|file| file.bytes).sum();
    std::fs::remove_dir_all(&bundle)?;
    println!("peak={} bundle={}", peak_mib()?, bytes >> 20);
    Ok(())
}

#[test]
fn the_peak_does_not_grow_with_the_model() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let (layers, hidden, heads) = (16, 512, 8);
    let tiny = TestModel::tiny(Family::Llama);
    let model =
        TestModel { layers, hidden, heads, kv_heads: 2, head_dim: 64, ffn: 3072, dtype: FileDtype::F16, ..tiny };
    let dir = folder.path().join("model");
    model.write(&dir)?;
    for weights in [Weights::Q4_0, Weights::Float] {
        let mut process = Command::new(std::env::current_exe()?);
        process.args(["--exact", "compile_and_tell", "--ignored", "--nocapture"]);
        let done = process.env(MODEL, &dir).env(WEIGHTS, weights.to_string()).output()?;
        let said = String::from_utf8(done.stdout)?;
        assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
        let number = |key: &str| -> Option<u64> {
            let rest = said.split(key).nth(1)?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let (peak, bundle) = (number("peak=").ok_or("no peak")?, number("bundle=").ok_or("no size")?);
        eprintln!("{weights}: a bundle of {bundle} MiB, {peak} MiB at the peak");
        // The largest tensor has 3 MiB in float16, the model 168. When all copies of weights were held together, the peak was
        // about 350 MiB for either format. Weights of up to 64 MiB are compared, and so read, when a bundle is opened.
        assert!(peak < 128, "{peak} MiB at the peak for a bundle of {bundle} MiB in {weights}");
    }
    Ok(())
}

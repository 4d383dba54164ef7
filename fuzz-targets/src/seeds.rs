//! Seeds: small good inputs in `seeds/<target>/`, kept in the repository. [`write()`] makes them with the workspace's own writers.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use compiler::testmodel::Matrices;
use compiler::{CompileOptions, Silent, compile};
use genie_bundle::calibration::{self, Calibration, Machine, StepCost};
use genie_types::TokenId;
use kvmanager::{CacheGroup, Keep, KvCache, KvForm, KvGeometry, KvOptions, Policy, SeqId, SplitGeometry, Variants};
use qnn_api::{Backend, BackendOptions, Library};
use session_store::{DialogState, GenieFolder, GrammarState, SavedSequence, SavedToken, Snapshot};

use crate::targets::models::tiny;
use crate::targets::sessions::{folder_as_seed, schema};

/// The folder of all seeds.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

/// The seeds of a target, in the order of their names.
///
/// # Errors
/// The folder cannot be read.
pub fn read(target: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder().join(target)) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.sort();
    paths.into_iter().map(std::fs::read).collect()
}

/// Makes the seeds that our writers can make. `ops` has none: any bytes describe a graph.
///
/// # Errors
/// A file cannot be written, a model does not compile.
pub fn write() -> Result<()> {
    let put = |target: &str, name: &str, bytes: &[u8]| -> Result<()> {
        let dir = folder().join(target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(name), bytes).with_context(|| format!("seed `{name}` of `{target}`"))
    };
    let place = tempfile::tempdir()?;
    let (model, bundle) = (place.path().join("model"), place.path().join("bundle"));
    tiny().write(&model)?;
    put("model-config", "llama.json", &std::fs::read(model.join("config.json"))?)?;
    put("safetensors", "llama.safetensors", &std::fs::read(model.join("model.safetensors"))?)?;
    put("tokenizer", "bytes.json", &std::fs::read(model.join("tokenizer.json"))?)?;

    for (name, matrices) in [("f16", Matrices::F16), ("q4-0", Matrices::Q4_0)] {
        put("gguf", &format!("{name}.gguf"), &tiny().gguf(matrices)?.bytes())?;
    }

    let backend = Backend::new(&Library::linked(qnn_host::providers())?, &BackendOptions::default())?;
    let options = CompileOptions { ars: vec![1, 4], cls: vec![16], ..CompileOptions::new(&model, &bundle) };
    compile(&options, &backend, &mut Silent)?;
    let config = std::fs::read(bundle.join(genie_bundle::CONFIG_FILE))?;
    put("bundle-config", "compiled.json", &config)?;
    put("manifest", "compiled.json", &std::fs::read(bundle.join(genie_bundle::MANIFEST_FILE))?)?;
    for entry in std::fs::read_dir(&bundle)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "bin") {
            let bytes = std::fs::read(&path)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            put("context-binary", &name, &bytes)?;
            put("container", &name, &bytes)?;
        }
    }
    put(
        "calibration",
        "two-variants.json",
        calibration(genie_bundle::Manifest::read(&bundle)?.backend).to_json().as_bytes(),
    )?;

    let snapshot = session()?;
    put("snapshot", "nine-tokens.kvs", &snapshot.to_bytes())?;
    let dir = place.path().join("session");
    std::fs::create_dir_all(&dir)?;
    GenieFolder::new(&dir).write(&snapshot)?;
    put("genie-folder", "nine-tokens", &folder_as_seed(&dir)?)?;

    for target in ["safetensors", "context-binary", "snapshot", "gguf", "bundle-config", "manifest", "tokenizer"] {
        for (i, seed) in read(target)?.iter().enumerate() {
            put("file-kind", &format!("{target}-{i}"), &seed[..seed.len().min(HEAD)])?;
        }
    }
    Ok(())
}

/// Bytes of a file's beginning that the sniffer gets.
const HEAD: usize = 512;

/// Costs of two variants.
fn calibration(backend: genie_bundle::BackendId) -> Calibration {
    let cost = |ar, us| StepCost { ar, cl: 16, median_us: us, min_us: us * 0.9, max_us: us * 2.0, runs: 21 };
    Calibration {
        format: calibration::FORMAT.into(),
        version: calibration::VERSION,
        build: "fuzz-targets".into(),
        backend,
        machine: Machine { platform: "linux x86_64".into(), cpu: "any".into(), cores: 2 },
        threads: Some(2),
        binaries: "00".repeat(32),
        steps: vec![cost(1, 90.0), cost(4, 160.5)],
        switch_us: 3.25,
        switch_us_per_row: 0.125,
        serving: vec![genie_bundle::calibration::ServingCost { width: 4, median_us: 9.0, median_empty_us: 7.0 }],
    }
}

/// A dialog of nine tokens, eight of them in the cache.
fn session() -> Result<Snapshot> {
    let variants = [(1, 16), (4, 16)].map(|(ar, cl)| genie_types::Variant::new(ar, cl));
    let [one, four] = variants;
    let groups = vec![CacheGroup::plain(KvForm::Concat)];
    let variants = Variants::with_groups([one?, four?], groups, None)?;
    let geometry = KvGeometry { splits: vec![SplitGeometry { tensors: schema().tensors }] };
    let mut kv = KvCache::new(&geometry, variants, KvOptions::default())?;
    let plan = kv.plan(&[(SeqId(0), 8)], &Policy::Lenient)?;
    for planned in plan.steps() {
        let mut step = kv.begin(planned)?;
        for split in (0..step.n_splits()).map(genie_types::SplitIdx) {
            for view in step.split(split)?.views() {
                view.new.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 31 % 60) as u8);
            }
            step.commit(split, Keep::All)?;
        }
        step.finish()?;
    }
    let tokens: Vec<TokenId> = (0..8).map(TokenId).collect();
    Ok(Snapshot {
        model: schema().model,
        image: kv.export()?,
        sequences: vec![SavedSequence { seq: SeqId(0), tokens: SavedToken::prompt(&tokens) }],
        dialog: Some(DialogState {
            unprocessed: Some(TokenId(8)),
            open: false,
            random_state: random_state(),
            grammar: Some(GrammarState { grammar: 7, tokens: vec![TokenId(8)], ended: false }),
            mirostat_mu: Some(7.5),
        }),
        ..Snapshot::default()
    })
}

/// 624 words, as libGenie writes them.
fn random_state() -> String {
    (0..624u32).map(|i| i.wrapping_mul(2_654_435_761).to_string()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn every_seed_runs() {
        for target in TARGETS {
            for seed in read(target.name).unwrap() {
                (target.run)(&seed);
            }
        }
    }

    #[test]
    fn good_seeds_are_accepted() {
        for seed in read("snapshot").unwrap() {
            Snapshot::from_bytes(&seed).unwrap();
        }
        for seed in read("tokenizer").unwrap() {
            genie_tokenizer::Tokenizer::from_bytes(&seed).unwrap();
        }
        for target in
            ["snapshot", "tokenizer", "gguf", "safetensors", "model-config", "bundle-config", "context-binary"]
        {
            assert!(!read(target).unwrap().is_empty(), "no seeds of `{target}`");
        }
    }
}

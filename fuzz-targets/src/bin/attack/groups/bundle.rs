//! Bundles: keys of their JSON files, and their context binaries.

use std::path::Path;

use anyhow::Result;
use fuzz_targets::Rng;
use serde_json::Value;

use crate::base::{Base, copy, run};
use crate::change::{self, replace_file};
use crate::situation::{Expect, Situation, Step};

/// `genie_config.json` or the manifest with a change.
pub(super) fn config(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    copy(&base.bundle, &room.join("b"))?;
    let manifest = rng.one_in(4);
    let file = if manifest { "manifest.json" } else { "genie_config.json" };
    let path = room.join("b").join(file);
    let steps = match rng.below(6) {
        _ if !manifest => vec![run("b")],
        0 => vec![run("b")],
        1 => vec![Step::new(["inspect", "b"])],
        2 => vec![Step::new(["doctor", "b"])],
        _ => vec![Step::new(["verify", "b", "-n", "4"])],
    };
    if rng.one_in(12) {
        let how = replace_file(&path, rng)?;
        let expect = if manifest { Expect::Open } else { Expect::Refuse };
        return Ok(Situation::new(format!("`{file}` {how}"), expect, steps).named([file]));
    }
    let mut document: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let mut change = change::json(&mut document, rng);
    if rng.one_in(5) {
        let second = change::json(&mut document, rng);
        change.what += &format!("; {}", second.what);
        change.names.extend(second.names);
    }
    std::fs::write(&path, document.to_string())?;
    let parts = change.pointer.split('/').filter(|part| part.len() > 2).map(String::from).collect::<Vec<_>>();
    // A config without its object names the object.
    let names = change.names.into_iter().chain(parts);
    Ok(Situation::new(format!("{file}: {}", change.what), Expect::Open, steps).named(names))
}

/// A context binary or another file of the bundle, damaged or replaced.
pub(super) fn binary(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    copy(&base.bundle, &room.join("b"))?;
    let path = room.join("b/model.bin");
    let steps = match rng.below(7) {
        0 => vec![Step::new(["inspect", "b"])],
        1 => vec![Step::new(["inspect", "b/model.bin"])],
        2 => vec![Step::new(["verify", "b", "-n", "4"])],
        3 => vec![Step::new(["doctor", "b"])],
        4 => vec![Step::new(["bench", "-c", "b", "--pp", "4", "--tg", "2"])],
        _ => vec![run("b")],
    };
    let command = steps[0].args[0].clone();
    let mut bytes = std::fs::read(&path)?;
    let (what, expect) = match rng.below(6) {
        0 => {
            let how = replace_file(&path, rng)?;
            return Ok(Situation::new(format!("model.bin {how}"), Expect::Refuse, steps).named(["model.bin"]));
        }
        1 => {
            bytes = std::fs::read(base.other.join("model.bin"))?;
            // A good binary of another model: only what knows the manifest can see it.
            let seen = matches!(command.as_str(), "verify" | "doctor" | "run" | "bench");
            ("model.bin of another model".to_string(), if seen { Expect::Refuse } else { Expect::Open })
        }
        2 => {
            let cut = rng.below(bytes.len());
            bytes.truncate(cut);
            (format!("cut at {cut}"), Expect::Refuse)
        }
        3 => {
            bytes.extend([0; 7]);
            ("seven bytes more".into(), Expect::Open)
        }
        _ => {
            let (at, bit) = (rng.below(bytes.len()), rng.below(8));
            bytes[at] ^= 1 << bit;
            // `inspect` reads the description, not the weights; padding is looked at by hashes only.
            (
                format!("bit {bit} of byte {at} flipped"),
                if command == "inspect" { Expect::Open } else { Expect::Refuse },
            )
        }
    };
    std::fs::write(&path, bytes)?;
    Ok(Situation::new(format!("model.bin: {what}"), expect, steps).named(["model.bin"]))
}

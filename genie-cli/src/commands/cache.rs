//! `genie cache`: what the cache folder holds, and removing it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use file_io::NewFolder;
use indicatif::DecimalBytes;
use open_genie::models::{CompiledModels, ModelState};
use open_genie::{Naive, demo};
use serde_json::json;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Flags of `genie cache`.
#[derive(clap::Args)]
pub struct Args {
    /// Remove what would not be used: bundles whose checkpoint is gone or has changed, and those of other versions.
    #[arg(long)]
    pub prune: bool,
    /// Remove every compiled model, the demo's too. They are compiled again when they are used.
    #[arg(long, conflicts_with = "prune")]
    pub clear: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// A compiled model in the cache.
struct Entry {
    name: String,
    folder: PathBuf,
    bytes: u64,
    state: &'static str,
}

/// Prints the cache's folder and its compiled models, or removes some.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let folder = genie_bundle::cache_folder().ok_or(open_genie::Error::NoCacheFolder)?;
    let entries = entries(&folder)?;
    if !args.prune && !args.clear {
        let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        if args.json {
            let models: Vec<_> = entries.iter().map(Entry::to_json).collect();
            printer.data_line(json!({"folder": folder.display().to_string(), "bytes": total, "models": models}))?;
            return Ok(ExitStatus::Done);
        }
        for entry in &entries {
            printer.data_line(format_args!(
                "{:>9}  {:14}  {}",
                DecimalBytes(entry.bytes).to_string(),
                entry.state,
                entry.name
            ))?;
        }
        printer.data_line(format_args!("{:>9}  in {}", DecimalBytes(total).to_string(), folder.display()))?;
        return Ok(ExitStatus::Done);
    }
    let chosen: Vec<&Entry> =
        entries.iter().filter(|entry| args.clear || entry.state != ModelState::Ready.name()).collect();
    for entry in &chosen {
        // Out of the way whole first, so that a kill leaves no half of a bundle.
        let removed = NewFolder::temporary(&folder, "removed").map_err(open_genie::Error::from)?;
        removed.move_in(&entry.folder).map_err(open_genie::Error::from)?;
        printer.info(format_args!("removed {}, {}", entry.name, DecimalBytes(entry.bytes)));
    }
    let bytes: u64 = chosen.iter().map(|entry| entry.bytes).sum();
    match args.json {
        true => {
            let removed: Vec<_> = chosen.iter().map(|entry| entry.to_json()).collect();
            printer.data_line(json!({"folder": folder.display().to_string(), "bytes": bytes, "removed": removed}))?;
        }
        false => printer.info(format_args!("{} freed", DecimalBytes(bytes))),
    }
    Ok(ExitStatus::Done)
}

impl Entry {
    fn to_json(&self) -> serde_json::Value {
        json!({"name": self.name, "folder": self.folder.display().to_string(), "bytes": self.bytes, "state": self.state})
    }
}

/// The demo's bundles of all versions, the compiled models, then graphs without a cache of either.
fn entries(cache: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let current = demo::folder()?;
    if cache.is_dir() {
        let read = fs::read_dir(cache).with_context(|| format!("cannot read `{}`", cache.display()))?;
        let mut demos: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
        demos.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_demo));
        demos.sort();
        for folder in demos {
            let state = if folder == current { ModelState::Ready } else { ModelState::OtherVersion };
            entries.push(Entry { name: "demo".into(), bytes: bytes_below(&folder), state: state.name(), folder });
        }
    }
    for model in CompiledModels::open().and_then(|store| store.list()).map_err(open_genie::Error::from)? {
        entries.push(Entry {
            bytes: bytes_below(&model.folder),
            state: model.state.name(),
            name: model.name,
            folder: model.folder,
        });
    }
    for (folder, source) in Naive::kept(cache) {
        let state = if source.is_there() { ModelState::Ready } else { ModelState::Gone };
        let of = source.checkpoint.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("without a cache: {of}");
        entries.push(Entry { name, bytes: bytes_below(&folder), state: state.name(), folder });
    }
    Ok(entries)
}

/// `demo-` and sixteen hexadecimal digits.
fn is_demo(name: &str) -> bool {
    name.strip_prefix("demo-").is_some_and(|key| key.len() == 16 && key.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Bytes of the files in a folder and in the folders in it.
pub fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

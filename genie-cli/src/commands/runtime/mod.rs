//! `genie runtime`: Qualcomm's libraries: fetched, and where they are looked for.

pub mod fetch;

use std::path::PathBuf;

use anyhow::Result;
use qnn_api::library::runtime;
use serde_json::{Value, json};

use crate::exit::ExitStatus;
use crate::printer::Printer;
use fetch::Machine;

/// Flags of `genie runtime`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Fetch Qualcomm's QNN libraries, the HTP emulator of a host among them, with pip.
    Fetch(FetchArgs),
    /// Show where the libraries are looked for, and which ones are used.
    Find(FindArgs),
}

#[derive(clap::Args)]
struct FetchArgs {
    /// The machine whose libraries are fetched.
    #[arg(long, value_enum, default_value_t = Machine::host())]
    target: Machine,
    /// Keep them in this folder, in one for each machine [default: `qnn-runtime` in the cache folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Fetch and unpack again, even if they are there.
    #[arg(long)]
    force: bool,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct FindArgs {
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether it prints JSON.
    pub fn json(&self) -> bool {
        match &self.action {
            Action::Fetch(args) => args.json,
            Action::Find(args) => args.json,
        }
    }
}

/// Fetches, or shows. `find` ends with 1 where a library is not found.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    match &args.action {
        Action::Fetch(args) => {
            let folder = args.folder.clone().map_or_else(fetch::default_folder, Ok)?;
            let found = fetch::contents(&fetch::unpacked(args.target, &folder, args.force, printer)?)?;
            if args.json {
                printer.data_line(serde_json::to_string(&found)?)?;
            } else {
                found.lines().into_iter().try_for_each(|line| printer.data_line(line))?;
            }
            Ok(ExitStatus::Done)
        }
        Action::Find(args) => find(args, printer),
    }
}

fn find(args: &FindArgs, printer: &Printer) -> Result<ExitStatus> {
    let libraries = [runtime::HTP, runtime::SYSTEM].map(|name| (name, runtime::find(name), runtime::places(name)));
    let all = libraries.iter().all(|(_, found, _)| found.is_some());
    if args.json {
        let one = |(name, found, places): &(&str, Option<PathBuf>, Vec<PathBuf>)| -> Value {
            json!({"library": name, "found": found, "places": places})
        };
        printer.data_line(json!({"libraries": libraries.iter().map(one).collect::<Vec<_>>()}))?;
    } else {
        for (name, found, places) in &libraries {
            match found {
                Some(path) => printer.data_line(format_args!("{name}  {}", path.display()))?,
                None => {
                    printer.data_line(format_args!("{name}  not found in any of"))?;
                    places.iter().try_for_each(|place| printer.data_line(format_args!("  {}", place.display())))?;
                }
            }
        }
    }
    Ok(if all { ExitStatus::Done } else { ExitStatus::Failed })
}

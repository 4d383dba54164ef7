//! `genie deploy`: program, libraries and bundle onto a device, checked there, and a first prompt.
//!
//! The wire is the system's `ssh` or `adb`. A run that was cut off is taken up by the next one.

mod adb;
mod address;
mod device;
mod elf;
mod files;
mod first_run;
mod parcel;
mod ssh;
mod transfer;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::runtime::fetch::{self, Machine};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;
use adb::Adb;
use address::Address;
use device::{Device, Probe, ask, quoted};
use first_run::{FirstRun, Question};
use parcel::{Backend, Bundle, Item, PROGRAM, libraries, name_of};
use ssh::Ssh;
use transfer::Action;

/// Where to, and what.
#[derive(clap::Args)]
pub struct Args {
    /// The device and a folder on it: `ssh:HOST:DIR` or `adb:SERIAL:DIR`.
    #[arg(long, value_name = "ADDRESS")]
    to: Address,
    /// Folder of a compiled model with its genie_config.json.
    bundle: PathBuf,
    /// The program to send [default: this one, where it is for the device's machine].
    #[arg(long, value_name = "FILE")]
    genie: Option<PathBuf>,
    /// Folder of Qualcomm's libraries [default: those of `genie runtime fetch` for the device's machine, fetched if they are missing].
    #[arg(long, value_name = "DIR")]
    libs: Option<PathBuf>,
    /// Who executes the graphs [default: whom the bundle was compiled for].
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// DSP architectures whose stubs and skels are sent, `v75` or so [default: the bundle's, else all].
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<String>,
    /// Prompt of the first run.
    #[arg(long, short, default_value = "Once upon a time")]
    prompt: String,
    /// Most tokens of the first run.
    #[arg(long, short = 'n', default_value_t = 16, value_name = "TOKENS")]
    max_tokens: u32,
    /// Send and check only.
    #[arg(long)]
    no_run: bool,
    /// One JSON document instead of a report.
    #[arg(long)]
    pub json: bool,
    /// An argument for ssh, once for each: `--ssh-arg=-p2222 --ssh-arg=-i --ssh-arg=KEY`.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    ssh_arg: Vec<String>,
    /// The adb program.
    #[arg(long, value_name = "FILE", default_value = "adb")]
    adb: PathBuf,
}

/// What was done.
#[derive(Debug, Serialize)]
pub struct Report {
    device: String,
    machine: String,
    system: String,
    dir: String,
    backend: String,
    files: Vec<Sent>,
    first_run: Option<FirstRun>,
}

/// A file of the report.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Sent {
    file: String,
    bytes: u64,
    sha256: String,
    /// The first byte that was sent; nothing when the file was there.
    sent_from: Option<u64>,
    /// The build that a QNN library names inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<String>,
}

/// Deploys and prints the report.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let report = deploy(args, printer).map_err(with_hint)?;
    if args.json {
        printer.data_line(serde_json::to_string(&report)?)?;
    } else {
        print(&report, printer)?;
    }
    Ok(ExitStatus::Done)
}

/// The hint at the end of a message becomes the error's own.
fn with_hint(error: anyhow::Error) -> anyhow::Error {
    match format!("{error:#}").split_once("\nhint: ") {
        Some((message, hint)) => UserError::error(message, hint),
        None => error,
    }
}

fn deploy(args: &Args, printer: &Printer) -> Result<Report> {
    let bundle = Bundle::open(&args.bundle)?;
    let backend = args.backend.unwrap_or(bundle.backend);
    ensure!(
        backend == bundle.backend,
        "`{}` was compiled for backend {:?} and cannot run on {backend:?}",
        args.bundle.display(),
        bundle.backend
    );
    let (device, dir): (Box<dyn Device>, &str) = match &args.to {
        Address::Ssh { host, dir } => (Box::new(Ssh::connect(host, &args.ssh_arg)?), dir),
        Address::Adb { serial, dir } => (Box::new(Adb::connect(&args.adb, serial)?), dir),
    };
    let device = &*device;
    let probe = Probe::of(device, dir)?;
    printer.info(format_args!("{}: {}, {}, {}", device.name(), probe.machine, probe.system, probe.dir));

    let program = match &args.genie {
        Some(file) => file.clone(),
        None => std::env::current_exe().context("cannot find this program's own file")?,
    };
    check_program(device, &probe, &program)?;
    let mut items = vec![Item::new(&program, PROGRAM.to_owned())?];
    if backend == Backend::Htp {
        let folder = match &args.libs {
            Some(folder) => folder.clone(),
            None => fetch::fetched(machine_of(&probe.machine)?, printer)?,
        };
        let named: BTreeSet<String> = args.arch.iter().map(|arch| arch.to_lowercase()).collect();
        for path in libraries(&folder, &probe.machine, if named.is_empty() { &bundle.archs } else { &named })? {
            let head = elf::Head::read(&path)?;
            ensure!(
                head.machine == probe.machine || head.machine == "hexagon",
                "`{}` is for {}, `{}` is {}",
                path.display(),
                head.machine,
                device.name(),
                probe.machine
            );
            items.push(Item::new(&path, format!("lib/{}", name_of(&path)))?);
        }
    }
    items.extend(bundle.items()?);

    let actions = transfer::run(device, &probe, &items, |item, action| report(item, action, printer))?;
    let files = items.iter().zip(actions).map(|(item, action)| sent(item, action)).collect::<Result<_>>()?;
    let question = Question { prompt: &args.prompt, max_tokens: args.max_tokens, backend };
    let first_run = (!args.no_run).then(|| FirstRun::on(device, &probe, &question)).transpose()?;
    Ok(Report {
        device: device.name(),
        machine: probe.machine,
        system: probe.system,
        dir: probe.dir,
        backend: format!("{backend:?}").to_lowercase(),
        files,
        first_run,
    })
}

fn machine_of(machine: &str) -> Result<Machine> {
    Ok(match machine {
        "aarch64" => Machine::Aarch64,
        "x86_64" => Machine::X86_64,
        other => {
            bail!("Qualcomm's libraries are fetched for aarch64 and x86_64, not for {other}; `--libs DIR` names others")
        }
    })
}

/// Whether the device can start it: its machine, and the loader that it asks for.
fn check_program(device: &dyn Device, probe: &Probe, program: &Path) -> Result<()> {
    let head = elf::Head::read(program)?;
    ensure!(
        head.machine == probe.machine,
        "wrong architecture: `{}` is built for {}, `{}` is {}\nhint: `--genie FILE` sends another program; `cargo xtask build --release --target {}-unknown-linux-gnu` makes one in a clone of the repository",
        program.display(),
        head.machine,
        device.name(),
        probe.machine,
        probe.machine
    );
    let Some(loader) = head.loader else { return Ok(()) };
    let there = ask(device, "look for the loader", &format!("test -e {} && echo yes; true", quoted(&loader)))?;
    ensure!(
        there.trim() == "yes",
        "`{}` cannot start on `{}` ({}): it asks for the loader `{loader}`, which is not there\nhint: Android needs a program \
         that was built with its NDK; give it with `--genie FILE`",
        program.display(),
        device.name(),
        probe.system
    );
    Ok(())
}

fn report(item: &Item, action: Action, printer: &Printer) {
    let size = format!("{:.1} MB", item.bytes as f64 / 1e6);
    match action {
        Action::Kept => printer.info(format_args!("  {:<36} {size:>10}  is there", item.to)),
        Action::Sent => printer.info(format_args!("  {:<36} {size:>10}  sending", item.to)),
        Action::Continued(from) => {
            printer.info(format_args!("  {:<36} {size:>10}  sending from {:.1} MB on", item.to, from as f64 / 1e6));
        }
    }
}

fn sent(item: &Item, action: Action) -> Result<Sent> {
    let build = match item.to.starts_with("lib/libQnn") {
        true => fetch::build_inside(&std::fs::read(&item.from)?).map(str::to_owned),
        false => None,
    };
    Ok(Sent {
        file: item.to.clone(),
        bytes: item.bytes,
        sha256: item.sha256.clone(),
        sent_from: match action {
            Action::Kept => None,
            Action::Continued(from) => Some(from),
            Action::Sent => Some(0),
        },
        build,
    })
}

fn print(report: &Report, printer: &Printer) -> Result<()> {
    let n_new = report.files.iter().filter(|file| file.sent_from.is_some()).count();
    let n_bytes: u64 = report.files.iter().filter_map(|file| Some(file.bytes - file.sent_from?)).sum();
    printer.data_line(format_args!("device       {} ({}, {})", report.device, report.machine, report.system))?;
    printer.data_line(format_args!(
        "folder       {}: {} files, all checksums right",
        report.dir,
        report.files.len()
    ))?;
    printer.data_line(format_args!("sent         {n_new} files, {:.1} MB", n_bytes as f64 / 1e6))?;
    printer.data_line(format_args!("backend      {}", report.backend))?;
    for file in &report.files {
        if let Some(build) = &file.build {
            printer.data_line(format_args!("library      {} {build}", file.file))?;
        }
    }
    let Some(run) = &report.first_run else { return Ok(()) };
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1} tokens/s"));
    printer.data_line(format_args!("program      {}", run.version))?;
    printer.data_line(format_args!("first token  {:.1} ms", run.time_to_first_token_ms))?;
    printer.data_line(format_args!("prompt       {}", rate(run.prompt_rate)))?;
    printer.data_line(format_args!(
        "generation   {}, {} tokens, stopped by {}",
        rate(run.generation_rate),
        run.n_tokens,
        run.stop
    ))?;
    printer.data_line(format_args!("reply        {}", run.text.trim()))?;
    Ok(())
}

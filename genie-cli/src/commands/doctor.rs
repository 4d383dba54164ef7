//! `genie doctor`: checks a bundle, or this machine's libraries, for problems on a device without loading anything there.

use std::path::PathBuf;

use anyhow::{Context, Result};
use doctor::{Environment, Report, Request, Severity, collect, examine};
use genie_bundle::config::GenieApi;
use qnn_api::soc::SOCS;
use qnn_api::{Soc, SystemLibrary};

use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::hints;
use crate::printer::Printer;

/// Flags of `genie doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// A bundle's folder, its `genie_config.json`, or a context binary [default: check this machine's libraries only].
    pub bundle: Option<PathBuf>,
    /// Target device: a SoC by name or Qualcomm's number [default: this machine's SoC, if it has one].
    #[arg(long, value_name = "sm8650|x-elite|57|..")]
    pub soc: Option<String>,
    /// Look for QNN's libraries in this folder first.
    #[arg(long, value_name = "DIR")]
    pub libs: Option<PathBuf>,
    /// Version of the Genie API that reads the config [default: that of the libraries' release].
    #[arg(long, value_name = "1.21")]
    pub genie_api: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 on warnings as well as errors.
    #[arg(long)]
    pub strict: bool,
    /// Do not compare the files' contents with the hashes in the manifest.
    #[arg(long, alias = "quick")]
    pub skip_hashes: bool,
}

/// Collects, examines, reports. The exit code is 1 if a finding is an error, 2 if a flag's value makes no sense.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let request = match request(args) {
        Ok(request) => request,
        Err(error) => {
            printer.failure(&error);
            return Ok(ExitStatus::Usage);
        }
    };
    let host = SystemLibrary::linked(qnn_host::providers());
    let host = host.context("cannot use the embedded backend")?;
    let facts = match collect(&request, &Environment::current(), &[("embedded backend", host)]) {
        Ok(facts) => facts,
        Err(error) => {
            printer.failure(&error.into());
            return Ok(ExitStatus::Usage);
        }
    };
    let findings = examine(&facts);
    let report = Report::new(&facts, &findings).worded(hints::doctor::words);
    if args.json {
        printer.data_line(report.to_json())?;
    } else {
        printer.data_line(report)?;
    }
    let bad = report.count(Severity::Error) > 0 || (args.strict && !findings.is_empty());
    Ok(if bad { ExitStatus::Failed } else { ExitStatus::Done })
}

fn request(args: &Args) -> Result<Request> {
    let soc = |name: &String| {
        let known = name.parse().ok().and_then(Soc::by_id).or_else(|| Soc::by_name(name));
        let names = || SOCS.iter().map(|soc| soc.name.to_lowercase()).collect::<Vec<_>>().join(", ");
        known.ok_or_else(|| UserError::error(format!("unknown SoC `{name}`"), format!("use one of {}", names())))
    };
    let api = |text: &String| {
        let hint = "use two numbers, for example `1.21` for QAIRT 2.51";
        GenieApi::parse(text).ok_or_else(|| UserError::error(format!("`{text}` is no version of the Genie API"), hint))
    };
    Ok(Request {
        subject: args.bundle.clone(),
        soc: args.soc.as_ref().map(soc).transpose()?,
        genie_api: args.genie_api.as_ref().map(api).transpose()?,
        libraries: args.libs.clone(),
        skip_hashes: args.skip_hashes,
    })
}

//! `genie doctor`: what will go wrong with a bundle, or with this machine's libraries, before anything is loaded.

use anyhow::{Context, Result};
use dialog::config::GenieApi;
use doctor::{DoctorError, Report, Request, Severity, Surroundings, collect, examine};
use qnn_api::soc::SOCS;
use qnn_api::{Soc, SystemLibrary};

use super::ExitStatus;
use crate::cli::DoctorArgs;
use crate::failure::Hinted;
use crate::printer::Printer;

/// Collects, examines, reports. Errors among the findings end in 1, questions that make no sense in 2.
pub fn run(args: &DoctorArgs, printer: &Printer) -> Result<ExitStatus> {
    let request = match request(args) {
        Ok(request) => request,
        Err(error) => {
            printer.failure(&error);
            return Ok(ExitStatus::Usage);
        }
    };
    let host = SystemLibrary::linked(qnn_host::providers());
    let host = host.context("cannot use the embedded backend")?;
    let case = match collect(&request, &Surroundings::here(), &[("embedded backend", host)]) {
        Ok(case) => case,
        Err(error) => {
            let hint = match error {
                DoctorError::NoSubject { .. } => "give a bundle's folder, its genie_config.json or a context binary",
                _ => "give a folder with `libQnnHtp.so` and `libQnnSystem.so`",
            };
            printer.failure(&Hinted::error(error.to_string(), hint));
            return Ok(ExitStatus::Usage);
        }
    };
    let findings = examine(&case);
    let report = Report { case: &case, findings: &findings };
    if args.json {
        printer.line(report.to_json())?;
    } else {
        printer.line(report)?;
    }
    let bad = report.count(Severity::Error) > 0 || (args.strict && !findings.is_empty());
    Ok(if bad { ExitStatus::Failed } else { ExitStatus::Done })
}

fn request(args: &DoctorArgs) -> Result<Request> {
    let soc = |name: &String| {
        let known = name.parse().ok().and_then(Soc::by_id).or_else(|| Soc::by_name(name));
        let names = || SOCS.iter().map(|soc| soc.name.to_lowercase()).collect::<Vec<_>>().join(", ");
        known.ok_or_else(|| Hinted::error(format!("unknown chip `{name}`"), format!("known are {}", names())))
    };
    let api = |text: &String| {
        let hint = "two numbers, for example `1.21`; that of QAIRT 2.51";
        GenieApi::parse(text).ok_or_else(|| Hinted::error(format!("`{text}` is no version of Genie's API"), hint))
    };
    Ok(Request {
        subject: args.bundle.clone(),
        soc: args.soc.as_ref().map(soc).transpose()?,
        genie_api: args.genie_api.as_ref().map(api).transpose()?,
        libraries: args.libs.clone(),
        quick: args.quick,
    })
}

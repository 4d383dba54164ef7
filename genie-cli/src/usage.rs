//! The command line as clap reads it: help and versions are data, mistakes are errors with exit code 2.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write, stderr, stdin, stdout};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};
use serde_json::json;

use crate::args::Verbosity;
use crate::cli::Cli;
use crate::commands::examples;
use crate::defaults::Defaults;
use crate::escape::escape;
use crate::exit::ExitStatus;
use crate::failure::code::USAGE;
use crate::other_spellings::long_forms;
use crate::printer::Printer;
use crate::unknown_flag;
use crate::version;

/// The command, or the exit code where there is none to run.
pub fn parse() -> Result<Cli, ExitCode> {
    let mut command = Cli::command();
    if std::env::args_os().any(|arg| arg == OsStr::new("--version")) {
        command = command.long_version(version::text());
    }
    let read = || {
        let defaults = Defaults::read()?;
        Ok((defaults.apply(examples::add_to(command))?, defaults))
    };
    let (command, defaults) = read().map_err(|error: anyhow::Error| {
        Printer::new(Verbosity { quiet: false, verbose: 0 }, asks_for_json()).failure(&error);
        ExitCode::from(ExitStatus::Usage)
    })?;
    let parsed = matches(command).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        if let Some(name) = matches.subcommand_name().filter(|_| defaults.has_others()) {
            let printer = Printer::new(cli.verbosity, cli.command.json());
            let warnings = Cli::command().find_subcommand(name).map_or_else(Vec::new, |asked| defaults.warnings(asked));
            warnings.iter().for_each(|text| printer.info(text));
        }
        Ok(cli)
    });
    parsed.map_err(|mut error| {
        unknown_flag::advise(&mut error);
        if !error.use_stderr() {
            let printed = error.print();
            // A reader that left has seen what it wanted of the help.
            let failed = printed.is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe);
            return if failed { ExitStatus::Failed.into() } else { ExitStatus::Done.into() };
        }
        // A mistake is quoted; help is clap's own text.
        let _ = stderr().lock().write_all(escape(&error.render().to_string()).as_bytes());
        if asks_for_json() {
            let _ = writeln!(stdout().lock(), "{}", document(&error));
        }
        ExitStatus::Usage.into()
    })
}

/// A value that begins like a negative number is a value: its range is then said by the flag.
fn matches(command: clap::Command) -> Result<ArgMatches, clap::Error> {
    let negative = |arg: Arg| match arg.get_action() {
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    };
    let mut args = long_forms(std::env::args_os());
    if args.len() == 1 && stdin().is_terminal() && stdout().is_terminal() {
        // A bare `genie` talks.
        args.push("chat".into());
    }
    command.mut_subcommands(|command| command.mut_args(negative)).try_get_matches_from(args)
}

fn asks_for_json() -> bool {
    std::env::args_os().skip(1).take_while(|arg| arg != OsStr::new("--")).any(|arg| arg == OsStr::new("--json"))
}

/// The JSON form of clap's message: its first line, and its tip or else the usage.
fn document(error: &clap::Error) -> serde_json::Value {
    let text = error.render().to_string();
    let lines = || text.lines().map(str::trim);
    let message = lines().next().unwrap_or_default().trim_start_matches("error: ");
    let tip = lines().find_map(|line| line.strip_prefix("tip: ")).map(str::to_owned);
    let hint = tip.or_else(|| lines().find(|line| line.starts_with("Usage: ")).map(str::to_owned));
    let rest = lines().skip(1).take_while(|line| !line.is_empty()).collect::<Vec<_>>();
    let message = [&[message], &rest[..]].concat().join(" ");
    json!({"error": {"code": USAGE, "message": message, "hint": hint, "cause": []}})
}

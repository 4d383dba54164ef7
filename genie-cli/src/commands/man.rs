//! `genie man`: manual pages of all commands.

use std::path::PathBuf;

use anyhow::Result;
use clap::Command;

use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::outfile;
use crate::printer::Printer;

/// Flags of `genie man`.
#[derive(clap::Args)]
pub struct Args {
    /// Print the page of this command [default: that of `genie`].
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    pub command: Option<String>,
    /// Write all pages into this folder, one file a command: `genie.1`, `genie-run.1` and so on.
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Print the help of all commands as one Markdown page.
    #[arg(long, conflicts_with_all = ["command", "output"])]
    pub markdown: bool,
}

/// Prints a page, or writes all.
pub fn run(args: &Args, whole: Command, printer: &Printer) -> Result<ExitStatus> {
    let mut whole = super::examples::add_to(whole);
    whole.build();
    let commands: Vec<&Command> = whole.get_subcommands().filter(|command| command.get_name() != "help").collect();
    if args.markdown {
        printer.data(&markdown(&whole))?;
        return Ok(ExitStatus::Done);
    }
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder).map_err(|error| {
            anyhow::Error::new(error).context(format!("cannot make the folder `{}`", folder.display()))
        })?;
        let names = commands.iter().map(|command| (format!("genie-{}.1", command.get_name()), *command));
        for (name, command) in std::iter::once(("genie.1".to_owned(), &whole)).chain(names) {
            outfile::write("--output", &folder.join(&name), &page(command)?)?;
            printer.data_line(folder.join(name).display())?;
        }
        return Ok(ExitStatus::Done);
    }
    let command = match &args.command {
        None => &whole,
        Some(name) => commands.iter().copied().find(|command| command.get_name() == name).ok_or_else(|| {
            let names: Vec<&str> = commands.iter().map(|command| command.get_name()).collect();
            UserError::error(format!("unknown command `{name}`"), format!("use one of {}", names.join(", ")))
        })?,
    };
    printer.raw(page(command)?.as_bytes())?;
    Ok(ExitStatus::Done)
}

/// The whole reference: a heading and the help for each command, also for commands of commands.
fn markdown(whole: &Command) -> String {
    fn of(command: &Command, path: &str, page: &mut String) {
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let path = format!("{path} {}", sub.get_name());
            let help = sub.clone().bin_name(path.clone()).term_width(100).render_long_help().to_string();
            let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
            page.push_str(&format!("\n## {path}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()));
            of(sub, &path, page);
        }
    }
    let mut page = "# Commands\n\nWhat `genie COMMAND --help` prints.\n".to_owned();
    of(whole, "genie", &mut page);
    page
}

/// A page in roff.
fn page(command: &Command) -> Result<String> {
    let name = match command.get_name() {
        "genie" => "genie".to_owned(),
        name => format!("genie-{name}"),
    };
    let mut bytes = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).section("1").render(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

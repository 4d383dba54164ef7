//! Prints data to stdout and everything else to stderr, in colour on a terminal; knows the signals that end the program.
//!
//! A reader of stdout that leaves ends the printing, not the work: from then on data goes nowhere. Any other failure to write
//! is an error.

mod output;

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use crate::args::Verbosity;
use crate::escape::escape;
use crate::interrupt::{Interrupt, Interrupted, Signal};
use crate::{failure, hints, log_format};
use output::Output;

pub use output::OutputError;

/// Writes to stdout and stderr, as verbose as the flags ask.
#[derive(Clone)]
pub struct Printer {
    verbosity: Verbosity,
    /// Failures are data, too.
    json: bool,
    colour: bool,
    out: Arc<Output>,
    interrupt: Interrupt,
}

impl Printer {
    /// Colours only on a terminal, and not when `NO_COLOR` is set. With `json` failures also go to stdout, as JSON.
    pub fn new(verbosity: Verbosity, json: bool) -> Self {
        let colour = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Self { verbosity, json, colour, out: Arc::default(), interrupt: Interrupt::default() }
    }

    /// Sends the libraries' log to stderr; `GENIE_LOG` overrides the flags.
    pub fn start_log(&self) {
        let level = match (self.verbosity.quiet, self.verbosity.verbose) {
            (true, _) => "error",
            // QNN libraries warn about themselves (the emulator at every start): their errors only.
            (_, 0) => "warn,qnn=error,qnn_api=warn",
            (_, 1) => "info",
            (_, 2) => "debug",
            _ => "trace",
        };
        let asked = std::env::var("GENIE_LOG").ok().filter(|filter| !filter.is_empty());
        let filter = asked.and_then(|asked| match EnvFilter::try_new(&asked) {
            Ok(filter) => Some(filter),
            Err(why) => {
                self.info(format_args!("warning: `GENIE_LOG={asked}` is no filter ({why}): it is ignored"));
                None
            }
        });
        let filter = filter.unwrap_or_else(|| EnvFilter::new(level));
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(stderr)
            .with_ansi(self.colour)
            // A closed stderr is no failure; without this, the subscriber panics there.
            .log_internal_errors(false)
            .without_time();
        match self.verbosity.verbose {
            0 => log.event_format(log_format::Plain).init(),
            _ => log.init(),
        }
    }

    /// Handles Ctrl-C and the like from now on.
    pub fn start_signals(&self) {
        let printer = self.clone();
        if let Err(error) = self.interrupt.listen(move |signal| printer.announce(signal)) {
            self.info(format_args!("warning: signals will end this program without saving: {error}"));
        }
    }

    /// The signals that end the program.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// A line of data.
    ///
    /// # Errors
    /// stdout cannot be written, except where its reader has left: then nothing is printed any more.
    pub fn data_line(&self, text: impl Display) -> Result<()> {
        Ok(self.out.write(format!("{}\n", escape(&text.to_string())).as_bytes())?)
    }

    /// Data without a line end, flushed: streamed text. Control characters of a model's text reach a pipe, not a terminal.
    ///
    /// # Errors
    /// As [`Self::data_line`].
    pub fn data(&self, text: &str) -> Result<()> {
        let text = if stdout().is_terminal() { escape(text) } else { text.into() };
        Ok(self.out.write(text.as_bytes())?)
    }

    /// Bytes as they are: scripts and pages for other programs.
    ///
    /// # Errors
    /// As [`Self::data_line`].
    pub fn raw(&self, bytes: &[u8]) -> Result<()> {
        Ok(self.out.write(bytes)?)
    }

    /// A control sequence of ours for the terminal, such as a colour.
    ///
    /// # Errors
    /// As [`Self::data_line`].
    pub fn style(&self, sequence: &str) -> Result<()> {
        Ok(self.out.write(sequence.as_bytes())?)
    }

    /// False once the reader of stdout has left (`genie ... | head`): what is printed goes nowhere.
    pub fn has_reader(&self) -> bool {
        self.out.has_reader()
    }

    /// A message on stderr; not when quiet.
    pub fn info(&self, text: impl Display) {
        if !self.verbosity.quiet {
            // A closed stderr is no failure.
            let text = escape(&text.to_string()).into_owned();
            let _ = writeln!(stderr().lock(), "{}", if self.colour { labelled(&text) } else { text });
        }
    }

    /// An error with its causes and its hint; with `--json` as a line of data as well.
    pub fn failure(&self, error: &anyhow::Error) {
        let label = if self.colour { "\x1b[1;31merror\x1b[0m" } else { "error" };
        let mut text = format!("{label}: {}\n", escape(&error.to_string()));
        for cause in failure::causes(error) {
            text.push_str(&format!("  caused by: {}\n", escape(&cause)));
        }
        if let Some(hint) = hints::of(error) {
            let label = if self.colour { "\x1b[1;36mhint\x1b[0m" } else { "hint" };
            text.push_str(&format!("\n{label}: {}\n", escape(&hint)));
        }
        let _ = stderr().lock().write_all(text.as_bytes());
        self.failure_line(&failure::document(error));
    }

    /// The end by a signal of a command that had deferred it.
    pub fn interrupted(&self, signal: Signal, error: anyhow::Error) {
        let error = failure::as_interruption(signal, error);
        self.info(&error);
        self.failure_line(&failure::document(&error));
    }

    /// The end by a signal, on the thread that waits for it.
    fn announce(&self, signal: Signal) {
        let error = anyhow::Error::new(Interrupted::new(signal, ""));
        self.info(&error);
        if self.json {
            // The program ends: a failure to say so as well cannot be said.
            let _ = self.out.write_if_free(format!("{}\n", failure::document(&error)).as_bytes());
        }
    }

    fn failure_line(&self, document: &Value) {
        if self.json {
            // Already on stderr.
            let _ = self.out.write(format!("{document}\n").as_bytes());
        }
    }

    /// A progress bar of `length` items or bytes; hidden when quiet or when stderr is not a terminal.
    pub fn bar(&self, length: u64, what: &str, bytes: bool) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(length), self.target());
        let style = ProgressStyle::with_template(if bytes {
            "{msg:24} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {elapsed}, {eta} left"
        } else {
            "{msg:24} [{bar:32}] {pos}/{len} {elapsed}, {eta} left"
        });
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_message(escape(what).into_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    fn target(&self) -> ProgressDrawTarget {
        if self.verbosity.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
    }
}

/// Colours the word that says how bad it is.
fn labelled(text: &str) -> String {
    let labels = [("warning:", "\x1b[1;33m"), ("note:", "\x1b[1;36m"), ("hint:", "\x1b[1;36m")];
    let found = labels.iter().find_map(|(label, colour)| Some((label, colour, text.strip_prefix(label)?)));
    found.map_or_else(|| text.to_owned(), |(label, colour, rest)| format!("{colour}{label}\x1b[0m{rest}"))
}

#[cfg(test)]
mod tests {
    use super::labelled;

    #[test]
    fn labels_are_coloured_and_nothing_else() {
        assert_eq!(labelled("warning: x"), "\x1b[1;33mwarning:\x1b[0m x");
        assert_eq!(labelled("prompt 5"), "prompt 5");
    }
}

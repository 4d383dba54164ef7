//! Prints data to stdout and everything else to stderr, in colour on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;

use crate::args::Verbosity;
use crate::escape::escape;
use crate::{failure, hints, log_format};

/// Writes to stdout and stderr, as verbose as the flags ask.
pub struct Printer {
    verbosity: Verbosity,
    colour: bool,
}

impl Printer {
    /// Colours only on a terminal, and not when `NO_COLOR` is set.
    pub fn new(verbosity: Verbosity) -> Self {
        let colour = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Self { verbosity, colour }
    }

    /// Sends the libraries' log to stderr; `GENIE_LOG` overrides the flags.
    pub fn start_log(&self) {
        let level = match (self.verbosity.quiet, self.verbosity.verbose) {
            (true, _) => "error",
            // QNN libraries warn about themselves (the emulator at every start): their errors only.
            (_, 0) => "warn,qnn=error",
            (_, 1) => "info",
            (_, 2) => "debug",
            _ => "trace",
        };
        let filter = EnvFilter::try_from_env("GENIE_LOG").unwrap_or_else(|_| EnvFilter::new(level));
        let log =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(self.colour).without_time();
        match self.verbosity.verbose {
            0 => log.event_format(log_format::Plain).init(),
            _ => log.init(),
        }
    }

    /// A line of data.
    pub fn data_line(&self, text: impl Display) -> Result<()> {
        writeln!(stdout().lock(), "{}", escape(&text.to_string()))?;
        Ok(())
    }

    /// Data without a line end, flushed: streamed text. Control characters of a model's text reach a pipe, not a terminal.
    pub fn data(&self, text: &str) -> Result<()> {
        let text = if stdout().is_terminal() { escape(text) } else { text.into() };
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// A message on stderr; not when quiet.
    pub fn info(&self, text: impl Display) {
        if !self.verbosity.quiet {
            // A closed stderr is no failure.
            let _ = writeln!(stderr().lock(), "{}", escape(&text.to_string()));
        }
    }

    /// An error with its causes and its hint.
    pub fn failure(&self, error: &anyhow::Error) {
        let label = if self.colour { "\x1b[1;31merror\x1b[0m" } else { "error" };
        let mut text = format!("{label}: {}\n", escape(&error.to_string()));
        for cause in failure::causes(error) {
            text.push_str(&format!("  caused by: {}\n", escape(&cause)));
        }
        if let Some(hint) = hints::of(error) {
            text.push_str(&format!("\nhint: {}\n", escape(&hint)));
        }
        let _ = stderr().lock().write_all(text.as_bytes());
    }

    /// A progress bar of `length` items or bytes; hidden when quiet or when stderr is not a terminal.
    pub fn bar(&self, length: u64, what: &str, bytes: bool) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(length), self.target());
        let style = ProgressStyle::with_template(if bytes {
            "{msg:24} [{bar:32}] {bytes}/{total_bytes} {elapsed}"
        } else {
            "{msg:24} [{bar:32}] {pos}/{len} {elapsed}"
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

//! What the user types: edited lines with a history at a terminal, plain lines from a pipe.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor};

use crate::interrupt::Interrupt;
use crate::printer::Printer;

/// Lines that the history keeps.
const HISTORY: usize = 1000;

/// A message, or not.
pub enum Line {
    Text(String),
    Nothing,
    End,
}

/// Where messages come from.
pub struct Input {
    source: Source,
    /// What the next line begins with.
    prefill: Option<String>,
}

enum Source {
    Terminal { editor: Box<Editor<(), DefaultHistory>>, history: Option<PathBuf>, prompts: [&'static str; 2] },
    Pipe,
}

impl Input {
    /// stdin.
    pub fn new(printer: &Printer) -> Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Self { source: Source::Pipe, prefill: None });
        }
        let config = Config::builder().max_history_size(HISTORY)?.auto_add_history(false).build();
        let mut editor = Editor::with_config(config).context("cannot read from the terminal")?;
        restore_mode_at_end(printer.interrupt());
        let history = history_file();
        if let Some(file) = history.as_deref().filter(|file| file.is_file())
            && let Err(error) = editor.load_history(file)
        {
            printer.info(format_args!("warning: the history in `{}` is not used: {error}", file.display()));
        }
        Ok(Self {
            source: Source::Terminal { editor: Box::new(editor), history, prompts: ["> ", ". "] },
            prefill: None,
        })
    }

    /// Whether somebody types.
    pub fn is_terminal(&self) -> bool {
        matches!(self.source, Source::Terminal { .. })
    }

    /// The next line begins with this text, to be changed. A pipe takes it as it is.
    pub fn prefill(&mut self, text: String) {
        self.prefill = self.is_terminal().then_some(text);
    }

    /// The next message: a line, more where it ends in a backslash, or all between two `"""`.
    pub fn read(&mut self) -> Result<Line> {
        let mut text = String::new();
        let mut quoted = false;
        loop {
            let more = !text.is_empty() || quoted;
            let Some(line) = self.line(more)? else {
                return Ok(if more { Line::Text(text) } else { Line::End });
            };
            let Some(line) = line else { return Ok(Line::Nothing) };
            match (quoted, line.trim()) {
                (false, "\"\"\"") if !more => quoted = true,
                (true, "\"\"\"") => break,
                (true, _) => text.push_str(&(line + "\n")),
                (false, _) => match line.strip_suffix('\\') {
                    Some(line) => text.push_str(&format!("{line}\n")),
                    None => {
                        text.push_str(&line);
                        break;
                    }
                },
            }
        }
        if text.trim().is_empty() {
            return Ok(Line::Nothing);
        }
        self.remember(&text);
        Ok(Line::Text(text.strip_suffix('\n').map_or(text.clone(), str::to_owned)))
    }

    /// A line: `None` at the end, `Some(None)` if it was given up with Ctrl-C.
    fn line(&mut self, more: bool) -> Result<Option<Option<String>>> {
        let prefill = self.prefill.take().unwrap_or_default();
        match &mut self.source {
            Source::Terminal { editor, prompts, .. } => {
                match editor.readline_with_initial(prompts[usize::from(more)], (&prefill, "")) {
                    Ok(line) => Ok(Some(Some(line))),
                    Err(ReadlineError::Interrupted) => Ok(Some(None)),
                    Err(ReadlineError::Eof) => Ok(None),
                    Err(error) => Err(error).context("cannot read from the terminal"),
                }
            }
            Source::Pipe => {
                let mut line = String::new();
                let n = std::io::stdin().lock().read_line(&mut line).context("cannot read a message from stdin")?;
                let text = line.strip_suffix('\n').unwrap_or(&line);
                Ok((n > 0).then(|| Some(text.strip_suffix('\r').unwrap_or(text).to_owned())))
            }
        }
    }

    fn remember(&mut self, text: &str) {
        if let Source::Terminal { editor, history, .. } = &mut self.source {
            let added = editor.add_history_entry(text).unwrap_or(false);
            if let Some(file) = history.as_deref().filter(|_| added) {
                // A history that cannot be kept is no reason to end a chat.
                let _ = file.parent().map(std::fs::create_dir_all);
                let _ = editor.append_history(file);
            }
        }
    }
}

/// A signal that ends the program while a line is edited leaves the terminal as it is now: the editor puts it back only when it returns.
#[cfg(unix)]
fn restore_mode_at_end(interrupt: &Interrupt) {
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

    /// What ends the mode in which a terminal marks what is pasted.
    const NO_PASTE_MARKS: &[u8] = b"\x1b[?2004l\n";
    let Ok(mode) = tcgetattr(std::io::stdin()) else { return };
    interrupt.before_end(move || {
        // A terminal that is gone needs nothing. Not by `println!`: the chat may hold its lock, and a failure would keep the program alive.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &mode);
        if std::io::stdout().is_terminal() {
            let _ = rustix::io::write(std::io::stdout(), NO_PASTE_MARKS);
        }
    });
}

#[cfg(not(unix))]
fn restore_mode_at_end(_: &Interrupt) {}

/// `$XDG_STATE_HOME/genie/chat-history`, or the same below `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("genie").join("chat-history"))
}

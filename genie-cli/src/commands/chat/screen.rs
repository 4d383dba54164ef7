//! What a chat shows: replies on stdout, everything else on stderr.

use std::io::{IsTerminal, stdout};

use anyhow::Result;
use chat_template::Message;
use open_genie::{Reply, Session, StopReason, chat_template};

use crate::printer::Printer;

/// Where a model's thoughts begin and end, in the formats that are in use.
const THOUGHTS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// stdout and stderr of a chat.
pub struct Screen<'a> {
    printer: &'a Printer,
    colour: bool,
}

impl<'a> Screen<'a> {
    pub fn new(printer: &'a Printer) -> Self {
        let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Self { printer, colour }
    }

    /// The first line.
    pub fn welcome(&self, session: &Session, terminal: bool) {
        if terminal {
            let size = session.bundle().config().context().size;
            self.printer
                .info(format_args!("{}, context {size} tokens; /help lists the commands", session.bundle().name()));
        }
    }

    /// A message that was not typed.
    pub fn echo(&self, text: &str) {
        self.printer.info(format_args!("> {text}"));
    }

    /// The messages of a conversation that goes on.
    pub fn messages(&self, messages: &[Message]) -> Result<()> {
        for message in messages {
            match message.role() {
                "user" => self.echo(&message.text().unwrap_or_default()),
                "assistant" => self.printer.data_line(message.text().unwrap_or_default())?,
                role => self.printer.info(format_args!("[{role}] {}", message.text().unwrap_or_default())),
            }
        }
        Ok(())
    }

    /// A reply that is about to come.
    pub fn reply(&self) -> ReplyPart<'a> {
        ReplyPart { printer: self.printer, colour: self.colour, thinking: None, begun: false }
    }

    /// How a reply ended, how full the context is, and how fast it came.
    pub fn after(&self, session: &Session, reply: &Reply) {
        match reply.stop {
            StopReason::ContextLimit => {
                self.printer.info("the context is full: /clear, /undo, or start with `--long-context shift`")
            }
            StopReason::MaxTokens => self.printer.info("the reply was cut: `/set max-tokens N` sets another limit"),
            StopReason::Aborted => self.printer.info("stopped"),
            _ => {}
        }
        if self.colour {
            let size = session.bundle().config().context().size;
            let rate = reply.kpis.generation_rate().map_or(String::new(), |rate| format!(", {rate:.1} tokens/s"));
            self.printer.info(format_args!("[{} of {size} tokens{rate}]", session.n_past()));
        }
    }
}

/// A reply as it grows: thoughts are dim on a terminal.
pub struct ReplyPart<'a> {
    printer: &'a Printer,
    colour: bool,
    /// The tag that ends the thoughts.
    thinking: Option<&'static str>,
    begun: bool,
}

impl ReplyPart<'_> {
    pub fn write(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        // Tags are tokens of their own in the models that have them, so a piece has a whole one or none.
        if !self.begun
            && self.colour
            && let Some((_, end)) = THOUGHTS.iter().find(|(tag, _)| text.trim_start().starts_with(tag))
        {
            self.thinking = Some(end);
            self.printer.style("\x1b[2m")?;
        }
        self.begun |= !text.trim().is_empty();
        self.printer.data(text)?;
        if self.thinking.is_some_and(|end| text.contains(end)) {
            self.thinking = None;
            self.printer.style("\x1b[0m")?;
        }
        Ok(())
    }

    /// The line's end.
    pub fn end(&mut self) -> Result<()> {
        if self.thinking.take().is_some() {
            self.printer.style("\x1b[0m")?;
        }
        self.printer.data_line("")
    }
}

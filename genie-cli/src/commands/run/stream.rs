//! Streams the reply of `genie run` until it is over, its reader has left, a write fails, or a signal came.

use anyhow::Error;
use open_genie::{Prompt, Reply, SentenceCode, Session, Token};

use crate::interrupt::Deferred;
use crate::printer::Printer;

/// How a reply is asked for and shown.
#[derive(Clone, Copy)]
pub struct Manner {
    /// Nothing is printed.
    pub silent: bool,
    /// What the prompt is to the conversation.
    pub code: SentenceCode,
    /// The reply leaves room for a next turn.
    pub keep_room: bool,
    /// There are several replies: whole lines are printed, led by the number of their reply.
    pub several: bool,
}

/// Lines of several replies, each printed once it is whole.
#[derive(Default)]
struct Lines {
    unfinished: Vec<String>,
}

impl Lines {
    fn print(&mut self, printer: &Printer, token: &Token) -> anyhow::Result<()> {
        if self.unfinished.len() <= token.stream {
            self.unfinished.resize(token.stream + 1, String::new());
        }
        let line = &mut self.unfinished[token.stream];
        line.push_str(&token.text);
        while let Some(end) = line.find('\n') {
            let rest = line.split_off(end + 1);
            printer.data(&format!("{}| {line}", token.stream + 1))?;
            *line = rest;
        }
        Ok(())
    }

    /// What is left when the replies are over.
    fn finish(self, printer: &Printer) -> anyhow::Result<()> {
        let mut left = self.unfinished.iter().enumerate().filter(|(_, line)| !line.is_empty());
        left.try_for_each(|(number, line)| printer.data(&format!("{}| {line}\n", number + 1)))
    }
}

/// A reply, whole or as far as it came.
pub struct Streamed {
    pub reply: Reply,
    /// The limit that leaves room for a next turn, where `--save` has set one.
    pub room: Option<usize>,
    pub end: End,
}

/// How it ended.
pub enum End {
    /// By a rule, a signal, or a reader that left: what is to be kept is kept.
    Kept,
    /// The output failed; what is to be kept is kept all the same.
    Output(Error),
    /// The query failed.
    Failed(Error),
}

/// Generates and prints.
pub fn stream(
    manner: Manner,
    printer: &Printer,
    deferred: &Deferred<'_>,
    session: &mut Session,
    prompt: Prompt<'_>,
) -> Streamed {
    let stop = session.stop_handle();
    deferred.stop_with({
        let stop = stop.clone();
        move || stop.stop()
    });
    let mut generation = session.query(prompt, manner.code);
    if printer.interrupt().received().is_some() {
        // A query forgets the stops before it.
        stop.stop();
    }
    let room = if manner.keep_room { generation.keep_room() } else { None };
    let (mut end, mut lines) = (End::Kept, Lines::default());
    for token in &mut generation {
        match token {
            Ok(token) if manner.silent || token.stop.is_some() => {}
            Ok(token) => {
                let printed = if manner.several { lines.print(printer, &token) } else { printer.data(&token.text) };
                if let Err(error) = printed {
                    end = End::Output(error);
                    break;
                }
                if !printer.has_reader() {
                    break;
                }
            }
            Err(error) => {
                end = End::Failed(error.into());
                break;
            }
        }
    }
    if let (End::Kept, Err(error)) = (&end, lines.finish(printer)) {
        end = End::Output(error);
    }
    Streamed { reply: generation.stop_here(), room, end }
}

//! Streams the reply of `genie run` until it is over, its reader has left, a write fails, or a signal came.

use anyhow::Error;
use open_genie::{Prompt, Reply, SentenceCode, Session};

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
    let mut end = End::Kept;
    for token in &mut generation {
        match token {
            Ok(token) if manner.silent || token.stop.is_some() => {}
            Ok(token) => {
                if let Err(error) = printer.data(&token.text) {
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
    Streamed { reply: generation.stop_here(), room, end }
}

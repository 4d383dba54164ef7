//! Streams the reply of `genie run` until it is over, its reader has left, a write fails, or a signal came.

use anyhow::Error;
use open_genie::{Prompt, Reply, SentenceCode, Session};

use super::Args;
use crate::interrupt::Deferred;
use crate::printer::Printer;

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

/// Generates and prints, but with `--json`.
pub fn stream(
    args: &Args,
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
    let code = if args.saved.rewind { SentenceCode::Rewind } else { SentenceCode::Complete };
    let mut generation = session.query(prompt, code);
    if printer.interrupt().received().is_some() {
        // A query forgets the stops before it.
        stop.stop();
    }
    let keeps_room = args.saved.save.is_some() && args.max_tokens.is_none();
    let room = if keeps_room { generation.keep_room() } else { None };
    let mut end = End::Kept;
    for token in &mut generation {
        match token {
            Ok(token) if args.json || token.stop.is_some() => {}
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

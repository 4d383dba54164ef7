//! Files of traces: a line of JSON a request, or the steps that `genie serve --record` wrote.
//!
//! *Units*: tokens, milliseconds. A line is `{"loop": "closed", "at_ms": 0, "prompt": 64, "reply": 128, "prefix": 0, "group": 0,
//! "client": 0, "seed": 7}`; in place of `prefix` and `group` it may have `"begins": [{"seed": 1, "n": 40}]`. *Trap*: files of before have no `loop`. Where all of their lines name a client and none has a time, the
//! requests were sent by clients that waited; all others came at their times.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::live;
use super::workload::{Arrival, Piece, Sending};
use crate::failure::UserError;

/// What a line is like, for hints.
const LINE: &str = r#"{"loop":"closed","at_ms":0,"prompt":64,"reply":128,"client":0,"seed":1}"#;

/// A line as it is written, by hand too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "loop")]
    sending: Option<Sending>,
    at_ms: Option<u64>,
    prompt: usize,
    reply: usize,
    #[serde(default)]
    prefix: usize,
    #[serde(default)]
    group: u64,
    #[serde(default)]
    begins: Vec<Piece>,
    client: Option<usize>,
    #[serde(default)]
    seed: u32,
}

impl Line {
    fn arrival(self, unsaid: Sending) -> Arrival {
        Arrival {
            sending: self.sending.unwrap_or(unsaid),
            at_ms: self.at_ms.unwrap_or(0),
            prompt: self.prompt,
            reply: self.reply,
            prefix: self.prefix,
            group: self.group,
            begins: self.begins,
            client: self.client.unwrap_or(0),
            seed: self.seed,
        }
    }
}

/// A trace that was read.
#[derive(Debug)]
pub struct Trace {
    /// Its requests.
    pub arrivals: Vec<Arrival>,
    /// What it was made of and lacks, if it was made of steps.
    pub note: Option<String>,
}

/// Reads a trace.
///
/// # Errors
/// The file cannot be read; a line is no request, or there are none.
pub fn read(path: &Path) -> Result<Trace> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the trace `{}`", path.display()))?;
    let name = path.display();
    if live::is_recording(&text) {
        let found = live::requests(&text)
            .map_err(|why| UserError::error(format!("the recording `{name}` cannot be replayed: {why}"), live::HINT))?;
        let note = format!("`{name}` has steps of `genie serve`: {}", found.summary());
        return Ok(Trace { arrivals: found.arrivals, note: Some(note) });
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines = lines.map(|(i, text)| line(text, &format!("line {} of the trace `{name}`", i + 1)));
    let lines = lines.collect::<Result<Vec<_>>>()?;
    if lines.is_empty() {
        return Err(UserError::error(format!("the trace `{name}` has no requests"), "give one a line"));
    }
    let waited = lines.iter().all(|line| line.client.is_some() && line.at_ms.unwrap_or(0) == 0);
    let unsaid = if waited { Sending::Closed } else { Sending::Open };
    Ok(Trace { arrivals: lines.into_iter().map(|line| line.arrival(unsaid)).collect(), note: None })
}

/// Most tokens of a prompt, and of a reply.
const MOST_TOKENS: usize = 1 << 24;

fn line(text: &str, place: &str) -> Result<Line> {
    let line: Line = serde_json::from_str(text).map_err(|error| {
        UserError::error(format!("{place} is no request: {error}"), format!("a line is like {LINE}"))
    })?;
    if line.prompt == 0 || line.reply == 0 {
        let what = format!("{place}: expected at least one token of prompt and reply");
        return Err(UserError::error(what, "give `prompt` and `reply` 1 or more"));
    }
    if let Some(found) = [line.prompt, line.reply].into_iter().find(|&n| n > MOST_TOKENS) {
        let what = format!("{place}: expected at most {MOST_TOKENS} tokens of prompt and of reply, found {found}");
        return Err(UserError::error(what, "give fewer: no context holds as many"));
    }
    if line.prefix > 0 && !line.begins.is_empty() {
        let what = format!("{place}: expected `prefix` or `begins`, found both");
        return Err(UserError::error(what, "a prefix is one piece: `\"begins\":[{\"seed\":0,\"n\":40}]`"));
    }
    let pieces = line.begins.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.n));
    if pieces > line.prompt {
        let what = format!("{place}: expected pieces of at most {} tokens, the prompt's, found {pieces}", line.prompt);
        return Err(UserError::error(what, "give `begins` fewer tokens, or `prompt` more"));
    }
    Ok(line)
}

/// The trace as it is written.
///
/// # Errors
/// None that is known: all of it can be written as JSON.
pub fn text(arrivals: &[Arrival]) -> Result<String> {
    let lines = arrivals.iter().map(|arrival| Ok(serde_json::to_string(arrival)? + "\n"));
    lines.collect::<Result<String>>()
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Loop, Mix, of_mix};
    use super::*;

    fn read_text(text: &str) -> Result<Trace> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t");
        std::fs::write(&file, text).unwrap();
        read(&file)
    }

    #[test]
    fn what_is_written_is_read() {
        for how in [Loop::Closed { clients: 2 }, Loop::Open { rate: 3.0 }] {
            let trace = of_mix(Mix::Chat, how, 5, 9, 512);
            let found = read_text(&text(&trace).unwrap()).unwrap();
            assert_eq!((found.arrivals, found.note), (trace, None));
        }
    }

    /// What programs wrote before a line had `loop`: the same, without it.
    #[test]
    fn files_of_before_are_read_as_they_were_recorded() {
        for how in [Loop::Closed { clients: 2 }, Loop::Open { rate: 3.0 }] {
            let trace = of_mix(Mix::Chat, how, 5, 9, 512);
            let old = text(&trace).unwrap().replace(r#""loop":"closed","#, "").replace(r#""loop":"open","#, "");
            assert!(!old.contains("loop"), "{old}");
            assert_eq!(read_text(&old).unwrap().arrivals, trace);
        }
    }

    #[test]
    fn requests_without_a_client_or_with_a_time_are_open() {
        for (text, want) in [
            (r#"{"prompt":1,"reply":1}"#, Sending::Open),
            (r#"{"prompt":1,"reply":1,"client":0}"#, Sending::Closed),
            (r#"{"prompt":1,"reply":1,"client":0,"at_ms":5}"#, Sending::Open),
            (r#"{"prompt":1,"reply":1,"loop":"closed","at_ms":5}"#, Sending::Closed),
            (r#"{"prompt":1,"reply":1,"client":0,"loop":"open"}"#, Sending::Open),
        ] {
            assert_eq!(read_text(text).unwrap().arrivals[0].sending, want, "{text}");
        }
    }

    #[test]
    fn faults_have_a_line_and_a_hint() {
        for (text, want) in [
            ("{\"prompt\":1}", "line 1 of the trace"),
            ("{\"prompt\":1,\"reply\":1}\n\n{\"prompt\":1,\"reply\":0}", "line 3 of the trace"),
            ("{\"prompt\":1,\"reply\":1,\"loop\":\"round\"}", "unknown variant `round`, expected `closed` or `open`"),
            (
                r#"{"prompt":9,"reply":1,"prefix":1,"begins":[{"seed":1,"n":2}]}"#,
                "expected `prefix` or `begins`, found both",
            ),
            (r#"{"prompt":3,"reply":1,"begins":[{"seed":1,"n":2},{"seed":2,"n":2}]}"#, "at most 3 tokens"),
            ("\n", "has no requests"),
            ("{\"type\":\"engine\",\"version\":2}", "expected version 1, found 2"),
        ] {
            let error = read_text(text).unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
            assert!(!error.downcast_ref::<UserError>().unwrap().hint().is_empty());
        }
    }
}

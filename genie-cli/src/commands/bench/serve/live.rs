//! Requests made of the steps that `genie serve --record` wrote: when they came, how long their prompts and replies were.
//!
//! *Units*: tokens, microseconds of the recording's clock. The form of the lines is docs/engine-events.md's.
//!
//! *Traps*: a recording has no tokens, so a prompt gets random ones: as many in common with earlier prompts as there were. What a prompt
//! had in common with a reply is processed again. Requests that were refused do not show; those that were cancelled while they waited
//! are left out. Where a step's line is missing, a request shows by its rows or as it waits: it came within the step that ran then.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::workload::{Arrival, Piece, Sending};

/// The version of the objects that are understood.
const VERSION: u64 = 1;

/// What to do when a recording cannot be used.
pub const HINT: &str =
    "give what `genie serve --record FILE` of this version wrote, or a trace of `genie bench --serve --record FILE`";

#[derive(Deserialize)]
struct Tick {
    at_us: u64,
    us: u64,
    rows: Vec<Rows>,
    queue: usize,
    slots: Vec<Slot>,
    #[serde(default)]
    came: Vec<Came>,
    #[serde(default)]
    dropped: u64,
}

/// A request as it came.
#[derive(Clone, Copy, Deserialize)]
struct Came {
    request: u64,
    at_us: u64,
    n_prompt: usize,
    like: Option<Like>,
}

/// The first `n` tokens of an earlier request's prompt.
#[derive(Clone, Copy, Deserialize)]
struct Like {
    request: u64,
    n: usize,
}

#[derive(Deserialize)]
struct Rows {
    slot: u64,
    request: u64,
    from: usize,
    n: usize,
}

#[derive(Deserialize)]
struct Slot {
    id: u64,
    request: Option<u64>,
    n_past: usize,
    n_prompt: usize,
    n_out: usize,
}

impl Tick {
    fn has(&self, request: u64) -> bool {
        self.slots.iter().any(|slot| slot.request == Some(request))
    }
}

/// A request as the steps show it.
struct Shown {
    /// The first and the last step that show it.
    steps: (usize, usize),
    prompt: usize,
    reply: usize,
    /// Tokens of its prompt that were in the cache.
    cached: usize,
    came_us: u64,
    like: Option<Like>,
}

impl Shown {
    /// Tokens that an earlier prompt has.
    fn common(&self) -> usize {
        self.like.map_or(0, |like| like.n.min(self.prompt))
    }
}

/// The requests of a recording.
#[derive(Debug, PartialEq, Eq)]
pub struct Live {
    /// In the order in which they came; open, each with a client of its own.
    pub arrivals: Vec<Arrival>,
    /// Tokens of prompts that are those of an earlier prompt.
    common: usize,
    /// Tokens of prompts that were in the cache, and are not here.
    cached: usize,
    /// Requests that ended before they had rows.
    without_rows: usize,
    /// Requests that were not over at the recording's end.
    running: usize,
    /// Steps that the recording lacks.
    dropped: u64,
}

impl Live {
    /// For people.
    pub fn summary(&self) -> String {
        let sum = |of: fn(&Arrival) -> usize| self.arrivals.iter().map(of).sum::<usize>();
        let (n, prompts, replies) = (self.arrivals.len(), sum(|of| of.prompt), sum(|of| of.reply));
        let mut text =
            format!("{n} requests, {prompts} tokens of prompts, {replies} of replies; prompts are of random tokens");
        if self.common > 0 {
            text += &format!(", {} as in earlier prompts", self.common);
        }
        if self.cached > 0 {
            text += &format!("; {} of them were in the cache and are processed here", self.cached);
        }
        if self.without_rows > 0 {
            text += &format!("; {} requests ended before they had rows, and are left out", self.without_rows);
        }
        if self.running > 0 {
            text += &format!(
                "; {} requests were not over with its last step, their replies may be shorter here",
                self.running
            );
        }
        if self.dropped > 0 {
            text += &format!("; {} steps are missing, so times and lengths may be wrong", self.dropped);
        }
        text
    }
}

/// Whether a file has steps: its first line is an object with a type.
pub fn is_recording(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    first.and_then(|line| serde_json::from_str::<Value>(line).ok()).is_some_and(|value| value.get("type").is_some())
}

/// The requests that the steps show.
///
/// # Errors
/// What is wrong with the recording: another version, a line that is none, no request.
pub fn requests(text: &str) -> Result<Live, String> {
    let ticks = ticks(text)?;
    let mut shown: BTreeMap<u64, Shown> = BTreeMap::new();
    for (k, tick) in ticks.iter().enumerate() {
        look(&mut shown, k, tick);
    }
    set_times(&mut shown, &ticks);
    let came: BTreeMap<u64, Came> =
        ticks.iter().flat_map(|tick| &tick.came).map(|came| (came.request, *came)).collect();
    let with_rows: BTreeSet<u64> = shown.keys().copied().collect();
    for (id, request) in &mut shown {
        let Some(came) = came.get(id) else { continue };
        (request.came_us, request.prompt) = (came.at_us, came.n_prompt);
        request.like = came.like.filter(|like| like.request < *id && with_rows.contains(&like.request));
    }
    let first_us = shown.values().map(|request| request.came_us).min().ok_or("no step has rows of a request")?;
    let pieces = pieces(&shown);
    let mut in_order: Vec<(&u64, &Shown)> = shown.iter().collect();
    // Equal times keep the order of the numbers, in which they came.
    in_order.sort_by_key(|(_, request)| request.came_us);
    let arrival = |(i, (id, request)): (usize, &(&u64, &Shown))| Arrival {
        sending: Sending::Open,
        at_ms: (request.came_us - first_us) / 1_000,
        prompt: request.prompt.max(1),
        reply: request.reply.max(1),
        prefix: 0,
        group: 0,
        begins: pieces[*id].clone(),
        client: i,
        seed: u32::try_from(i).unwrap_or(u32::MAX),
    };
    let last = ticks.last();
    Ok(Live {
        arrivals: in_order.iter().enumerate().map(arrival).collect(),
        common: shown.values().map(Shown::common).sum(),
        cached: shown.values().map(|request| request.cached.saturating_sub(request.common())).sum(),
        without_rows: came.keys().filter(|id| !shown.contains_key(id)).count(),
        running: last.map_or(0, |tick| tick.slots.iter().filter(|slot| slot.request.is_some()).count()),
        dropped: last.map_or(0, |tick| tick.dropped),
    })
}

/// The pieces of each prompt: those of the one that it begins like, as far as they are the same, and one of its own.
fn pieces(shown: &BTreeMap<u64, Shown>) -> BTreeMap<u64, Vec<Piece>> {
    let mut pieces: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    for (id, request) in shown {
        let prompt = request.prompt.max(1);
        let mut own = Vec::new();
        let mut left = request.common();
        if let Some(other) = request.like.and_then(|like| pieces.get(&like.request)) {
            for piece in other {
                let n = piece.n.min(left);
                left -= n;
                own.extend((n > 0).then_some(Piece { seed: piece.seed, n }));
            }
        }
        let n = prompt - own.iter().map(|piece| piece.n).sum::<usize>();
        own.extend((n > 0).then_some(Piece { seed: *id, n }));
        pieces.insert(*id, own);
    }
    pieces
}

/// The steps. The last line may be torn: the server was killed while it wrote it.
fn ticks(text: &str) -> Result<Vec<Tick>, String> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    let mut ticks = Vec::new();
    for (at, &(i, line)) in lines.iter().enumerate() {
        let wrong = |why: serde_json::Error| format!("line {} is no object of a recording: {why}", i + 1);
        let value: Value = match serde_json::from_str(line) {
            Err(_) if at > 0 && at + 1 == lines.len() => break,
            value => value.map_err(wrong)?,
        };
        let kind = value["type"].as_str();
        if at == 0 && kind != Some("engine") {
            return Err(format!("line {}: expected an object of type `engine`, found `{}`", i + 1, value["type"]));
        }
        match kind {
            Some("engine") if value["version"] != VERSION => {
                return Err(format!("line {}: expected version {VERSION}, found {}", i + 1, value["version"]));
            }
            Some("tick") => ticks.push(serde_json::from_value(value).map_err(wrong)?),
            _ => {}
        }
    }
    Ok(ticks)
}

/// What step `k` shows of each request.
fn look(shown: &mut BTreeMap<u64, Shown>, k: usize, tick: &Tick) {
    let new = |cached| Shown { steps: (k, k), prompt: 0, reply: 0, cached, came_us: tick.at_us, like: None };
    for rows in &tick.rows {
        shown.entry(rows.request).or_insert_with(|| new(rows.from));
    }
    for slot in &tick.slots {
        let Some(request) = slot.request else { continue };
        let request = shown.entry(request).or_insert_with(|| new(slot.n_past));
        (request.steps.1, request.prompt, request.reply) = (k, slot.n_prompt, slot.n_out);
    }
    for rows in tick.rows.iter().filter(|rows| !tick.has(rows.request)) {
        let Some(request) = shown.get_mut(&rows.request) else { continue };
        // Its reply ended in this step. The slot it had keeps all of its tokens but the last one.
        request.steps.1 = k;
        request.prompt = if request.prompt == 0 { rows.from + rows.n } else { request.prompt };
        let kept = tick.slots.iter().find(|slot| slot.id == rows.slot && slot.request.is_none());
        let made = kept.map_or(0, |slot| (slot.n_past + 1).saturating_sub(request.prompt));
        request.reply = made.max(request.reply + 1);
    }
}

/// Those that wait behind a step came before its end. They are the next ones by their numbers, except those that have lost their slot.
fn set_times(shown: &mut BTreeMap<u64, Shown>, ticks: &[Tick]) {
    for (k, tick) in ticks.iter().enumerate().filter(|(_, tick)| tick.queue > 0) {
        let is_parked = |(id, request): &(&u64, &Shown)| request.steps.0 <= k && k < request.steps.1 && !tick.has(**id);
        let parked = shown.iter().filter(is_parked).count();
        let waiting = shown.values_mut().filter(|request| request.steps.0 > k).take(tick.queue.saturating_sub(parked));
        for request in waiting {
            request.came_us = request.came_us.min(tick.at_us + tick.us);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ENGINE: &str = r#"{"type":"engine","version":1,"model":"m","widths":[],"slots":[],"queue":0}"#;

    /// A step of a millisecond with rows `[slot, request, from, n]` and slots `[id, request, n_past, n_prompt, n_out]`; request -1 is none.
    fn tick(at_us: u64, rows: &[[usize; 4]], queue: usize, slots: &[[i64; 5]]) -> String {
        let rows: Vec<Value> = rows
            .iter()
            .map(|[slot, request, from, n]| {
                json!({"slot": slot, "request": request, "kind": "prefill", "from": from, "n": n})
            })
            .collect();
        let slots: Vec<Value> = slots
            .iter()
            .map(|[id, request, past, prompt, out]| {
                let request = (*request >= 0).then_some(request);
                json!({"id": id, "state": "decode", "request": request, "n_past": past, "n_prompt": prompt, "n_out": out})
            })
            .collect();
        json!({"type": "tick", "at_us": at_us, "us": 1_000, "rows": rows, "queue": queue, "slots": slots, "cells": []})
            .to_string()
    }

    fn found(lines: &[String]) -> Live {
        requests(&[&[ENGINE.to_owned()], lines].concat().join("\n")).unwrap()
    }

    fn short(live: &Live) -> Vec<(u64, usize, usize)> {
        live.arrivals.iter().map(|of| (of.at_ms, of.prompt, of.reply)).collect()
    }

    /// Request 1 has 10 tokens, 4 of them in the cache, and a reply of 3. Request 2 waits for its slot from the second step on; its prompt
    /// of 5 and its reply of 1 take one step.
    #[test]
    fn lengths_and_times_are_those_of_the_traffic() {
        let live = found(&[
            tick(7_000, &[[0, 1, 4, 6]], 0, &[[0, 1, 10, 10, 1]]),
            tick(8_000, &[[0, 1, 10, 1]], 1, &[[0, 1, 11, 10, 2]]),
            tick(9_000, &[[0, 1, 11, 1]], 1, &[[0, -1, 12, 0, 0]]),
            tick(10_000, &[[0, 2, 0, 5]], 0, &[[0, -1, 5, 0, 0]]),
        ]);
        assert_eq!(short(&live), [(0, 10, 3), (2, 5, 1)]);
        assert_eq!((live.cached, live.running, live.dropped), (4, 0, 0));
        assert!(live.arrivals.iter().all(|of| of.sending == Sending::Open));
        assert_ne!(live.arrivals[0].tokens(500)[..5], live.arrivals[1].tokens(500));
        assert_eq!(
            live.summary(),
            "2 requests, 15 tokens of prompts, 4 of replies; prompts are of random tokens; 4 of them were in the cache and are processed here"
        );
    }

    /// A draft of four rows of which two held: the slot that is left says how many tokens there were.
    #[test]
    fn the_last_step_of_a_reply_with_drafts_counts_what_held() {
        let live = found(&[
            tick(0, &[[0, 1, 0, 8]], 0, &[[0, 1, 8, 8, 1]]),
            tick(1_000, &[[0, 1, 8, 5]], 0, &[[0, -1, 11, 0, 0]]),
        ]);
        assert_eq!(short(&live), [(0, 8, 4)]);
    }

    /// Request 1 loses its slot to request 0 and waits; it came when it came first. Request 2 is still running at the end.
    #[test]
    fn a_parked_request_is_no_new_one() {
        let live = found(&[
            tick(0, &[[0, 0, 0, 4], [1, 1, 0, 6]], 0, &[[0, 0, 4, 4, 1], [1, 1, 6, 6, 1]]),
            tick(1_000, &[[0, 0, 4, 1]], 1, &[[0, 0, 5, 4, 2]]),
            tick(2_000, &[[0, 0, 5, 1]], 1, &[[0, -1, 6, 0, 0]]),
            tick(30_000, &[[0, 1, 0, 7], [1, 2, 0, 3]], 0, &[[0, -1, 7, 0, 0], [1, 2, 3, 3, 1]]),
        ]);
        assert_eq!(short(&live), [(0, 4, 3), (0, 6, 2), (30, 3, 1)]);
        assert_eq!(live.running, 1);
    }

    /// Request 2 came within the first step and begins as request 1; request 3 begins as request 2, and as its own text; request 4 was
    /// cancelled while it waited, and request 5 begins as it.
    #[test]
    fn prompts_begin_alike_as_they_did() {
        let with = |line: String, came: Value| {
            let mut line: Value = serde_json::from_str(&line).unwrap();
            line["came"] = came;
            line.to_string()
        };
        let like = |request: u64, n: usize| json!({"request": request, "n": n});
        let live = found(&[
            with(
                tick(5_000, &[[0, 1, 0, 10]], 0, &[[0, -1, 10, 0, 0]]),
                json!([{"request": 1, "at_us": 4_000, "n_prompt": 10, "like": null}]),
            ),
            with(
                tick(9_000, &[[1, 2, 6, 2]], 1, &[[1, -1, 8, 0, 0]]),
                json!([{"request": 2, "at_us": 5_500, "n_prompt": 8, "like": like(1, 6)},
                       {"request": 3, "at_us": 8_000, "n_prompt": 12, "like": like(2, 7)},
                       {"request": 4, "at_us": 8_100, "n_prompt": 3, "like": null},
                       {"request": 5, "at_us": 8_200, "n_prompt": 4, "like": like(4, 3)}]),
            ),
            tick(10_000, &[[2, 3, 9, 3]], 0, &[[2, -1, 12, 0, 0]]),
            tick(11_000, &[[3, 5, 0, 4]], 0, &[[3, -1, 4, 0, 0]]),
        ]);
        assert_eq!(short(&live), [(0, 10, 1), (1, 8, 1), (4, 12, 1), (4, 4, 1)]);
        let tokens: Vec<_> = live.arrivals.iter().map(|of| of.tokens(500)).collect();
        let common = |a: usize, b: usize| tokens[a].iter().zip(&tokens[b]).take_while(|(a, b)| a == b).count();
        assert_eq!((common(0, 1), common(1, 2), common(0, 2)), (6, 7, 6));
        assert_eq!((live.common, live.cached, live.without_rows), (13, 2, 1));
        let said = live.summary();
        assert!(said.contains("of random tokens, 13 as in earlier prompts; 2 of them were in the cache"), "{said}");
        assert!(said.ends_with("1 requests ended before they had rows, and are left out"), "{said}");
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let mut torn = tick(9, &[[0, 2, 0, 5]], 0, &[]);
        torn.truncate(30);
        assert_eq!(found(&[tick(0, &[[0, 1, 0, 5]], 0, &[]), torn.clone()]).arrivals.len(), 1);
        let why = requests(&[ENGINE, &torn, ENGINE].join("\n")).unwrap_err();
        assert!(why.starts_with("line 2 is no object of a recording"), "{why}");
        assert_eq!(requests(ENGINE).unwrap_err(), "no step has rows of a request");
        assert!(requests(&torn.replace("tick", "x")).is_err());
    }
}

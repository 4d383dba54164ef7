//! Traces of requests: seeded mixes, and recorded ones.
//!
//! *Units*: tokens, milliseconds. A trace is lines of JSON: `{"at_ms": 0, "prompt": 64, "reply": 128, "prefix": 0, "group": 0,
//! "client": 0, "seed": 7}`. Tokens are drawn from the seeds: the first `prefix` from that of the group.

use std::path::Path;

use anyhow::{Context, Result};
use genie_types::TokenId;
use serde::{Deserialize, Serialize};

use crate::failure::UserError;

/// A mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// Prompts of 64 tokens, replies of 128.
    Chat,
    /// Long documents (1,500 tokens, replies of 64) among chats.
    Documents,
    /// Prompts with 1,000 tokens in common and 64 of their own, replies of 64.
    Agent,
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// When it comes; with `--clients` of a mix, the client sends it once its last one is over.
    #[serde(default)]
    pub at_ms: u64,
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Tokens of its reply.
    pub reply: usize,
    /// Tokens at the prompt's beginning that its group has in common.
    #[serde(default)]
    pub prefix: usize,
    /// Which group.
    #[serde(default)]
    pub group: u64,
    /// Who sends it.
    #[serde(default)]
    pub client: usize,
    /// Its own tokens, and its sampler.
    #[serde(default)]
    pub seed: u32,
}

impl Arrival {
    /// Its prompt. Ids above the first few: those are control tokens as a rule.
    pub fn tokens(&self, n_vocab: usize) -> Vec<TokenId> {
        let (first, span) = if n_vocab > 64 { (16, n_vocab - 32) } else { (0, n_vocab.max(1)) };
        let draw = |seed: u64, n: usize| {
            let mut dice = Dice::new(seed);
            (0..n).map(move |_| TokenId((first + dice.below(span)) as u32))
        };
        let prefix = self.prefix.min(self.prompt);
        draw(0x9E37 + self.group, prefix).chain(draw(u64::from(self.seed) + 1, self.prompt - prefix)).collect()
    }
}

/// A small generator of its own: a trace is the same on every machine.
pub struct Dice(u64);

impl Dice {
    /// Seeded.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 to `n` - 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// 0 to 1, neither of them.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// How requests of a mix come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loop {
    /// Each client sends its next one when its last is over.
    Closed {
        /// Clients.
        clients: usize,
    },
    /// At random times, `rate` of them in a second.
    Open {
        /// Requests a second.
        rate: f64,
    },
}

/// A trace of a mix. Lengths are cut to a share of `context`, what a request may hold, and vary by a quarter.
pub fn of_mix(mix: Mix, how: Loop, n: usize, seed: u64, context: usize) -> Vec<Arrival> {
    let mut dice = Dice::new(seed);
    let shrink = |n: usize| (n * context.min(2_048) / 2_048).max(2);
    let vary = |dice: &mut Dice, n: usize| (n - n / 8 + dice.below(n / 4 + 1)).max(1);
    let mut at = 0.0;
    (0..n)
        .map(|i| {
            let document = mix == Mix::Documents && i % 4 == 3;
            let (prefix, own, reply) = match mix {
                Mix::Chat => (0, shrink(64), shrink(128)),
                Mix::Documents if document => (0, shrink(1_500), shrink(64)),
                Mix::Documents => (0, shrink(64), shrink(256)),
                Mix::Agent => (shrink(1_000), shrink(64), shrink(64)),
            };
            let (own, reply) = (vary(&mut dice, own), vary(&mut dice, reply));
            let client = match how {
                Loop::Closed { clients } => i % clients.max(1),
                Loop::Open { rate } => {
                    at += -dice.unit().ln() / rate * 1e3;
                    i
                }
            };
            let seed = seed as u32 * 1_000 + i as u32;
            Arrival { at_ms: at as u64, prompt: prefix + own, reply, prefix, group: 0, client, seed }
        })
        .collect()
}

/// Reads a recorded trace.
pub fn read(path: &Path) -> Result<Vec<Arrival>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the trace `{}`", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let arrivals = lines
        .map(|(i, line)| {
            let arrival: Arrival = serde_json::from_str(line).map_err(|error| {
                let what = format!("line {} of the trace `{}` is no request: {error}", i + 1, path.display());
                UserError::error(
                    what,
                    "a line is like {\"at_ms\":0,\"prompt\":64,\"reply\":128,\"client\":0,\"seed\":1}",
                )
            })?;
            if arrival.prompt == 0 || arrival.reply == 0 {
                let what = format!(
                    "line {} of the trace `{}`: expected at least one token of prompt and reply",
                    i + 1,
                    path.display()
                );
                return Err(UserError::error(what, "give `prompt` and `reply` 1 or more"));
            }
            Ok(arrival)
        })
        .collect::<Result<Vec<_>>>()?;
    if arrivals.is_empty() {
        return Err(UserError::error(format!("the trace `{}` has no requests", path.display()), "give one a line"));
    }
    Ok(arrivals)
}

/// The trace as it is written.
pub fn text(arrivals: &[Arrival]) -> Result<String> {
    let lines = arrivals.iter().map(|arrival| Ok(serde_json::to_string(arrival)? + "\n"));
    lines.collect::<Result<String>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_what_its_seed_says() {
        let how = Loop::Open { rate: 4.0 };
        let trace = of_mix(Mix::Agent, how, 40, 3, 4_096);
        assert_eq!(trace, of_mix(Mix::Agent, how, 40, 3, 4_096));
        assert_ne!(trace, of_mix(Mix::Agent, how, 40, 4, 4_096));
        assert!(trace.windows(2).all(|pair| pair[0].at_ms <= pair[1].at_ms));
        let (a, b) = (trace[0].tokens(1_000), trace[1].tokens(1_000));
        assert_eq!((a[..1_000] == b[..1_000], a[1_000..1_010] == b[1_000..1_010]), (true, false));
        assert_eq!(a.len(), trace[0].prompt);
        assert!(a.iter().all(|token| (16..984).contains(&token.0)));
    }

    #[test]
    fn lengths_fit_the_context() {
        for mix in [Mix::Chat, Mix::Documents, Mix::Agent] {
            let trace = of_mix(mix, Loop::Closed { clients: 3 }, 12, 1, 512);
            assert!(
                trace.iter().all(|request| request.prompt + request.reply <= 512 && request.client < 3),
                "{trace:?}"
            );
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, trace) = (folder.path().join("t"), of_mix(Mix::Chat, Loop::Closed { clients: 2 }, 5, 9, 512));
        std::fs::write(&file, text(&trace).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), trace);
        std::fs::write(&file, "{\"prompt\":1}").unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("line 1"));
    }
}

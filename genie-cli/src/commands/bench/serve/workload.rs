//! Traces of requests, and seeded mixes of them.
//!
//! *Units*: tokens, milliseconds. Tokens are drawn from the seeds: the first `prefix` from that of the group.

use genie_types::TokenId;
use serde::{Deserialize, Serialize};

/// A mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// Prompts of 64 tokens, replies of 128.
    Chat,
    /// Long documents (1,500 tokens, replies of 64) among chats.
    Documents,
    /// Prompts with 1,000 tokens in common and 64 of their own, replies of 64.
    Agent,
    /// Prompts of 500 tokens, replies of 16: with two clients and `--chunk 31` a piece of a prompt is there for each token of a reply.
    Extract,
}

/// When a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sending {
    /// Once its client's last one is over.
    Closed,
    /// At its time, whatever became of others.
    Open,
}

/// Tokens of a prompt that come from a seed: fewer of the same seed are the first of more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// Any number.
    pub seed: u64,
    /// How many.
    pub n: usize,
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// When it is sent.
    #[serde(rename = "loop")]
    pub sending: Sending,
    /// When it comes, at the earliest.
    pub at_ms: u64,
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Tokens of its reply.
    pub reply: usize,
    /// Tokens at the prompt's beginning that its group has in common.
    pub prefix: usize,
    /// Which group.
    pub group: u64,
    /// Pieces at the prompt's beginning, in place of a prefix: prompts with the same pieces begin alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub begins: Vec<Piece>,
    /// Who sends it.
    pub client: usize,
    /// Its own tokens, and its sampler.
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
        let prefix = Piece { seed: self.group, n: self.prefix };
        let begins = if self.begins.is_empty() { &[prefix] } else { &self.begins[..] };
        let pieces =
            begins.iter().flat_map(|piece| draw(0x9E37_u64.wrapping_add(piece.seed), piece.n.min(self.prompt)));
        let mut tokens: Vec<TokenId> = pieces.take(self.prompt).collect();
        tokens.extend(draw(u64::from(self.seed) + 1, self.prompt - tokens.len()));
        tokens
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
                Mix::Extract => (0, shrink(500), shrink(16)),
            };
            let (own, reply) = (vary(&mut dice, own), vary(&mut dice, reply));
            let (sending, client) = match how {
                Loop::Closed { clients } => (Sending::Closed, i % clients.max(1)),
                Loop::Open { rate } => {
                    at += -dice.unit().ln() / rate * 1e3;
                    (Sending::Open, i)
                }
            };
            let seed = (seed as u32).wrapping_mul(1_000).wrapping_add(i as u32);
            let begins = Vec::new();
            Arrival { sending, at_ms: at as u64, prompt: prefix + own, reply, prefix, group: 0, begins, client, seed }
        })
        .collect()
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
        for mix in [Mix::Chat, Mix::Documents, Mix::Agent, Mix::Extract] {
            let trace = of_mix(mix, Loop::Closed { clients: 3 }, 12, 1, 512);
            assert!(
                trace.iter().all(|request| request.prompt + request.reply <= 512 && request.client < 3),
                "{trace:?}"
            );
        }
    }
}

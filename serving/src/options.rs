//! What a scheduler may do, and Genie's `batching` keys.

use std::time::Duration;

use dialog::config::BatchingSettings;
use engine::SeqId;
use kvmanager::plan::serve::{Mixing, ServeRules, StepTimes};

use crate::ServeError;

/// A named set of rules; docs/serving.md compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// One request after the other.
    OneAtATime,
    /// Whole prompts before any reply goes on; one reply a step.
    PrefillFirst,
    /// Pieces of prompts and replies in turn; one reply a step.
    Alternating,
    /// A piece of a prompt and a reply's token in one step.
    Fused,
    /// A piece of a prompt and the tokens of all replies in one step.
    #[default]
    Batched,
    /// Pieces of prompts and steps of all replies in turn.
    AlternatingBatched,
    /// Whole prompts first, then steps of all replies.
    PrefillFirstBatched,
}

impl Policy {
    /// All of them, in the order of the comparison.
    pub const ALL: [Self; 7] = [
        Self::OneAtATime,
        Self::PrefillFirst,
        Self::Alternating,
        Self::Fused,
        Self::Batched,
        Self::AlternatingBatched,
        Self::PrefillFirstBatched,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneAtATime => "one",
            Self::PrefillFirst => "prefill-first",
            Self::Alternating => "alternating",
            Self::Fused => "fused",
            Self::Batched => "batched",
            Self::AlternatingBatched => "alternating-batched",
            Self::PrefillFirstBatched => "prefill-first-batched",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    fn apply(self, rules: &mut ServeRules) {
        rules.mixing = match self {
            Self::PrefillFirst | Self::PrefillFirstBatched => Mixing::PrefillFirst,
            Self::Alternating | Self::AlternatingBatched => Mixing::Alternating,
            Self::OneAtATime | Self::Fused | Self::Batched => Mixing::Fused,
        };
        rules.replies_a_step = match self {
            Self::OneAtATime | Self::PrefillFirst | Self::Alternating | Self::Fused => 1,
            Self::Batched | Self::AlternatingBatched | Self::PrefillFirstBatched => usize::MAX,
        };
        if self == Self::OneAtATime {
            rules.most_running = 1;
        }
    }
}

/// What becomes of a request whose rows others need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parking {
    /// Its tokens are processed again later.
    Recompute,
    /// Its rows are kept outside of the cache; recomputed where the model cannot give them out.
    #[default]
    Snapshot,
}

/// A scheduler's options.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeOptions {
    /// How steps are filled.
    pub policy: Policy,
    /// Requests that have rows at once; at most [`SeqId::COUNT`].
    pub max_slots: usize,
    /// Most rows of prompts in one step.
    pub prefill_chunk: Option<usize>,
    /// Target for the time between the tokens of a reply.
    pub target: Option<Duration>,
    /// How long the first request may wait for others while nothing runs.
    pub coalesce: Duration,
    /// Prompts only.
    pub prefill_only: bool,
    /// Requests that may wait; more are refused.
    pub max_waiting: usize,
    /// Rows set aside for a reply when its request starts, or fewer if it may not have as many tokens.
    pub reserve: usize,
    /// Waiting this long is worth one step of priority.
    pub ageing: Duration,
    /// What becomes of a request whose rows others need.
    pub parking: Parking,
    /// Rows of requests that are over are kept while they are not needed, for prompts that begin alike.
    pub share_prefixes: bool,
    /// Measured times of steps; without, widths are chosen as if a step took one unit and a little for each token.
    pub step_times: Option<StepTimes>,
    /// Where one sequence is in the cache at a time: after `n` steps with tokens of its reply another has its turn. `None`: each runs to its end.
    pub turn: Option<usize>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            policy: Policy::Batched,
            max_slots: 8,
            prefill_chunk: None,
            target: None,
            coalesce: Duration::ZERO,
            prefill_only: false,
            max_waiting: 256,
            reserve: 64,
            ageing: Duration::from_secs(1),
            parking: Parking::default(),
            share_prefixes: true,
            step_times: None,
            turn: Some(64),
        }
    }
}

impl ServeOptions {
    /// The same with what a config's `batching` block says.
    #[must_use]
    pub fn with_batching(mut self, keys: &BatchingSettings) -> Self {
        self.max_slots = keys.max_slots.unwrap_or(self.max_slots);
        self.prefill_chunk = keys.prefill_chunk_size.or(self.prefill_chunk);
        if keys.mixed_prefill_decode == Some(false) && self.policy == Policy::Batched {
            self.policy = Policy::AlternatingBatched;
        }
        self.coalesce = keys.coalesce_window_us.map_or(self.coalesce, Duration::from_micros);
        self.prefill_only = keys.prefill_only.unwrap_or(self.prefill_only);
        self
    }

    /// The measured times of the widths there are; assumed ones where none is known.
    pub(crate) fn times(&self, widths: &[usize]) -> Result<StepTimes, ServeError> {
        let known = self.step_times.as_ref().map(|times| times.all().iter().copied());
        let known = known.and_then(|times| StepTimes::new(times.filter(|time| widths.contains(&time.width))));
        known.or_else(|| StepTimes::assumed(widths.iter().copied())).ok_or(ServeError::NoWidths)
    }

    /// The planner's rules; `together`: the model runs several sequences in one step.
    pub(crate) fn rules(&self, together: bool) -> Result<ServeRules, ServeError> {
        let setting =
            |key, expected, found: usize| Err(ServeError::Setting { key, expected, found: found.to_string() });
        if !(1..=SeqId::COUNT).contains(&self.max_slots) {
            return setting("max-slots", "1 to 64", self.max_slots);
        }
        if self.prefill_chunk == Some(0) {
            return setting("prefill-chunk-size", "at least 1", 0);
        }
        if self.turn == Some(0) {
            return setting("turn", "at least 1", 0);
        }
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut rules = ServeRules {
            most_running: self.max_slots,
            prefill_chunk: self.prefill_chunk.unwrap_or(usize::MAX),
            target_us: self.target.map(us),
            ageing_us: us(self.ageing),
            coalesce_us: us(self.coalesce),
            ..ServeRules::default()
        };
        self.policy.apply(&mut rules);
        if !together {
            rules.most_running = 1;
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn genies_keys_are_options() {
        let keys = BatchingSettings {
            max_slots: Some(3),
            prefill_chunk_size: Some(32),
            mixed_prefill_decode: Some(false),
            coalesce_window_us: Some(500),
            prefill_only: Some(true),
        };
        let options = ServeOptions::default().with_batching(&keys);
        let rules = options.rules(true).expect("they are good");
        assert_eq!((rules.most_running, rules.prefill_chunk, rules.coalesce_us), (3, 32, 500));
        assert_eq!((rules.mixing, options.prefill_only), (Mixing::Alternating, true));
        assert_eq!(ServeOptions::default().with_batching(&BatchingSettings::default()), ServeOptions::default());
        assert_eq!(options.rules(false).expect("they are good").most_running, 1);
    }

    #[test]
    fn bad_settings_are_named() {
        let of = |options: ServeOptions| options.rules(true).expect_err("it is refused").to_string();
        assert_eq!(of(ServeOptions { max_slots: 65, ..Default::default() }), "`max-slots`: expected 1 to 64, found 65");
        let chunk = of(ServeOptions { prefill_chunk: Some(0), ..Default::default() });
        assert_eq!(chunk, "`prefill-chunk-size`: expected at least 1, found 0");
        assert!(Policy::ALL.iter().all(|policy| Policy::by_name(policy.name()) == Some(*policy)));
    }
}

//! What a sampler is asked to do: Genie's `sampler` block, checked.
//!
//! *Units*: `top_p` is a probability, `penalize_last_n` counts tokens. Defaults are those measured on libGenie:
//! `temp` 0.1, `top-k` 0 (off), `top-p` 0.8, random seed.

use super::chain::Chain;

/// A value that no sampler can work with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{key}` is {value}, expected {expected}")]
pub struct SettingsError {
    /// Key of the `sampler` block.
    pub key: &'static str,
    /// What was given.
    pub value: f64,
    /// What would do.
    pub expected: &'static str,
}

/// Penalties for tokens that were generated lately. All off by default.
///
/// *Trap*: in libGenie a `token-penalty` block without `repetition-penalty` divides by zero and destroys the
/// output; here an absent one is 1.0, which changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenPenalty {
    /// How many of the last generated tokens count; 0 turns all penalties off.
    pub last_n: usize,
    /// Positive logits are divided by it, others multiplied. 1.0 is off.
    pub repetition: f32,
    /// Subtracted once from every token in the window. May be negative.
    pub presence: f32,
    /// Subtracted once per occurrence in the window. May be negative.
    pub frequency: f32,
}

impl Default for TokenPenalty {
    fn default() -> Self {
        Self { last_n: 0, repetition: 1.0, presence: 0.0, frequency: 0.0 }
    }
}

/// Whose rules a sampler follows where libGenie misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplerRules {
    /// Each key does what its name says.
    #[default]
    Documented,
    /// As libGenie 1.21 draws, misbehaviour included: `greedy` has no effect; an absent `repetition-penalty` acts as 0; without `top-k`,
    /// `top-p` below 1 draws evenly from the tokens it keeps, whatever `temp` is; the tokens stand in the order in which its C++ library
    /// leaves them, which among equal logits is no order of ids.
    Genie,
}

/// The checked `sampler` block.
///
/// *Trap*: libGenie ignores `greedy`. Here `greedy: true` is argmax, unless [`SamplerRules::Genie`] are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerSettings {
    seed: Option<u32>,
    temp: f32,
    top_k: usize,
    top_p: f32,
    greedy: bool,
    penalty: TokenPenalty,
    rules: SamplerRules,
    /// There is a penalty, and its repetition penalty was not given.
    repetition_absent: bool,
    chain: Chain,
    logprobs: Option<usize>,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        let penalty = TokenPenalty::default();
        let (rules, repetition_absent) = (SamplerRules::default(), false);
        let (chain, logprobs) = (Chain::default(), None);
        Self {
            seed: None,
            temp: 0.1,
            top_k: 0,
            top_p: 0.8,
            greedy: false,
            penalty,
            rules,
            repetition_absent,
            chain,
            logprobs,
        }
    }
}

impl SamplerSettings {
    /// Always the likeliest token.
    pub fn argmax() -> Self {
        Self { greedy: true, temp: 0.0, ..Self::default() }
    }

    /// Seed of the random sequence; `None` draws one.
    #[must_use]
    pub fn with_seed(mut self, seed: Option<u32>) -> Self {
        self.seed = seed;
        self
    }

    /// Temperature; 0 is argmax.
    ///
    /// # Errors
    /// Negative or not finite.
    pub fn with_temp(mut self, temp: f32) -> Result<Self, SettingsError> {
        if !temp.is_finite() || temp < 0.0 {
            return Err(bad("temp", temp, "a finite number of at least 0"));
        }
        self.temp = temp;
        Ok(self)
    }

    /// Keep the `k` largest logits; 0 keeps all.
    #[must_use]
    pub fn with_top_k(mut self, k: usize) -> Self {
        self.top_k = k;
        self
    }

    /// Keep the likeliest tokens up to and including the one that reaches `p`; 1 keeps all.
    ///
    /// # Errors
    /// Outside 0 to 1.
    pub fn with_top_p(mut self, p: f32) -> Result<Self, SettingsError> {
        if !(0.0..=1.0).contains(&p) {
            return Err(bad("top-p", p, "a number from 0 to 1"));
        }
        self.top_p = p;
        Ok(self)
    }

    /// Argmax whatever the other settings are.
    #[must_use]
    pub fn with_greedy(mut self, greedy: bool) -> Self {
        self.greedy = greedy;
        self
    }

    /// Penalties for recent tokens.
    ///
    /// # Errors
    /// A repetition penalty that is not a positive number, or others that are not finite.
    pub fn with_penalty(mut self, penalty: TokenPenalty) -> Result<Self, SettingsError> {
        if !penalty.repetition.is_finite() || penalty.repetition <= 0.0 {
            return Err(bad("repetition-penalty", penalty.repetition, "a finite number above 0"));
        }
        for (key, value) in [("presence-penalty", penalty.presence), ("frequency-penalty", penalty.frequency)] {
            if !value.is_finite() {
                return Err(bad(key, value, "a finite number"));
            }
        }
        self.penalty = penalty;
        self.repetition_absent = false;
        Ok(self)
    }

    /// Says that the penalties' `repetition` is a default and was not given, which matters to [`SamplerRules::Genie`].
    #[must_use]
    pub fn with_repetition_absent(mut self) -> Self {
        self.repetition_absent = true;
        self
    }

    /// The stages beyond Genie's, and the order of all. With one that acts, every stage does what its name says, under either rules.
    ///
    /// # Errors
    /// A number that a stage cannot work with.
    pub fn with_chain(mut self, chain: Chain) -> Result<Self, SettingsError> {
        chain.check()?;
        self.chain = chain;
        Ok(self)
    }

    /// Notes how likely each drawn token was, and as many of the likeliest ones; `None` is off.
    #[must_use]
    pub fn with_logprobs(mut self, n_top: Option<usize>) -> Self {
        self.logprobs = n_top;
        self
    }

    /// Whose rules to follow.
    #[must_use]
    pub fn with_rules(mut self, rules: SamplerRules) -> Self {
        self.rules = rules;
        self
    }

    /// Seed, if one was set.
    pub fn seed(&self) -> Option<u32> {
        self.seed
    }

    /// Temperature.
    pub fn temp(&self) -> f32 {
        self.temp
    }

    /// How many of the largest logits are kept; 0 keeps all.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Probability mass kept; 1 keeps all.
    pub fn top_p(&self) -> f32 {
        self.top_p
    }

    /// Whether argmax was asked for by name.
    pub fn greedy(&self) -> bool {
        self.greedy
    }

    /// The penalties.
    pub fn penalty(&self) -> &TokenPenalty {
        &self.penalty
    }

    /// The stages beyond Genie's, and the order of all.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// How many of the likeliest tokens are noted beside each drawn one, if any are.
    pub fn logprobs(&self) -> Option<usize> {
        self.logprobs
    }

    /// The penalties as the rules have them; with stages of the chain the documented ones hold.
    pub(super) fn effective_penalty(&self) -> TokenPenalty {
        let mut penalty = self.penalty.clone();
        if self.rules == SamplerRules::Genie && self.repetition_absent && !self.chain.is_active() {
            penalty.repetition = 0.0;
        }
        penalty
    }

    /// Whose rules are followed.
    pub fn rules(&self) -> SamplerRules {
        self.rules
    }

    /// True when no random number is needed: `greedy` (not by libGenie's rules), `top-k` 1 or `temp` 0. Penalties then have no effect.
    pub fn is_argmax(&self) -> bool {
        let greedy = self.greedy && self.rules == SamplerRules::Documented;
        greedy || self.top_k == 1 || self.temp == 0.0
    }
}

fn bad(key: &'static str, value: f32, expected: &'static str) -> SettingsError {
    SettingsError { key, value: f64::from(value), expected }
}

//! From logits to the next token, in libGenie's order and with its random draw.
//!
//! ```
//! use dialog::{Sampler, SamplerSettings, sampler::TokenPenalty};
//!
//! let settings = SamplerSettings::default().with_seed(Some(42)).with_top_k(2).with_top_p(1.0)?.with_temp(1.0)?;
//! let mut sampler = Sampler::new(settings.clone());
//! let token = sampler.sample(&[0.5, 2.0, 2.0, -1.0])?; // two candidates of equal weight; the seed's draw is 0.797
//! sampler.accept(token); // the window of the penalties
//! assert_eq!(token.0, 2);
//!
//! // A saved random state goes on with the same draws.
//! let mut again = Sampler::new(settings.clone());
//! again.restore_rng(&sampler.save_rng())?;
//! let row = [1.0, 1.1, 0.9, 1.2];
//! assert_eq!(again.sample(&row)?, sampler.sample(&row)?);
//!
//! // A token that was accepted is less likely: its logit is divided by 4, from 80 to 20.
//! let penalty = TokenPenalty { last_n: 8, repetition: 4.0, ..TokenPenalty::default() };
//! let mut strict = Sampler::new(settings.with_penalty(penalty)?);
//! strict.accept(token);
//! assert_eq!(strict.sample(&[0.5, 60.0, 80.0, -1.0])?.0, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The order: token penalties on the raw logits, top-k, top-p on the softmax of the *untempered* logits, softmax of
//! `logits / temp` over what is left, one draw by inverse CDF. The pieces are [`Penalties`], `filter`, [`Mt19937`].
//!
//! [`SamplerRules::Genie`] reproduce libGenie draw by draw, also where it misbehaves (docs/genie.md has the table).
//!
//! *Traps*: `top-p` looks at untempered probabilities, so a low temperature does not shrink the nucleus; an argmax
//! sampler skips the penalties and draws no random number, as in libGenie.
//!
//! *Source*: measured on libGenie 1.21 over its own logits (dialog/tests/sampler_draws.rs, conformance/tests/sampler_htp.rs).

mod argmax;
mod chain;
mod chances;
mod cpp_select;
mod custom;
mod dry;
mod filter;
mod logprobs;
mod penalties;
mod rng;
mod settings;
mod stages;
mod window;

pub use argmax::most_likely;
pub use chain::{Chain, Dry, DynamicTemp, Mirostat, MirostatVersion, OrderError, Stage, Xtc};
pub use chances::Chances;
pub use custom::SamplerCallback;
pub use dry::Breakers;
pub use logprobs::Logprobs;
pub use penalties::Penalties;
pub use rng::{Mt19937, RngStateError};
pub use settings::{SamplerRules, SamplerSettings, SettingsError, TokenPenalty};
pub use window::Window;

use argmax::check;
use genie_types::TokenId;

/// Why no token could be drawn from a row of logits.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplerError {
    /// There is nothing to choose from.
    #[error("cannot sample from an empty row of logits")]
    Empty,
    /// A logit is NaN or plus infinity: the model, not the sampler, is broken.
    #[error("logit of token {token} is {value}, expected a finite number ({n_bad} of {n_vocab} logits are bad)")]
    NotFinite {
        /// First bad index.
        token: usize,
        /// What is there.
        value: f32,
        /// How many are bad.
        n_bad: usize,
        /// Length of the row.
        n_vocab: usize,
    },
    /// A program's sampler returned no token of the vocabulary.
    #[error("the sampler function returned token {token}, expected one below {n_vocab}")]
    Callback {
        /// What it returned.
        token: TokenId,
        /// Length of the row.
        n_vocab: usize,
    },
    /// All logits are minus infinity.
    #[error("all {n_vocab} logits are -inf: every token is masked")]
    AllMasked {
        /// Length of the row.
        n_vocab: usize,
    },
}

/// Draws tokens. Holds the random state and the window that the penalties look at.
///
/// *Invariant*: after the first call with a given vocabulary size, [`Sampler::sample`] allocates nothing.
#[derive(Debug)]
pub struct Sampler {
    settings: SamplerSettings,
    /// Chooses in place of the settings.
    callback: Option<SamplerCallback>,
    rng: Mt19937,
    seed: u32,
    window: Window,
    /// The tokens that DRY's breakers are.
    breakers: Breakers,
    /// How likely the token drawn last was.
    logprobs: Option<Logprobs>,
    /// The row with the penalties applied.
    row: Vec<f32>,
    scratch: filter::Scratch,
    /// The distribution of the row that a drafted token is tested against.
    own: Chances,
    /// The same behind XTC's removal, while the two are mixed.
    with_removal: Chances,
}

impl Sampler {
    /// A sampler at the start of its random sequence. An unset seed is drawn from the system.
    pub fn new(settings: SamplerSettings) -> Self {
        let seed = settings.seed().unwrap_or_else(random_seed);
        Self {
            rng: Mt19937::new(seed),
            seed,
            callback: None,
            window: Window::new(&settings),
            breakers: Breakers::default(),
            logprobs: None,
            row: Vec::new(),
            scratch: filter::Scratch::default(),
            own: Chances::default(),
            with_removal: Chances::default(),
            settings,
        }
    }

    /// What it was made from.
    pub fn settings(&self) -> &SamplerSettings {
        &self.settings
    }

    /// The seed in use, also when it was drawn and not given: a run can be repeated with it.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Mirostat's bound of the surprise in bits, where the settings ask for it.
    pub fn mirostat_mu(&self) -> Option<f64> {
        self.settings.chain().mirostat.map(|_| self.window.mu)
    }

    /// Goes on with a saved bound; without one, and where mirostat does not act, nothing changes.
    pub fn restore_mirostat_mu(&mut self, mu: Option<f64>) {
        if let Some(mu) = mu.filter(|_| self.settings.chain().mirostat.is_some()) {
            self.window.mu = mu;
        }
    }

    /// Lets a function choose tokens from now on, in place of temperature, top-k, top-p and the random sequence.
    pub fn set_callback(&mut self, callback: Option<SamplerCallback>) {
        self.callback = callback;
    }

    /// The function that chooses, if there is one.
    pub fn callback(&self) -> Option<&SamplerCallback> {
        self.callback.as_ref()
    }

    /// A row of logits with the bias of the settings.
    pub(crate) fn biased<'r>(&'r mut self, logits: &'r [f32]) -> &'r [f32] {
        if self.settings.chain().logit_bias.is_empty() {
            return logits;
        }
        self.load_biased(logits);
        &self.row
    }

    fn load_biased(&mut self, logits: &[f32]) {
        self.row.clear();
        self.row.extend_from_slice(logits);
        for (id, by) in &self.settings.chain().logit_bias {
            if let Some(logit) = self.row.get_mut(id.0 as usize) {
                *logit += by;
            }
        }
    }

    fn ask(&mut self, callback: &SamplerCallback, logits: &[f32]) -> Result<TokenId, SamplerError> {
        check(logits)?;
        let token = if self.window.penalties.is_active() || !self.settings.chain().logit_bias.is_empty() {
            self.load_biased(logits);
            self.window.penalties.apply(&mut self.row);
            callback.choose(&self.row)
        } else {
            callback.choose(logits)
        };
        let n_vocab = logits.len();
        if token.0 as usize >= n_vocab { Err(SamplerError::Callback { token, n_vocab }) } else { Ok(token) }
    }

    /// The next token for one row of logits `[n_vocab]`. Ties go to the lowest id.
    ///
    /// Does not change the penalty window: call [`Sampler::accept`] with the token that is kept.
    ///
    /// # Errors
    /// The row is empty, has NaN or +inf, or masks every token.
    pub fn sample(&mut self, logits: &[f32]) -> Result<TokenId, SamplerError> {
        let token = match self.callback.clone() {
            Some(callback) => self.ask(&callback, logits)?,
            None if self.settings.chain().is_active() => self.sample_by_chain(logits)?,
            None => self.sample_as_genie(logits)?,
        };
        self.note(logits, token);
        Ok(token)
    }

    fn sample_as_genie(&mut self, logits: &[f32]) -> Result<TokenId, SamplerError> {
        let best = check(logits)?;
        if self.settings.is_argmax() {
            return Ok(best);
        }
        if self.window.penalties.is_active() {
            self.row.clear();
            self.row.extend_from_slice(logits);
            self.window.penalties.apply(&mut self.row);
            if self.settings.rules() == SamplerRules::Documented {
                check(&self.row)?;
            }
            return Ok(self.draw_from_own_row());
        }
        self.scratch.load(logits, self.settings.rules());
        let u = self.rng.next_unit();
        Ok(draw(&mut self.scratch, &self.settings, logits, u))
    }

    fn sample_by_chain(&mut self, logits: &[f32]) -> Result<TokenId, SamplerError> {
        check(logits)?;
        let xtc = self.settings.chain().xtc.probability;
        let removes = xtc > 0.0 && self.rng.next_unit() < f64::from(xtc);
        let temp = self.run_chain(logits, removes)?;
        if self.settings.is_argmax() {
            return Ok(self.scratch.last());
        }
        let token = self.scratch.draw(temp, self.rng.next_unit());
        if let Some(rule) = self.settings.chain().mirostat {
            self.window.follow(rule, self.scratch.surprise(token));
        }
        Ok(token)
    }

    /// Brings the scratch to what the chain leaves of a row; the temperature to draw with. With the likeliest token alone where
    /// that is asked for.
    fn run_chain(&mut self, logits: &[f32], removes_likely: bool) -> Result<f32, SamplerError> {
        let (settings, scratch) = (&self.settings, &mut self.scratch);
        let (chain, argmax) = (settings.chain(), settings.is_argmax());
        // By the documented rules, whatever those of the policy are.
        scratch.load(logits, SamplerRules::Documented);
        chain.logit_bias.iter().for_each(|(id, bias)| scratch.change(*id, |logit| logit + bias));
        let cuts = chain.mirostat.is_none();
        let mut temp = 1.0;
        for (at, stage) in chain.order.iter().enumerate() {
            match stage {
                // As without a chain: the likeliest token is taken before penalties.
                Stage::Penalties if !argmax && self.window.penalties.is_active() => {
                    self.window.penalties.each(|id, lowered| scratch.change(id, lowered));
                    scratch.check()?;
                }
                Stage::Dry => {
                    if let Some((rule, recent)) = &mut self.window.recent {
                        recent.penalties(rule, &self.breakers, |id, by| scratch.change(id, |logit| logit - by));
                    }
                }
                Stage::TopNSigma if cuts => scratch.keep_n_sigma(chain.top_n_sigma),
                Stage::TopK if cuts => scratch.keep_top_k(settings.top_k()),
                Stage::Typical if cuts => scratch.keep_typical(chain.typical_p),
                Stage::TopP if cuts => scratch.keep_top_p(settings.top_p()),
                Stage::MinP if cuts => scratch.keep_min_p(chain.min_p),
                Stage::Xtc if cuts && removes_likely => scratch.remove_likely(chain.xtc.threshold),
                Stage::Temperature if !argmax => {
                    let dynamic = scratch.dynamic_temp(settings.temp(), chain.dynamic_temp);
                    if cuts && at + 1 == chain.order.len() {
                        temp = dynamic as f32;
                    } else if dynamic > 0.0 {
                        scratch.scale(dynamic);
                    } else {
                        scratch.keep_one();
                    }
                }
                _ => {}
            }
        }
        if !scratch.has_any() {
            return Err(SamplerError::AllMasked { n_vocab: logits.len() });
        }
        if let Some(rule) = chain.mirostat
            && !argmax
        {
            scratch.keep_mirostat(rule, self.window.mu, logits.len());
        }
        if argmax || temp <= 0.0 {
            scratch.keep_one();
            temp = 1.0;
        }
        Ok(temp)
    }

    /// The distribution that the chain leaves; with XTC a mixture of both its ways.
    fn chances_by_chain(&mut self, logits: &[f32], out: &mut Chances) -> Result<(), SamplerError> {
        check(logits)?;
        let temp = self.run_chain(logits, false)?;
        self.scratch.chances(temp, &mut out.entries);
        let share = f64::from(self.settings.chain().xtc.probability);
        if share > 0.0 {
            let mut other = std::mem::take(&mut self.with_removal);
            let removed = self.run_chain(logits, true).map(|temp| {
                self.scratch.chances(temp, &mut other.entries);
                out.mix(&other, share);
            });
            self.with_removal = other;
            removed?;
        }
        Ok(())
    }

    /// Notes how likely a token was, if that is asked for.
    fn note(&mut self, logits: &[f32], token: TokenId) {
        if let Some(n) = self.settings.logprobs() {
            self.logprobs = Some(Logprobs::of(logits, token, n));
        }
    }

    /// How likely a token of the reply was, if that is asked for and it is the one that was drawn last.
    pub(crate) fn take_logprobs(&mut self, token: TokenId) -> Option<Logprobs> {
        self.settings.logprobs()?;
        let drawn = self.logprobs.take().filter(|drawn| drawn.token == token);
        Some(drawn.unwrap_or(Logprobs { token, logprob: None, top: Vec::new() }))
    }

    /// Looks DRY's breakers up in a vocabulary; without them nothing breaks a repetition.
    pub fn learn_breakers(&mut self, tokenizer: &genie_tokenizer::Tokenizer) {
        let dry = &self.settings.chain().dry;
        if dry.multiplier != 0.0 {
            self.breakers = Breakers::of_texts(&dry.breakers, tokenizer);
        }
    }

    /// The distribution that [`sample`](Self::sample) draws from, penalties included. A sampler that takes the most likely
    /// token has all of it there. Draws nothing.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn chances(&mut self, logits: &[f32], out: &mut Chances) -> Result<(), SamplerError> {
        if self.settings.chain().is_active() {
            return self.chances_by_chain(logits, out);
        }
        let best = check(logits)?;
        if self.settings.is_argmax() {
            out.entries.clear();
            out.entries.push((best.0, 1.0));
            return Ok(());
        }
        if self.window.penalties.is_active() {
            self.row.clear();
            self.row.extend_from_slice(logits);
            self.window.penalties.apply(&mut self.row);
            check(&self.row)?;
            self.scratch.load(&self.row, self.settings.rules());
        } else {
            self.scratch.load(logits, self.settings.rules());
        }
        self.scratch.keep_top_k(self.settings.top_k());
        self.scratch.keep_top_p(self.settings.top_p());
        self.scratch.chances(self.settings.temp(), &mut out.entries);
        Ok(())
    }

    /// Takes a drafted token that was drawn from `draft`, or another one instead, so that the token is distributed as
    /// [`sample`](Self::sample) would draw it from `logits`. The test takes one word of the random sequence and leaves one
    /// unused, as libGenie does; a rejected token costs a draw more.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn accept_or_replace(
        &mut self,
        logits: &[f32],
        token: TokenId,
        draft: &Chances,
    ) -> Result<TokenId, SamplerError> {
        let mut own = std::mem::take(&mut self.own);
        let tested = self.chances(logits, &mut own).map(|()| {
            let u = f64::from(self.rng.next_u32()) / 4_294_967_296.0;
            self.rng.next_u32();
            if u < own.of(token) / draft.of(token) {
                return token;
            }
            // Where the two differ by rounding alone, nothing is left over, and the token is as good as any.
            own.draw_beyond(draft, self.rng.next_unit()).unwrap_or(token)
        });
        if let (Ok(token), Some(rule)) = (&tested, self.settings.chain().mirostat) {
            self.window.follow(rule, -own.of(*token).log2());
        }
        self.own = own;
        if let Ok(token) = &tested {
            self.note(logits, *token);
        }
        tested
    }

    /// The window of the penalties, to come back to after tokens that are only proposed.
    pub(crate) fn mark_window(&self) -> Option<Window> {
        (!self.window.is_new()).then(|| self.window.clone())
    }

    /// Forgets the tokens since [`mark_window`](Self::mark_window).
    pub(crate) fn restore_window(&mut self, mark: Option<Window>) {
        match mark {
            Some(window) => self.window = window,
            None => self.window.clear(),
        }
    }

    fn draw_from_own_row(&mut self) -> TokenId {
        self.scratch.load(&self.row, self.settings.rules());
        let u = self.rng.next_unit();
        draw(&mut self.scratch, &self.settings, &self.row, u)
    }

    /// Adds tokens of a prompt to the window of the penalties, as libGenie does.
    pub fn observe(&mut self, input: &[TokenId]) {
        input.iter().for_each(|token| self.window.accept(*token));
    }

    /// Adds a generated token to the window of the penalties.
    pub fn accept(&mut self, token: TokenId) {
        self.window.accept(token);
    }

    /// The window of the penalties after a change of the history: what it would be had these tokens alone been there. Mirostat's
    /// bound stays, as does libGenie's window, which forgets nothing.
    pub(crate) fn relearn(&mut self, history: impl Iterator<Item = TokenId>) {
        if self.settings.rules() != SamplerRules::Genie {
            self.window.forget_tokens();
            history.for_each(|token| self.window.accept(token));
        }
    }

    /// The same for a window of another reply.
    pub(crate) fn relearn_for(&mut self, window: &mut Window, history: impl Iterator<Item = TokenId>) {
        self.exchange_window(window);
        self.relearn(history);
        self.exchange_window(window);
    }

    /// Whether tokens of a draft are accepted by how likely they are, not by what would be drawn: not where the most likely token is
    /// taken, or where a function of the program chooses.
    pub(crate) fn accepts_by_chances(&self) -> bool {
        !self.settings.is_argmax() && self.callback.is_none()
    }

    /// What is remembered of the reply.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Goes on with another window.
    pub(crate) fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    /// Exchanges the window with another one.
    pub(crate) fn exchange_window(&mut self, other: &mut Window) {
        std::mem::swap(&mut self.window, other);
    }

    /// Back to the start: penalty window empty, random state as seeded (a fresh seed if none was set).
    pub fn reset(&mut self) {
        self.seed = self.settings.seed().unwrap_or_else(random_seed);
        self.rng = Mt19937::new(self.seed);
        self.window.clear();
        self.logprobs = None;
    }

    /// The random state as libGenie's `sampler.primary.rng` file has it: 624 decimal words.
    pub fn save_rng(&self) -> String {
        self.rng.to_text()
    }

    /// Continues from a saved random state.
    ///
    /// # Errors
    /// The text is not 624 words of 32 bits.
    pub fn restore_rng(&mut self, text: &str) -> Result<(), RngStateError> {
        self.rng = Mt19937::from_text(text)?;
        Ok(())
    }
}

/// Filters and draws. `row` is what the scratch was loaded with.
fn draw(scratch: &mut filter::Scratch, settings: &SamplerSettings, row: &[f32], u: f64) -> TokenId {
    let genie = settings.rules() == SamplerRules::Genie;
    let evenly = genie && settings.top_k() == 0 && settings.top_p() < 1.0;
    // A division by 0: every probability is NaN in libGenie, and no comparison with one holds.
    let undefined = genie && row.contains(&f32::INFINITY);
    if undefined && evenly {
        return TokenId(0);
    }
    scratch.keep_top_k(settings.top_k());
    if undefined {
        return scratch.last();
    }
    scratch.keep_top_p(settings.top_p());
    if evenly { scratch.draw_evenly(u) } else { scratch.draw(settings.temp(), u) }
}

/// A random seed. The standard library's hasher keys come from the operating system.
fn random_seed() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let h = std::collections::hash_map::RandomState::new().build_hasher().finish();
    (h ^ (h >> 32)) as u32
}

#[cfg(test)]
mod tests;

//! How much time drafting may cost: a share of the time of the reply, measured as it goes.
//!
//! *Unit*: plain steps, by the smoothed time of one. *Rule*: there is a credit. A round that took the time of c plain steps and
//! gave n tokens adds n - c to it, so one that loses time is paid from it; each plain step earns [`EARNED`]. A round is
//! begun where the credit pays for one that gives a single token, or is left and the last rounds have gained on the whole. So a reply whose drafts never hold is slower by the first
//! credit and that share, whatever a round costs here, and one that becomes predictable is found out soon.
//!
//! *Trees*: a kind whose steps always have as many rows has a budget of that many ([`TimeBudget::of_rows`]), and may begin with more credit
//! where it has to look around before it can gain anything.
//!
//! *Length*: other drafts begin short, so that trying costs little; one that holds whole makes the next one twice as long, one that does not at
//! all half as long. What a round costs is known for each power of two of its rows.
//!
//! *Traps*: the step behind a round may have to bring the cache into another form; what it takes longer is the round's. A single
//! step that another process has held up says nothing: times count as at most a multiple of the usual one.

use std::time::{Duration, Instant};

use genie_types::TokenId;

use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;

/// Credit of a reply's first drafts.
const FIRST: f64 = 1.0;
/// Credit for a plain step: the share of the time that may be lost.
const EARNED: f64 = 0.02;
/// Most credit; what was gained long ago is not worth more.
const MOST: f64 = 4.0;
/// Plain steps that rounds are taken to cost as long as none was timed.
const UNKNOWN_COST: f64 = 1.5;
/// Tokens of a first draft, with the token before them a step of four rows.
const FIRST_LEN: usize = 3;
/// Longest draft that is distinguished from longer ones.
const LONGEST: usize = 127;
/// A time counts as at most this many times the usual one.
const OUTLIER: f64 = 4.0;
/// Weight of a new time in a smoothed one.
const WEIGHT: f64 = 0.2;

/// What was measured, and what may still be lost.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeBudget {
    /// Seconds of a plain step.
    plain: Option<f64>,
    /// Plain steps that a round takes, by the power of two that its rows fit into.
    rounds: [Option<f64>; 8],
    /// Tokens of the next draft.
    len: usize,
    /// Plain steps that a round saves, smoothed.
    gain: f64,
    credit: f64,
    /// Credit at the beginning.
    first: f64,
    /// All rounds have as many rows.
    is_fixed: bool,
    /// Every step is a round, whatever it costs.
    is_free: bool,
    /// The step before was none of the plain ones: the next one may have to change the cache's form.
    after_other: bool,
}

impl Default for TimeBudget {
    fn default() -> Self {
        Self {
            plain: None,
            rounds: [None; 8],
            len: FIRST_LEN,
            gain: 0.0,
            credit: FIRST,
            first: FIRST,
            is_fixed: false,
            is_free: false,
            after_other: true,
        }
    }
}

impl TimeBudget {
    /// For rounds that all have about `n_rows` rows.
    pub fn of_rows(n_rows: usize) -> Self {
        Self { len: n_rows.saturating_sub(1), is_fixed: true, ..Self::default() }
    }

    /// The same with the most credit at first, for drafts that have to be learned while they are made.
    #[must_use]
    pub fn learning(self) -> Self {
        Self { credit: MOST, first: MOST, ..self }
    }

    /// The same without a bound: every step is a round.
    #[must_use]
    pub fn free(self) -> Self {
        Self { is_free: true, ..self }
    }

    /// A step that delivers one token, and the time since `began`.
    pub fn plain_step(
        &mut self,
        began: Instant,
        decoding: &mut Decoding<'_>,
    ) -> Result<Option<StopReason>, DialogError> {
        let stop = decoding.advance()?;
        self.plain(began.elapsed());
        Ok(stop)
    }

    /// Time that went into drafting beside the rounds.
    pub fn spent(&mut self, took: Duration) {
        if let Some(plain) = self.plain {
            let steps = took.as_secs_f64() / plain.max(f64::MIN_POSITIVE);
            self.credit = (self.credit - steps).max(-MOST);
        }
    }

    /// A step that gave one token and took longer than a plain one.
    pub fn spent_beside_token(&mut self, took: Duration) {
        let plain = Duration::from_secs_f64(self.plain.unwrap_or(0.0));
        self.spent(took.saturating_sub(plain));
        self.after_other = true;
    }

    /// Tokens that the next draft may have: at most `most`, what a step takes beside one token, and what the reply still wants.
    /// `None` where the next step is a plain one.
    pub fn room(&self, decoding: &mut Decoding<'_>, most: usize) -> Option<usize> {
        let widest = decoding.model().widest_step().unwrap_or(usize::MAX);
        let wanted = decoding.n_wanted().saturating_sub(1);
        self.may_draft().then(|| self.draft_len(most).min(widest - 1).min(wanted))
    }

    /// Verifies a draft, or takes a plain step where it is empty, and counts the time since `began`, when drafting did.
    pub fn step(
        &mut self,
        began: Instant,
        decoding: &mut Decoding<'_>,
        draft: &[TokenId],
    ) -> Result<Option<StopReason>, DialogError> {
        if draft.is_empty() {
            return self.plain_step(began, decoding);
        }
        let verified = decoding.verify(draft)?;
        self.round(began.elapsed(), draft.len(), verified.n_accepted);
        Ok(verified.stop)
    }

    /// Whether the next step may be a round.
    pub fn may_draft(&self) -> bool {
        let loss = self.cost_of(self.len) - 1.0;
        let gains = self.gain > 0.0 && self.credit > 0.0;
        self.is_free || self.plain.is_some() && (gains || self.credit >= loss.min(MOST))
    }

    /// How many tokens of at most `most` the next draft should have.
    pub fn draft_len(&self, most: usize) -> usize {
        if self.is_free { most } else { self.len.min(most) }
    }

    /// Plain steps that a round with such a draft takes: as it was timed, else as the next longer one, else the next shorter one.
    fn cost_of(&self, n_drafted: usize) -> f64 {
        let (shorter, longer) = self.rounds.split_at(class(n_drafted));
        let known = longer.iter().flatten().next().or_else(|| shorter.iter().rev().flatten().next());
        known.copied().unwrap_or(UNKNOWN_COST)
    }

    /// A plain step took so long.
    pub fn plain(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        match self.plain {
            _ if std::mem::take(&mut self.after_other) => {
                if let Some(plain) = self.plain {
                    let more = (took.min(OUTLIER * plain) - plain).max(0.0) / plain.max(f64::MIN_POSITIVE);
                    self.credit -= more;
                }
            }
            None => self.plain = Some(took),
            Some(plain) => self.plain = Some(smoothed(plain, took)),
        }
        self.credit = (self.credit + EARNED).min(MOST);
    }

    /// A round took this long; `n_accepted` tokens of its draft held.
    pub fn round(&mut self, took: Duration, n_drafted: usize, n_accepted: usize) {
        self.len = match n_accepted {
            _ if self.is_fixed => self.len,
            0 => (self.len.min(n_drafted) / 2).max(1),
            n if n >= n_drafted => (2 * n_drafted.max(self.len) + 1).min(LONGEST),
            _ => self.len,
        };
        self.after_other = true;
        let Some(plain) = self.plain else { return };
        let mut cost = took.as_secs_f64() / plain.max(f64::MIN_POSITIVE);
        let known = &mut self.rounds[class(if self.is_fixed { self.len } else { n_drafted })];
        match known {
            None => *known = Some(cost),
            Some(round) => {
                cost = cost.min(OUTLIER * *round);
                *round = smoothed(*round, cost);
            }
        }
        // What one round costs is known by it alone: a second one is not paid for before that is earned.
        let gain = (n_accepted + 1) as f64 - cost;
        self.gain += WEIGHT * (gain - self.gain);
        self.credit = (self.credit + gain).clamp(-MOST, MOST);
    }

    /// Another conversation: its drafts are as good as unknown. What steps take stays known.
    pub fn forget_gains(&mut self) {
        (self.credit, self.gain) = (self.first, 0.0);
        if !self.is_fixed {
            self.len = FIRST_LEN;
        }
        self.after_other = true;
    }
}

/// The power of two that the rows of a draft and the token before it fit into.
fn class(n_drafted: usize) -> usize {
    (n_drafted.min(LONGEST) + 1).next_power_of_two().ilog2() as usize
}

fn smoothed(old: f64, new: f64) -> f64 {
    old + WEIGHT * (new.min(OUTLIER * old) - old)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a reply of `n_tokens`; a round costs `cost` plain steps and gives what the closure says. Returns its time in plain steps,
    /// and how many rounds there were.
    fn reply(n_tokens: usize, cost: f64, mut gives: impl FnMut(usize) -> usize) -> (f64, usize) {
        let of = |steps: f64| Duration::from_secs_f64(steps / 50.0);
        let (mut budget, mut time, mut n, mut rounds) = (TimeBudget::default(), 0.0, 0, 0);
        while n < n_tokens {
            if budget.may_draft() {
                let given = gives(n);
                budget.round(of(cost), 7, given - 1);
                (n, time, rounds) = (n + given, time + cost, rounds + 1);
            } else {
                budget.plain(of(1.0));
                (n, time) = (n + 1, time + 1.0);
            }
        }
        (time, rounds)
    }

    #[test]
    fn drafts_that_never_hold_cost_a_bounded_share() {
        for cost in [1.05, 1.2, 1.5, 2.0, 3.0, 5.0] {
            let n = 256;
            let (time, rounds) = reply(n, cost, |_| 1);
            assert!(rounds > 0 && time <= n as f64 * 1.021 + cost, "{cost}: {time} with {rounds} rounds");
        }
        // One that costs far more than it can give: once, and then hardly ever.
        let (time, rounds) = reply(1_000, 20.0, |_| 1);
        assert!(rounds <= 4, "{rounds} rounds, {time}");
    }

    #[test]
    fn drafts_that_pay_go_on_and_those_that_do_not_stop() {
        let (time, rounds) = reply(1_000, 1.5, |_| 4);
        assert!(rounds > 240 && time < 400.0, "{rounds} rounds, {time}");
        // Far dearer than a plain step, and worth it.
        let (time, rounds) = reply(1_000, 6.0, |_| 8);
        assert!(rounds > 120 && time < 780.0, "{rounds} rounds, {time}");
        // Each gains a token and costs two: a loss, whatever is accepted.
        let (time, _) = reply(1_000, 3.0, |_| 2);
        assert!(time < 1_030.0, "{time}");
    }

    #[test]
    fn a_text_that_becomes_predictable_is_found_out() {
        let (_, rounds) = reply(2_000, 1.5, |n| if n < 1_000 { 1 } else { 4 });
        assert!(rounds > 230, "{rounds}");
    }

    #[test]
    fn drafts_grow_where_they_hold_and_shrink_where_they_do_not() {
        let ms = Duration::from_millis;
        let mut budget = TimeBudget::default();
        assert_eq!((budget.draft_len(7), budget.draft_len(2)), (3, 2));
        (0..2).for_each(|_| budget.plain(ms(10)));
        budget.round(ms(12), 3, 3);
        assert_eq!((budget.draft_len(7), budget.draft_len(20)), (7, 7));
        budget.round(ms(15), 7, 3);
        assert_eq!(budget.draft_len(7), 7);
        budget.round(ms(15), 7, 0);
        assert_eq!(budget.draft_len(7), 3);
        budget.round(ms(12), 3, 0);
        assert_eq!(budget.draft_len(7), 1);
        // What a round of two rows takes is not known: as much as one of four.
        assert!((budget.cost_of(1) - 1.2).abs() < 1e-9 && (budget.cost_of(30) - 1.5).abs() < 1e-9, "{budget:?}");
    }

    #[test]
    fn an_unlucky_first_draft_does_not_end_drafting() {
        // Two short drafts in vain, then every one holds.
        let ms = Duration::from_millis;
        let mut budget = TimeBudget::default();
        (0..2).for_each(|_| budget.plain(ms(10)));
        for _ in 0..2 {
            assert!(budget.may_draft());
            budget.round(ms(13), budget.draft_len(7), 0);
        }
        assert!(budget.may_draft(), "{budget:?}");
        for _ in 0..5 {
            let n = budget.draft_len(7);
            budget.round(ms(15), n, n);
        }
        assert!(budget.may_draft() && budget.draft_len(7) == 7);
    }

    #[test]
    fn one_step_that_was_held_up_does_not_end_drafting() {
        let ms = Duration::from_millis;
        let mut budget = TimeBudget::default();
        (0..3).for_each(|_| budget.plain(ms(10)));
        (0..10).for_each(|_| budget.round(ms(15), 7, 3));
        budget.round(ms(5_000), 7, 3);
        assert!(budget.may_draft());
        budget.plain(ms(9_000));
        budget.plain(ms(9_000));
        (0..100).for_each(|_| budget.plain(ms(10)));
        assert!(budget.may_draft(), "{budget:?}");
    }

    #[test]
    fn trees_keep_their_rows_and_cost_a_bounded_share() {
        let ms = Duration::from_millis;
        for cost in [11, 15, 30, 80] {
            let mut budget = TimeBudget::of_rows(28).learning();
            let (mut time, mut n, mut rounds) = (0, 0, 0);
            while n < 1_000 {
                let is_round = budget.may_draft();
                match is_round {
                    true => budget.round(ms(cost), 9, 0),
                    false => budget.plain(ms(10)),
                }
                (time, n, rounds) = (time + if is_round { cost } else { 10 }, n + 1, rounds + usize::from(is_round));
            }
            // The first credit, a fiftieth, and the round that overdraws it.
            assert!(rounds > 0 && time <= 10_000 + 40 + 200 + cost, "{cost}: {time} ms with {rounds} rounds");
            let expected = cost as f64 / 10.0;
            assert!(budget.rounds[5].is_some_and(|found| (found - expected).abs() < 1e-9), "{:?}", budget.rounds[5]);
            assert_eq!(budget.draft_len(99), 27);
            budget.forget_gains();
            assert_eq!((budget.credit, budget.len), (MOST, 27));
        }
    }

    #[test]
    fn a_text_whose_trees_hold_after_a_while_is_found_out() {
        // Nothing in the first 20 rounds, then a token in each of three.
        let ms = Duration::from_millis;
        let (mut budget, mut rounds) = (TimeBudget::of_rows(32).learning(), 0);
        for _ in 0..3_000 {
            if budget.may_draft() {
                rounds += 1;
                budget.round(ms(13), 9, if rounds > 20 { 1 } else { 0 });
            } else {
                budget.plain(ms(10));
            }
        }
        assert!(rounds > 2_000, "{rounds}");
    }

    #[test]
    fn a_free_budget_always_drafts_and_time_beside_rounds_is_paid() {
        let mut budget = TimeBudget::default().free();
        assert!(budget.may_draft() && budget.draft_len(7) == 7);
        (0..9).for_each(|_| budget.round(Duration::from_millis(900), 7, 0));
        assert!(budget.may_draft() && budget.draft_len(7) == 7);
        let ms = Duration::from_millis;
        let mut budget = TimeBudget::of_rows(8);
        (0..2).for_each(|_| budget.plain(ms(10)));
        budget.spent(ms(20));
        assert!(!budget.may_draft());
    }

    #[test]
    fn nothing_is_drafted_before_a_plain_step_was_timed() {
        let mut budget = TimeBudget::default();
        assert!(!budget.may_draft());
        budget.plain(Duration::from_millis(50)); // brought the cache into another form
        assert!(!budget.may_draft());
        budget.plain(Duration::from_millis(10));
        assert!(budget.may_draft());
        let before = budget.clone();
        budget.round(Duration::from_millis(90), 7, 0);
        assert!(!budget.may_draft());
        budget.forget_gains();
        assert_eq!((budget.plain, budget.credit), (before.plain, FIRST));
    }
}

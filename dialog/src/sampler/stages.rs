//! The filters beyond top-k and top-p, on the same candidates.
//!
//! *Units*: probabilities are those of the logits as they stand when the filter acts, so temperature before it counts.
//! *Order*: those that are kept stay in their order, except after typical sampling, which leaves them likeliest first.

use genie_types::TokenId;

use super::SamplerError;
use super::argmax::is_usable;
use super::chain::{DynamicTemp, Mirostat, MirostatVersion};
use super::filter::{Scratch, by_rank, weight};

/// From how many of the likeliest tokens mirostat 1 estimates the exponent of Zipf's law.
const ZIPF_TOKENS: usize = 100;

impl Scratch {
    /// Changes the logit of a token that is still there.
    pub(super) fn change(&mut self, id: TokenId, new: impl FnOnce(f32) -> f32) {
        let in_order = self.left.get(id.0 as usize).is_some_and(|c| c.id == id.0);
        let at = if in_order { Some(id.0 as usize) } else { self.left.iter().position(|c| c.id == id.0) };
        if let Some(at) = at {
            self.left[at].logit = new(self.left[at].logit) + 0.0;
            self.n_sorted = 0;
        }
    }

    /// Refuses a logit that a change has made NaN or plus infinity.
    ///
    /// # Errors
    /// [`SamplerError::NotFinite`].
    pub(super) fn check(&self) -> Result<(), SamplerError> {
        let mut bad = self.left.iter().filter(|c| !is_usable(c.logit));
        match bad.next() {
            None => Ok(()),
            Some(first) => Err(SamplerError::NotFinite {
                token: first.id as usize,
                value: first.logit,
                n_bad: 1 + bad.count(),
                n_vocab: self.left.len(),
            }),
        }
    }

    /// Whether a token is left that can be drawn.
    pub(super) fn has_any(&self) -> bool {
        self.left.iter().any(|c| c.logit > f32::NEG_INFINITY)
    }

    fn keep_from(&mut self, least: f64) {
        self.left.retain(|c| f64::from(c.logit) >= least);
        self.n_sorted = self.n_sorted.min(self.left.len());
    }

    /// Keeps the tokens that are at least `p` times as likely as the likeliest.
    pub(super) fn keep_min_p(&mut self, p: f32) {
        if p > 0.0 {
            self.keep_from(self.max() + f64::from(p).ln());
        }
    }

    /// Keeps the logits that are at most `n` standard deviations below the largest.
    pub(super) fn keep_n_sigma(&mut self, n: f32) {
        if n <= 0.0 {
            return;
        }
        let finite = || self.left.iter().map(|c| f64::from(c.logit)).filter(|l| l.is_finite());
        let count = finite().count() as f64;
        let mean = finite().sum::<f64>() / count;
        let deviation = (finite().map(|l| (l - mean).powi(2)).sum::<f64>() / count).sqrt();
        self.keep_from(self.max() - f64::from(n) * deviation);
    }

    /// Brings `probabilities` to those of what is left, in its order.
    fn find_probabilities(&mut self) {
        let max = self.max();
        self.probabilities.clear();
        self.probabilities.extend(self.left.iter().map(|c| weight(c.logit, max, 1.0)));
        let total: f64 = self.probabilities.iter().sum();
        self.probabilities.iter_mut().for_each(|w| *w /= total);
    }

    /// Entropy in nats.
    fn entropy(probabilities: &[f64]) -> f64 {
        -probabilities.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>()
    }

    /// Keeps the tokens whose surprise is nearest to the entropy, until their probabilities sum up to more than `p`.
    pub(super) fn keep_typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.find_probabilities();
        let Self { left, probabilities: chances, order, kept, .. } = self;
        let entropy = Self::entropy(chances);
        let off = |at: usize| (-chances[at].ln() - entropy).abs();
        order.clear();
        order.extend(0..chances.len());
        order.sort_unstable_by(|a, b| off(*a).total_cmp(&off(*b)).then(by_rank(&left[*a], &left[*b])));
        let mut sum = 0.0;
        let reached = order.iter().position(|at| {
            sum += chances[*at];
            sum > f64::from(p)
        });
        order.truncate(reached.map_or(order.len(), |at| at + 1));
        kept.clear();
        kept.extend(order.iter().map(|at| left[*at]));
        kept.sort_unstable_by(by_rank);
        std::mem::swap(left, kept);
        self.n_sorted = self.left.len();
    }

    /// Removes the tokens that are at least as likely as the threshold, except the least likely of them.
    pub(super) fn remove_likely(&mut self, threshold: f32) {
        self.find_probabilities();
        let n = self.probabilities.iter().filter(|p| **p >= f64::from(threshold)).count();
        if n >= 2 {
            self.sort_first(n);
            self.left.drain(..n - 1);
            self.n_sorted = self.n_sorted.saturating_sub(n - 1);
        }
    }

    /// Divides the logits.
    pub(super) fn scale(&mut self, temp: f64) {
        self.left.iter_mut().for_each(|c| c.logit = (f64::from(c.logit) / temp) as f32);
    }

    /// The temperature between `temp - range` and `temp + range` that belongs to the entropy of what is left.
    pub(super) fn dynamic_temp(&mut self, temp: f32, dynamic: DynamicTemp) -> f64 {
        let (least, most) = (f64::from((temp - dynamic.range).max(0.0)), f64::from(temp + dynamic.range));
        if dynamic.range <= 0.0 || self.left.len() < 2 {
            return f64::from(temp);
        }
        self.find_probabilities();
        let share = Self::entropy(&self.probabilities) / (self.left.len() as f64).ln();
        least + (most - least) * share.powf(f64::from(dynamic.exponent))
    }

    /// Keeps what mirostat's bound `mu` allows, at least one token; sorted.
    pub(super) fn keep_mirostat(&mut self, rule: Mirostat, mu: f64, n_vocab: usize) {
        match rule.version {
            MirostatVersion::Two => {
                self.find_probabilities();
                let n = self.probabilities.iter().filter(|p| -p.log2() <= mu).count();
                self.keep_best(n);
            }
            MirostatVersion::One => {
                self.sort_first(ZIPF_TOKENS);
                let first = &self.left[..self.left.len().min(ZIPF_TOKENS)];
                let (mut products, mut squares) = (0.0, 0.0);
                for (i, pair) in first.windows(2).enumerate() {
                    let t = ((i + 2) as f64 / (i + 1) as f64).ln();
                    let b = f64::from(pair[0].logit) - f64::from(pair[1].logit);
                    // Tokens that a bias forbids have no place in the law.
                    if b.is_finite() {
                        products += t * b;
                        squares += t * t;
                    }
                }
                let s = if squares > 0.0 { products / squares } else { 1.0 };
                let epsilon = s - 1.0;
                let k = ((epsilon * mu.exp2()) / (1.0 - (n_vocab as f64).powf(-epsilon))).powf(1.0 / s);
                // Equal logits have no law: all are kept.
                self.keep_best(if k.is_nan() { self.left.len() } else { k as usize });
            }
        }
    }

    /// Keeps the `n` likeliest, at least one.
    fn keep_best(&mut self, n: usize) {
        let n = n.clamp(1, self.left.len().max(1));
        self.sort_first(n);
        self.left.truncate(n);
    }

    /// Keeps the likeliest alone; the lowest id of equals.
    pub(super) fn keep_one(&mut self) {
        self.keep_best(1);
    }

    /// What surprise it is, in bits, that a token was drawn from what is left.
    pub(super) fn surprise(&self, id: TokenId) -> f64 {
        let max = self.max();
        let total: f64 = self.left.iter().map(|c| weight(c.logit, max, 1.0)).sum();
        let own = self.left.iter().find(|c| c.id == id.0).map_or(0.0, |c| weight(c.logit, max, 1.0));
        -(own / total).log2()
    }
}

//! Top-k, top-p and the draw, on buffers that are reused from token to token.
//!
//! *Order*: descending logits once a filter has sorted, with ties by ascending id, token-id order before. By libGenie's rules it is
//! the order in which C++'s functions leave the tokens: [`cpp_select`](super::cpp_select).
//! *Units*: probabilities are f64, summed in f64. Cost: only as much of the row is sorted as the filters keep.

use std::cmp::Ordering;

use genie_types::TokenId;

use super::cpp_select::{nth_element, partial_sort};
use super::settings::SamplerRules;

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) logit: f32,
    pub(super) id: u32,
}

/// Likelier first; among equals the one whose id is lower.
pub(super) fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// What libGenie compares: equals have no order.
fn likelier(a: &Candidate, b: &Candidate) -> bool {
    a.logit > b.logit
}

/// The tokens still in the race and their weights.
///
/// *Invariant*: `left[..n_sorted]` holds the `n_sorted` likeliest in rank order; the rest is in no order,
/// or, when `n_sorted` is 0, in token-id order; by libGenie's rules in the order that its filters leave.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) left: Vec<Candidate>,
    pub(super) n_sorted: usize,
    rules: SamplerRules,
    /// Probabilities of what is left, while a stage looks at them.
    pub(super) probabilities: Vec<f64>,
    /// Places in `left`, while typical sampling ranks them.
    pub(super) order: Vec<usize>,
    /// What typical sampling keeps, before it takes the place of `left`.
    pub(super) kept: Vec<Candidate>,
}

impl Scratch {
    /// Starts over with a whole row.
    pub(super) fn load(&mut self, logits: &[f32], rules: SamplerRules) {
        self.left.clear();
        // -0.0 would rank below 0.0 under the total order, though they are equal: adding 0.0 makes it 0.0.
        self.left.extend(logits.iter().zip(0_u32..).map(|(&l, id)| Candidate { logit: l + 0.0, id }));
        (self.n_sorted, self.rules) = (0, rules);
    }

    /// Keeps the `k` largest, sorted. 0 keeps all, unsorted.
    pub(super) fn keep_top_k(&mut self, k: usize) {
        if k == 0 {
            return;
        }
        if self.rules == SamplerRules::Genie {
            partial_sort(&mut self.left, k, likelier);
            self.n_sorted = k.min(self.left.len());
        } else {
            self.sort_first(k);
        }
        self.left.truncate(k);
    }

    /// Keeps the likeliest up to and including the one that brings the sum of probabilities (temperature 1) to `p`.
    /// `p >= 1` keeps all and leaves the order alone.
    pub(super) fn keep_top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        if self.rules == SamplerRules::Genie {
            self.halve_to(p);
            return;
        }
        let max = self.max();
        let total: f64 = self.left.iter().map(|c| weight(c.logit, max, 1.0)).sum();
        let mut sum = 0.0;
        let mut n = 0;
        let mut chunk = 64;
        while n < self.left.len() {
            if n >= self.n_sorted {
                self.sort_first(n + chunk);
                chunk *= 4;
            }
            sum += weight(self.left[n].logit, max, 1.0);
            n += 1;
            if sum / total >= f64::from(p) {
                break;
            }
        }
        self.left.truncate(n);
        self.n_sorted = self.n_sorted.min(n);
    }

    /// As libGenie finds the kept tokens: what is left is halved, the likelier ones in front, and the search goes on in the half
    /// in which the sum of probabilities reaches `p`. So most of those that are kept are never sorted. Sums are float32.
    fn halve_to(&mut self, p: f32) {
        let max = self.max() as f32;
        let probability = |c: &Candidate| (c.logit - max).exp();
        let total: f32 = self.left.iter().map(probability).sum();
        let (mut from, mut to, mut before) = (0, self.left.len(), 0.0f32);
        while to - from > 1 {
            let half = (to - from) / 2;
            nth_element(&mut self.left[from..to], half, likelier);
            let sum: f32 = self.left[from..from + half].iter().map(|c| probability(c) / total).sum();
            if before + sum >= p {
                to = from + half;
            } else {
                before += sum;
                from += half;
            }
        }
        self.left.truncate(to);
        self.n_sorted = self.n_sorted.min(to);
    }

    /// The first token, in the current order, whose cumulative probability of `softmax(logits / temp)` exceeds `u`.
    /// `temp` is above 0; the row has a finite maximum.
    pub(super) fn draw(&self, temp: f32, u: f64) -> TokenId {
        let max = self.max();
        let temp = f64::from(temp);
        let total: f64 = self.left.iter().map(|c| weight(c.logit, max, temp)).sum();
        let mut sum = 0.0;
        let mut last = 0;
        for c in &self.left {
            let w = weight(c.logit, max, temp);
            if w > 0.0 {
                sum += w;
                last = c.id;
                if sum / total > u {
                    break;
                }
            }
        }
        TokenId(last)
    }

    /// The tokens that are left with the probabilities of `softmax(logits / temp)`, by ascending id. `temp` is above 0; the row
    /// has a finite maximum.
    pub(super) fn chances(&self, temp: f32, entries: &mut Vec<(u32, f64)>) {
        let (max, temp) = (self.max(), f64::from(temp));
        entries.clear();
        entries.extend(self.left.iter().map(|c| (c.id, weight(c.logit, max, temp))));
        entries.sort_unstable_by_key(|(id, _)| *id);
        let total: f64 = entries.iter().map(|(_, w)| w).sum();
        entries.iter_mut().for_each(|(_, w)| *w /= total);
    }

    /// libGenie's draw after top-p without top-k: each kept token is as likely as the others, whatever its logit and the
    /// temperature are.
    pub(super) fn draw_evenly(&self, u: f64) -> TokenId {
        let n = self.left.len();
        let at = (0..n).find(|&i| (i + 1) as f64 / n as f64 > u);
        at.and_then(|at| self.left.get(at)).map_or(self.last(), |c| TokenId(c.id))
    }

    /// The last token in the current order.
    pub(super) fn last(&self) -> TokenId {
        TokenId(self.left.last().map_or(0, |c| c.id))
    }

    /// Brings the `n` likeliest to the front, in rank order.
    pub(super) fn sort_first(&mut self, n: usize) {
        let n = n.min(self.left.len());
        if n <= self.n_sorted {
            return;
        }
        let rest = &mut self.left[self.n_sorted..];
        let wanted = n - self.n_sorted;
        if wanted < rest.len() {
            rest.select_nth_unstable_by(wanted - 1, by_rank);
        }
        rest[..wanted].sort_unstable_by(by_rank);
        self.n_sorted = n;
    }

    pub(super) fn max(&self) -> f64 {
        if self.n_sorted > 0 {
            return f64::from(self.left[0].logit);
        }
        f64::from(self.left.iter().fold(f32::NEG_INFINITY, |m, c| m.max(c.logit)))
    }
}

/// `exp((logit - max) / temp)`: 1 for the likeliest, so that nothing overflows.
pub(super) fn weight(logit: f32, max: f64, temp: f64) -> f64 {
    ((f64::from(logit) - max) / temp).exp()
}

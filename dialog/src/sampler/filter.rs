//! Top-k, top-p and the draw, on buffers that are reused from token to token.
//!
//! *Order*: descending logits once a filter has sorted, with ties by ascending id (libGenie: descending), token-id order before.
//! *Units*: probabilities are f64, summed in f64. Cost: only as much of the row is sorted as the filters keep.

use std::cmp::Ordering;

use genie_types::TokenId;

use super::settings::SamplerRules;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    logit: f32,
    id: u32,
    /// The id, or its complement where the higher of two equals comes first.
    place: u32,
}

/// Likelier first; among equals the one whose place is lower.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.place.cmp(&b.place))
}

/// The tokens still in the race and their weights.
///
/// *Invariant*: `left[..n_sorted]` holds the `n_sorted` likeliest in rank order; the rest is in no order,
/// or, when `n_sorted` is 0, in token-id order.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    left: Vec<Candidate>,
    n_sorted: usize,
    /// What the weights of the whole row sum up to, and the logit of weight 1, since top-p was last applied.
    whole: (f64, f64),
}

impl Scratch {
    /// Starts over with a whole row; among equal logits the one with the lower id comes first, as libGenie has it the higher.
    pub(super) fn load(&mut self, logits: &[f32], rules: SamplerRules) {
        self.left.clear();
        let flip = if rules == SamplerRules::Genie { u32::MAX } else { 0 };
        // -0.0 would rank below 0.0 under the total order, though they are equal: adding 0.0 makes it 0.0.
        let candidate = |(&l, id): (&f32, u32)| Candidate { logit: l + 0.0, id, place: id ^ flip };
        self.left.extend(logits.iter().zip(0_u32..).map(candidate));
        self.n_sorted = 0;
    }

    /// Keeps the `k` largest, sorted. 0 keeps all, unsorted.
    pub(super) fn keep_top_k(&mut self, k: usize) {
        if k == 0 {
            return;
        }
        self.sort_first(k);
        self.left.truncate(k);
    }

    /// Keeps the likeliest up to and including the one that brings the sum of probabilities (temperature 1) to `p`.
    /// `p >= 1` keeps all and leaves the order alone.
    pub(super) fn keep_top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let max = self.max();
        let total: f64 = self.left.iter().map(|c| weight(c.logit, max, 1.0)).sum();
        self.whole = (total, max);
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

    /// libGenie's draw after top-p without top-k: the kept tokens are in rank order, but their weights are those of a softmax over
    /// the *probabilities* of the tokens with the lowest ids, as many as are kept. These are nearly equal, so each kept token is
    /// drawn about as often as the others, and the temperature has no effect.
    pub(super) fn draw_by_misplaced_weights(&self, row: &[f32], u: f64) -> TokenId {
        let (whole, max) = self.whole;
        let misplaced = |logit: &f32| (weight(*logit, max, 1.0) / whole).exp();
        let n = self.left.len();
        let total: f64 = row.iter().take(n).map(misplaced).sum();
        let mut sum = 0.0;
        for (c, logit) in self.left.iter().zip(row) {
            sum += misplaced(logit);
            if sum / total > u {
                return TokenId(c.id);
            }
        }
        self.last()
    }

    /// The last token in the current order.
    pub(super) fn last(&self) -> TokenId {
        TokenId(self.left.last().map_or(0, |c| c.id))
    }

    /// Brings the `n` likeliest to the front, in rank order.
    fn sort_first(&mut self, n: usize) {
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

    fn max(&self) -> f64 {
        if self.n_sorted > 0 {
            return f64::from(self.left[0].logit);
        }
        f64::from(self.left.iter().fold(f32::NEG_INFINITY, |m, c| m.max(c.logit)))
    }
}

/// `exp((logit - max) / temp)`: 1 for the likeliest, so that nothing overflows.
fn weight(logit: f32, max: f64, temp: f64) -> f64 {
    ((f64::from(logit) - max) / temp).exp()
}

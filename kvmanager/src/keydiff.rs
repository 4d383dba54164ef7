//! Eviction by score: which keys of a head are worth keeping.
//!
//! The idea of KeyDiff: keys that resemble the mean of the cached keys carry little that others do not, so the ones most
//! like it go first. Scoring is behind a trait, since a bundle may bring a scorer of its own; between two scorings each
//! head has a `Queue` with the order of eviction.
//!
//! *Units*: real numbers, rows `[n, head_dim]`, row-major.

use crate::cells::RowMove;
use crate::codec::decode;
use crate::mode::CacheMode;
use crate::tensor_buf::TensorBuf;
use genie_types::LayerIdx;
use std::collections::BTreeMap;

/// Layer, the tensor's own head number if it holds just one, and the head within the tensor.
pub(crate) type HeadId = (LayerIdx, Option<usize>, usize);

/// The keys of one head, and room for their scores.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadKeys {
    /// Its layer.
    pub layer: LayerIdx,
    /// Its number within the layer.
    pub head: usize,
    /// The keys, `[scores.len(), head_dim]`, in the order of the cache's rows.
    pub keys: Vec<f32>,
    /// A score for each key; the lowest go first.
    pub scores: Vec<f32>,
}

/// Ranks the keys of one head, or of all heads of a group at once.
pub trait KeyScorer: Send {
    /// Writes a score for each key; the lowest go first. `keys` is `[scores.len(), head_dim]`.
    fn score(&mut self, layer: LayerIdx, head: usize, keys: &[f32], scores: &mut [f32]);

    /// Whether a scoring is one call of [`score_group`](Self::score_group), as a network wants it that takes the keys of all
    /// layers. The first split that is kept then waits for the rows of all others.
    fn takes_group(&self) -> bool {
        false
    }

    /// Scores all heads of a group; by default one after the other.
    ///
    /// # Errors
    /// Why it cannot, in words. The step under way fails.
    fn score_group(&mut self, heads: &mut [HeadKeys]) -> Result<(), String> {
        heads.iter_mut().for_each(|h| self.score(h.layer, h.head, &h.keys, &mut h.scores));
        Ok(())
    }

    /// The cache was cleared: forget what was learned from its keys.
    fn reset(&mut self) {}

    /// What was learned from keys, as bytes of the scorer's own; empty for nothing. A saved cache keeps them.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes up what [`save`](Self::save) gave, after a [`reset`](Self::reset). False for bytes of another kind of scorer,
    /// which then goes on as if it had learned nothing.
    fn restore(&mut self, saved: &[u8]) -> bool {
        saved.is_empty()
    }
}

/// The reference: minus the cosine between a key and the head's anchor, a mean of keys.
#[derive(Clone, Debug, Default)]
pub struct KeyDiff {
    alpha: Option<f32>,
    anchors: BTreeMap<(LayerIdx, usize), Vec<f32>>,
}

impl KeyDiff {
    /// An anchor that runs along: each scoring moves it by `alpha` (above 0, at most 1) towards the mean of the keys there
    /// are, so that evicted keys still count for a while. By default it is that mean itself, which is `alpha` 1.
    /// Genie's key for it is `anchor-alpha`.
    #[must_use]
    pub fn running(alpha: f32) -> Self {
        Self { alpha: Some(if alpha > 0.0 && alpha <= 1.0 { alpha } else { 1.0 }), ..Self::default() }
    }
}

impl KeyScorer for KeyDiff {
    fn score(&mut self, layer: LayerIdx, head: usize, keys: &[f32], scores: &mut [f32]) {
        let dim = keys.len() / scores.len().max(1);
        if dim == 0 {
            return;
        }
        let mut mean = vec![0.0f32; dim];
        for key in keys.chunks_exact(dim) {
            mean.iter_mut().zip(key).for_each(|(m, k)| *m += k / scores.len() as f32);
        }
        let anchor = match self.alpha {
            None => &mean,
            Some(alpha) => {
                let anchor = self.anchors.entry((layer, head)).or_insert_with(|| mean.clone());
                anchor.iter_mut().zip(&mean).for_each(|(a, m)| *a += alpha * (m - *a));
                anchor
            }
        };
        let norm = |x: &[f32]| x.iter().map(|v| v * v).sum::<f32>().sqrt();
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(dim)) {
            let dot: f32 = key.iter().zip(anchor.iter()).map(|(k, m)| k * m).sum();
            let length = norm(key) * norm(anchor);
            *score = if length > 0.0 { -dot / length } else { 0.0 };
        }
    }

    fn reset(&mut self) {
        self.anchors.clear();
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for ((layer, head), anchor) in &self.anchors {
            [layer.0, *head, anchor.len()].iter().for_each(|&n| out.extend((n as u32).to_le_bytes()));
            anchor.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        out
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        self.anchors.clear();
        let Some(anchors) = read_anchors(saved) else { return false };
        // The mean itself is no state.
        if self.alpha.is_some() {
            self.anchors = anchors;
        }
        true
    }
}

/// Layer, head, width (u32 each) and the anchor (f32), little-endian, until the bytes end.
fn read_anchors(saved: &[u8]) -> Option<BTreeMap<(LayerIdx, usize), Vec<f32>>> {
    let (words, []) = saved.as_chunks::<4>() else { return None };
    let mut words = words.iter();
    let mut anchors = BTreeMap::new();
    while let Some(layer) = words.next() {
        let mut number = || words.next().map(|&n| u32::from_le_bytes(n) as usize);
        let (head, len) = (number()?, number()?);
        let anchor: Vec<f32> = words.by_ref().take(len).map(|&x| f32::from_le_bytes(x)).collect();
        if anchor.len() != len || anchor.iter().any(|x| !x.is_finite()) {
            return None;
        }
        anchors.insert((LayerIdx(u32::from_le_bytes(*layer) as usize), head), anchor);
    }
    Some(anchors)
}

/// The keys of a head as numbers.
pub(crate) fn read_keys(tensor: &TensorBuf, bytes: &[u8], mode: &dyn CacheMode, head: usize, n: usize) -> Vec<f32> {
    let dim = tensor.spec.head_dim;
    let mut keys = Vec::with_capacity(n * dim);
    for row in 0..n {
        keys.extend((0..dim).map(|d| decode(&tensor.spec, tensor.element(bytes, mode, (head, d, row)))));
    }
    keys
}

/// The order of eviction of a head: the rows of the last scoring, the next one last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Vec<usize>);

impl Queue {
    /// Ranks all rows of a head but the sinks: the lowest score goes first, of equals the lower row. `sinks` is ascending.
    pub(crate) fn score(scorer: &mut dyn KeyScorer, head: &HeadId, keys: &[f32], n: usize, sinks: &[usize]) -> Self {
        let mut scores = vec![0.0; n];
        scorer.score(head.0, head.1.unwrap_or(head.2), keys, &mut scores);
        Self::of_scores(&scores, sinks)
    }

    /// The order that scores give. `sinks` is ascending.
    pub(crate) fn of_scores(scores: &[f32], sinks: &[usize]) -> Self {
        let n = scores.len();
        let mut rows: Vec<usize> = (0..n).filter(|row| sinks.binary_search(row).is_err()).collect();
        rows.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(b.cmp(&a)));
        Self(rows)
    }

    /// The rows in the order of eviction, the next one last.
    pub(crate) fn rows(&self) -> &[usize] {
        &self.0
    }

    /// An order that was saved.
    pub(crate) fn of_rows(rows: Vec<usize>) -> Self {
        Self(rows)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the next `n_evict` out of `n` rows, at least one; returns the moves that close the gaps and bring the sinks to
    /// the front, to be made in order. Those who wait are followed to their new rows.
    pub(crate) fn evict(&mut self, n_evict: usize, n: usize, sinks: &[usize]) -> Vec<RowMove> {
        let mut gone = self.0.split_off(self.0.len().saturating_sub(n_evict));
        gone.sort_unstable();
        let (left, mut moves) = (n - gone.len(), moves(&gone, n));
        // A survivor from the end has moved, so it is the source of a move.
        let moved = |row: usize| moves.binary_search_by_key(&row, |m| m.src).map_or(row, |i| moves[i].dst);
        self.0.iter_mut().for_each(|row| *row = moved(*row));
        if sinks.iter().enumerate().any(|(place, &sink)| place != sink) {
            let sinks: Vec<usize> = sinks.iter().map(|&sink| moved(sink)).collect();
            let strays = sinks.iter().filter(|sink| **sink >= sinks.len());
            let places = (0..sinks.len()).filter(|place| !sinks.contains(place));
            for (&stray, place) in strays.zip(places) {
                // Row `left` is free by now.
                let swap = [(place, left), (stray, place), (left, stray)];
                moves.extend(swap.map(|(src, dst)| RowMove { src, dst, len: 1 }));
                self.0.iter_mut().filter(|row| **row == place).for_each(|row| *row = stray);
            }
        }
        moves
    }
}

/// The fewest moves that leave `n - gone.len()` rows in front: rows from the end fill the gaps. `gone` is ascending.
fn moves(gone: &[usize], n: usize) -> Vec<RowMove> {
    let left = n - gone.len();
    let survivors = (left..n).filter(|row| gone.binary_search(row).is_err());
    gone.iter().filter(|&&row| row < left).zip(survivors).map(|(&dst, src)| RowMove { src, dst, len: 1 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_most_like_the_mean_goes_first() {
        let keys = [1.0, 0.0, 0.9, 0.1, 0.0, 1.0, -0.5, 0.5];
        let mut scores = [0.0; 4];
        KeyDiff::default().score(LayerIdx(0), 0, &keys, &mut scores);
        // Mean (0.35, 0.4): by cosine 0.659, 0.738, 0.753, 0.067.
        let order = [-0.6585, -0.7376, -0.7526, -0.0665];
        assert!(scores.iter().zip(order).all(|(s, o)| (s - o).abs() < 1e-3), "{scores:?}");
        let id = (LayerIdx(0), None, 0);
        let mut queue = Queue::score(&mut KeyDiff::default(), &id, &keys, 4, &[]);
        assert_eq!(queue.0, [3, 0, 1, 2], "the next one to go is last");
        // Rows 1 and 2 go and row 3 takes the place of row 1, where the queue still knows it.
        assert_eq!(queue.evict(2, 4, &[]), [RowMove { src: 3, dst: 1, len: 1 }]);
        assert_eq!(queue.0, [1, 0]);
        assert_eq!(Queue::score(&mut KeyDiff::default(), &id, &keys, 4, &[0, 1]).0, [3, 2], "sinks do not queue");
        // Row 3 is a sink and 2 goes: 3 closes the gap, then takes row 0, whose key is at row 2 from now on.
        let mut queue = Queue::score(&mut KeyDiff::default(), &id, &keys, 4, &[3]);
        assert_eq!(queue.0, [0, 1, 2]);
        let moves_of = |pairs: &[(usize, usize)]| -> Vec<RowMove> {
            pairs.iter().map(|&(src, dst)| RowMove { src, dst, len: 1 }).collect()
        };
        assert_eq!(queue.evict(1, 4, &[3]), moves_of(&[(3, 2), (0, 3), (2, 0), (3, 2)]));
        assert_eq!(queue.0, [2, 1]);
        assert_eq!(moves(&[1, 2], 4), [RowMove { src: 3, dst: 1, len: 1 }]);
        assert_eq!(moves(&[3], 4), []);
        KeyDiff::default().score(LayerIdx(0), 0, &[0.0; 4], &mut scores[..2]);
        assert_eq!(scores[..2], [0.0, 0.0]);
    }

    #[test]
    fn a_running_anchor_remembers_keys_that_went() {
        let (layer, mut scores) = (LayerIdx(0), [0.0; 2]);
        let mut running = KeyDiff::running(0.25);
        running.score(layer, 0, &[1.0, 0.0, 1.0, 0.0], &mut scores);
        assert_eq!(scores, [-1.0, -1.0], "the first anchor is the mean");
        // Now the mean is (0, 1); the anchor has moved a quarter of the way, to (0.75, 0.25).
        running.score(layer, 0, &[0.0, 1.0, 0.0, 1.0], &mut scores);
        assert!((scores[0] + 0.25 / 0.625f32.sqrt()).abs() < 1e-6, "{scores:?}");
        running.score(layer, 1, &[0.0, 1.0, 0.0, 1.0], &mut scores);
        assert_eq!(scores, [-1.0, -1.0], "each head has its own");
        running.reset();
        running.score(layer, 0, &[0.0, 2.0, 0.0, 2.0], &mut scores);
        assert_eq!(scores, [-1.0, -1.0], "and forgets it with the cache");
        KeyDiff::default().score(layer, 0, &[], &mut []);
    }
}

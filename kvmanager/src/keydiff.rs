//! Eviction by score: which keys of a head are worth keeping.
//!
//! The idea of KeyDiff: keys that resemble the mean of the cached keys say little that others do not, so the ones most
//! like it go first. Scoring is behind a trait, since a bundle may bring a scorer of its own.
//!
//! *Units*: real numbers, rows `[n, head_dim]`, row-major.

use crate::cells::RowMove;
use crate::codec::decode;
use crate::mode::CacheMode;
use crate::tensor_buf::TensorBuf;
use genie_types::LayerIdx;

/// Layer, the tensor's own head number if it holds just one, and the head within the tensor.
pub(crate) type HeadId = (LayerIdx, Option<usize>, usize);

/// Ranks the keys of one head.
pub trait KeyScorer: Send {
    /// Writes a score for each key; the lowest go first. `keys` is `[scores.len(), head_dim]`.
    fn score(&mut self, layer: LayerIdx, head: usize, keys: &[f32], scores: &mut [f32]);
}

/// The reference: minus the cosine between a key and the mean of all keys there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyDiff;

impl KeyScorer for KeyDiff {
    fn score(&mut self, _layer: LayerIdx, _head: usize, keys: &[f32], scores: &mut [f32]) {
        let dim = keys.len() / scores.len().max(1);
        let mut mean = vec![0.0f32; dim];
        for key in keys.chunks_exact(dim) {
            mean.iter_mut().zip(key).for_each(|(m, k)| *m += k / scores.len() as f32);
        }
        let norm = |x: &[f32]| x.iter().map(|v| v * v).sum::<f32>().sqrt();
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(dim)) {
            let dot: f32 = key.iter().zip(&mean).map(|(k, m)| k * m).sum();
            let length = norm(key) * norm(&mean);
            *score = if length > 0.0 { -dot / length } else { 0.0 };
        }
    }
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

/// The `n_evict` rows with the lowest scores, ascending, never one of the first `sinks`.
pub(crate) fn choose(
    scorer: &mut dyn KeyScorer,
    head: &HeadId,
    keys: &[f32],
    n: usize,
    sinks: usize,
    n_evict: usize,
) -> Vec<usize> {
    let mut scores = vec![0.0; n];
    scorer.score(head.0, head.1.unwrap_or(head.2), keys, &mut scores);
    let mut rows: Vec<usize> = (sinks.min(n)..n).collect();
    // Of equals, the older goes.
    rows.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]).then(a.cmp(&b)));
    rows.truncate(n_evict);
    rows.sort_unstable();
    rows
}

/// The fewest moves that leave `n - gone.len()` rows in front: rows from the end fill the gaps. `gone` is ascending.
pub(crate) fn moves(gone: &[usize], n: usize) -> Vec<RowMove> {
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
        KeyDiff.score(LayerIdx(0), 0, &keys, &mut scores);
        // Mean (0.35, 0.4): by cosine 0.659, 0.738, 0.753, 0.067.
        let order = [-0.6585, -0.7376, -0.7526, -0.0665];
        assert!(scores.iter().zip(order).all(|(s, o)| (s - o).abs() < 1e-3), "{scores:?}");
        let id = (LayerIdx(0), None, 0);
        assert_eq!(choose(&mut KeyDiff, &id, &keys, 4, 0, 2), [1, 2]);
        assert_eq!(choose(&mut KeyDiff, &id, &keys, 4, 2, 1), [2]);
        assert_eq!(moves(&[1, 2], 4), [RowMove { src: 3, dst: 1, len: 1 }]);
        assert_eq!(moves(&[3], 4), []);
        KeyDiff.score(LayerIdx(0), 0, &[0.0; 4], &mut scores[..2]);
        assert_eq!(scores[..2], [0.0, 0.0]);
    }
}

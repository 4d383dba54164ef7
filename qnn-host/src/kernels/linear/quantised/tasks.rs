//! The tasks of layers whose weights stream from memory. Threads take runs of them: each change of place interrupts the stream.

use super::super::super::packed::Packed;
use super::super::{Job, Linear};
use super::packed;
use crate::pool::Worker;

/// Some outputs of a layer, for all rows.
pub(super) struct Task<'j, 'a> {
    pub(super) layer: &'j Linear<'a>,
    /// The layer's weights.
    pub(super) weights: Packed<'a>,
    /// The first output, which begins a group.
    pub(super) n0: usize,
    pub(super) count: usize,
}

/// The tasks that this thread takes, of the packed layers with scales for each 16 (`by_halves`) or with others. `chunk_of` says how many
/// outputs a task of such weights has, in whole groups.
#[inline(always)]
pub(super) fn tasks<'j, 'a>(
    worker: Worker<'j>,
    job: &'j Job<'a>,
    by_halves: bool,
    chunk_of: impl Fn(Packed<'a>) -> usize,
) -> impl Iterator<Item = Task<'j, 'a>> {
    let mut layers = job.layers.iter().filter_map(move |layer| Some((layer, packed(layer, by_halves)?)));
    let all = layers.clone().map(|(_, weights)| weights.rows().div_ceil(chunk_of(weights))).sum();
    let (mut run, mut first, mut current) = (0..0, 0, layers.next());
    std::iter::from_fn(move || {
        if run.is_empty() {
            run = worker.take_run(all);
        }
        loop {
            let (layer, weights) = current?;
            let (n, chunk) = (weights.rows(), chunk_of(weights));
            let n0 = (run.start - first) * chunk;
            if n0 < n {
                run.start += 1;
                return Some(Task { layer, weights, n0, count: chunk.min(n - n0) });
            }
            first += n.div_ceil(chunk);
            current = layers.next();
        }
    })
}

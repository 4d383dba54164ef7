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

/// Outputs of a task, in whole groups.
#[derive(Clone, Copy)]
pub(super) struct TaskSizes {
    /// What threads take, one at a time, when little is left.
    pub(super) least: usize,
    /// What is computed without a pause where more lie in a row: a multiple of `least`.
    pub(super) most: usize,
}

/// The tasks that this thread takes, of the packed layers with scales for each 16 (`by_halves`) or with others.
#[inline(always)]
pub(super) fn tasks<'j, 'a>(
    worker: Worker<'j>,
    job: &'j Job<'a>,
    by_halves: bool,
    sizes_of: impl Fn(Packed<'a>) -> TaskSizes,
) -> impl Iterator<Item = Task<'j, 'a>> {
    let mut layers = job.layers.iter().filter_map(move |layer| Some((layer, packed(layer, by_halves)?)));
    let all = layers.clone().map(|(_, weights)| weights.rows().div_ceil(sizes_of(weights).least)).sum();
    let (mut run, mut first, mut current) = (0..0, 0, layers.next());
    std::iter::from_fn(move || {
        if run.is_empty() {
            run = worker.take_run(all);
        }
        loop {
            let (layer, weights) = current?;
            let (n, TaskSizes { least, most }) = (weights.rows(), sizes_of(weights));
            let n0 = (run.start - first) * least;
            if n0 < n {
                let count = most.min(run.len() * least).min(n - n0);
                run.start += count.div_ceil(least);
                return Some(Task { layer, weights, n0, count });
            }
            first += n.div_ceil(least);
            current = layers.next();
        }
    })
}

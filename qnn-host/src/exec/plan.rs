//! When steps run and where values live: phases between barriers, and offsets in the arena.
//!
//! *Units*: bytes; times are phases. Steps of one phase run side by side, so a value is alive from the phase that writes it
//! to the last that uses it, both included.

use crate::bytes::ALIGN;

/// What a step touches, by value number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) reads: Vec<usize>,
    pub(crate) writes: Vec<usize>,
    /// Read, and perhaps written where it lies: after all who read it before this step in the list.
    pub(crate) overwrites: Vec<usize>,
    /// Uses the scratch or the pool's task counter, which one step of a phase may.
    pub(crate) exclusive: bool,
}

/// The phase of each step: as early as what it depends on allows.
pub(crate) fn phases(steps: &[Access], n_values: usize) -> Vec<usize> {
    // First phase in which the value may be read, and in which it may be overwritten.
    let (mut readable, mut writable) = (vec![0; n_values], vec![0; n_values]);
    let mut taken: Vec<bool> = Vec::new();
    steps
        .iter()
        .map(|step| {
            let after_reads = step.reads.iter().map(|&v| readable[v]).max().unwrap_or(0);
            let changed = step.writes.iter().chain(&step.overwrites);
            let mut phase = changed.map(|&v| writable[v]).max().unwrap_or(0).max(after_reads);
            if step.exclusive {
                while taken.get(phase) == Some(&true) {
                    phase += 1;
                }
                taken.resize(taken.len().max(phase + 1), false);
                taken[phase] = true;
            }
            step.reads.iter().for_each(|&v| writable[v] = writable[v].max(phase + 1));
            for &v in &step.writes {
                readable[v] = phase + 1;
                writable[v] = writable[v].max(phase + 1);
            }
            phase
        })
        .collect()
}

/// A value that needs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// First and last phase that uses it.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) bytes: usize,
}

impl Span {
    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// When each value is used; `None` for those that no step writes.
pub(crate) fn spans(steps: &[Access], phases: &[usize], bytes: &[usize]) -> Vec<Option<Span>> {
    let mut spans: Vec<Option<Span>> = vec![None; bytes.len()];
    for (step, &phase) in steps.iter().zip(phases) {
        for &value in &step.writes {
            let fresh = Span { first: phase, last: phase, bytes: bytes[value] };
            let span = spans[value].get_or_insert(fresh);
            (span.first, span.last) = (span.first.min(phase), span.last.max(phase));
        }
    }
    for (step, &phase) in steps.iter().zip(phases) {
        for &value in &step.reads {
            if let Some(span) = &mut spans[value] {
                span.last = span.last.max(phase);
            }
        }
    }
    spans
}

/// An offset for each value, and the size of the arena: large values first, each at the lowest place that is free for as
/// long as it lives.
pub(crate) fn place(spans: &[Option<Span>]) -> (Vec<usize>, usize) {
    let mut order: Vec<(usize, Span)> = spans.iter().enumerate().filter_map(|(i, s)| Some((i, (*s)?))).collect();
    order.sort_by_key(|&(index, span)| (std::cmp::Reverse(span.bytes), span.first, index));
    let mut offsets = vec![0; spans.len()];
    let mut placed: Vec<(usize, Span)> = Vec::new();
    let mut total = 0;
    for (index, span) in order {
        let mut at = 0;
        // `placed` is kept in the order of offsets.
        for &(offset, other) in placed.iter().filter(|(_, other)| other.meets(&span)) {
            if offset >= at + rounded(span.bytes) {
                break;
            }
            at = at.max(offset + rounded(other.bytes));
        }
        offsets[index] = at;
        total = total.max(at + rounded(span.bytes));
        let place = placed.partition_point(|&(offset, _)| offset <= at);
        placed.insert(place, (at, span));
    }
    (offsets, total)
}

fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Finds two values that live at the same time in the same place; none, unless [`place`] is broken. Steps rely on it for
/// memory safety, so it is looked at once a graph.
pub(crate) fn clash(spans: &[Option<Span>], offsets: &[usize]) -> Option<(usize, usize)> {
    let mut live: Vec<(usize, usize, Span)> =
        spans.iter().enumerate().filter_map(|(i, s)| Some((i, offsets[i], (*s)?))).collect();
    live.sort_by_key(|&(_, offset, _)| offset);
    for (n, &(i, offset, span)) in live.iter().enumerate() {
        for &(j, other, other_span) in live[n + 1..].iter().take_while(|(_, o, _)| *o < offset + span.bytes) {
            debug_assert!(other >= offset, "sorted by offset");
            if span.meets(&other_span) && other_span.bytes > 0 {
                return Some((i, j));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn access(reads: &[usize], writes: &[usize]) -> Access {
        Access { reads: reads.to_vec(), writes: writes.to_vec(), ..Access::default() }
    }

    #[test]
    fn independent_steps_share_a_phase() {
        let steps =
            [access(&[], &[0]), access(&[], &[1]), access(&[0], &[2]), access(&[1, 2], &[3]), access(&[1], &[4])];
        assert_eq!(phases(&steps, 5), [0, 0, 1, 2, 1]);
    }

    #[test]
    fn exclusive_steps_do_not() {
        let alone = |reads: &[usize], writes: &[usize]| Access { exclusive: true, ..access(reads, writes) };
        assert_eq!(phases(&[alone(&[], &[0]), alone(&[], &[1]), alone(&[0], &[2])], 3), [0, 1, 2]);
    }

    #[test]
    fn rounding_in_place_waits_for_the_writer_and_readers_wait_for_it() {
        let steps = [access(&[], &[0]), access(&[0], &[0]), access(&[0], &[1])];
        assert_eq!(phases(&steps, 2), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn values_never_clash_and_memory_is_reused(
            raw in proptest::collection::vec((0usize..30, 0usize..8, 0usize..2000), 0..60)
        ) {
            let spans: Vec<Option<Span>> =
                raw.iter().map(|&(first, n, bytes)| Some(Span { first, last: first + n, bytes })).collect();
            let (offsets, total) = place(&spans);
            prop_assert_eq!(clash(&spans, &offsets), None);
            let sum: usize = spans.iter().flatten().map(|s| rounded(s.bytes)).sum();
            prop_assert!(total <= sum);
            for (span, offset) in spans.iter().flatten().zip(&offsets) {
                prop_assert!(offset + span.bytes <= total && offset % ALIGN == 0);
            }
        }
    }
}

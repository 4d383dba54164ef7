//! Times of steps as they were seen, where none were measured before: what a tree costs is learnt from the steps that have one.

use std::collections::BTreeMap;

/// What the newest step says of the next one of its width.
const NEWEST: f64 = 0.25;
/// Steps that leave a tree out after which a wide step is thought of as half as long, about: one that was slow by chance is tried again.
const HALVES: f64 = 256.0;

/// Microseconds of steps by width, from the beginning of one to that of the next: what is done between them counts.
#[derive(Debug, Default)]
pub(crate) struct SeenTimes {
    us: BTreeMap<usize, f64>,
    /// The step under way.
    last: Option<(u64, usize)>,
}

impl SeenTimes {
    /// The scheduler is asked for the next step: the one before is over.
    pub(crate) fn ticks(&mut self, now_us: u64) {
        let Some((began, width)) = self.last.take() else { return };
        let us = now_us.saturating_sub(began) as f64;
        self.us.entry(width).and_modify(|seen| *seen += (us - *seen) * NEWEST).or_insert(us);
    }

    /// A step begins behind which another one follows at once.
    pub(crate) fn begins(&mut self, now_us: u64, width: usize) {
        self.last = Some((now_us, width));
    }

    /// Whether a step of the wider one's width has been seen to be worth it: [`is_worth`]. What has not been seen is tried, the wider one
    /// first; where it is not worth it, its time is forgotten a little.
    pub(crate) fn is_worth(&mut self, tokens: (f64, f64), narrow: usize, wide: usize) -> bool {
        let without = self.us.get(&narrow).copied();
        let Some(with) = self.us.get_mut(&wide) else { return true };
        let worth = without.map_or(narrow == wide, |without| is_worth(tokens, without, *with));
        if !worth {
            *with *= 1.0 - std::f64::consts::LN_2 / HALVES;
        }
        worth
    }
}

/// Whether `n` tokens and `gain` more in a step of `with` microseconds are no fewer in a microsecond than `n` in one of `without`.
pub(crate) fn is_worth((n, gain): (f64, f64), without: f64, with: f64) -> bool {
    (n + gain) * without >= n * with
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(steps: &[(usize, u64)]) -> SeenTimes {
        let (mut times, mut now) = (SeenTimes::default(), 0);
        for &(width, us) in steps {
            times.begins(now, width);
            now += us;
            times.ticks(now);
        }
        times
    }

    #[test]
    fn both_widths_are_tried_before_one_is_left() {
        let worth = |steps: &[(usize, u64)]| seen(steps).is_worth((1.0, 1.0), 1, 16);
        assert!(worth(&[]) && worth(&[(1, 10)]));
        assert!(!worth(&[(16, 30)]), "how long a narrow one takes is not known");
        assert!(!worth(&[(1, 10), (16, 30)]) && worth(&[(1, 10), (16, 20)]));
        assert!(seen(&[(16, 30)]).is_worth((3.0, 0.1), 16, 16), "the rows are there for nothing");
    }

    #[test]
    fn a_step_that_was_slow_by_chance_is_tried_again() {
        let mut times = seen(&[(1, 10), (16, 100)]);
        let n = (0..10_000).take_while(|_| !times.is_worth((1.0, 1.0), 1, 16));
        let n = n.count();
        assert!((400..800).contains(&n), "{n} steps");
        // Nothing is seen of a step behind which the scheduler waits.
        let mut times = SeenTimes::default();
        times.ticks(50);
        assert!(times.us.is_empty());
    }
}

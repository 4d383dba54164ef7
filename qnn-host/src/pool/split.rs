//! Dividing work between threads into fixed shares.

use std::ops::Range;

/// The share of thread `index` of `count` in `0..n`: contiguous, in thread order, equal up to one unit, and every share
/// but the last ends at a multiple of `unit`.
pub fn share(n: usize, unit: usize, index: usize, count: usize) -> Range<usize> {
    let units = n.div_ceil(unit);
    let edge = |i: usize| (units * i / count * unit).min(n);
    edge(index)..edge(index + 1)
}

//! Prefetches the next values while scores are computed and the next keys while values are weighted, a few lines per step,
//! so that loads do not stall where one phase follows the other. Into the second-level cache: a core can ask for more lines of
//! that one at a time, and a phase is too short for those of the first one.

use super::super::simd::Simd;

/// Bytes of a cache line on most CPUs.
const LINE: usize = 64;

/// Cache lines still to prefetch, from each of several rows.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    row: *const u8,
    stride: usize,
    rows: usize,
    /// Lines of a row, and how many of the current one were prefetched.
    lines: usize,
    issued: usize,
    /// Lines to prefetch at each step.
    share: usize,
}

impl Ahead {
    /// `rows` rows of `len` bytes, `stride` bytes apart. They need not be readable.
    #[inline(always)]
    pub(super) fn new(start: *const u8, stride: usize, rows: usize, len: usize) -> Self {
        // A row need not begin with a line. No bytes are no lines.
        let lines = if len == 0 { 0 } else { (start.addr() % LINE + len).div_ceil(LINE) };
        Self { row: start, stride, rows: if len == 0 { 0 } else { rows }, lines, issued: 0, share: 0 }
    }

    /// Divides what is left among `steps` steps.
    #[inline(always)]
    pub(super) fn spread(&mut self, steps: usize) {
        self.share = (self.rows * self.lines).div_ceil(steps.max(1));
    }

    /// Prefetches a step's share.
    #[inline(always)]
    pub(super) fn step<S: Simd>(&mut self, s: S) {
        for _ in 0..self.share {
            let Some(line) = self.next() else { return };
            s.prefetch_l2(line);
        }
    }

    /// An address in the next line.
    #[inline(always)]
    fn next(&mut self) -> Option<*const u8> {
        if self.rows == 0 {
            return None;
        }
        let line = self.row.wrapping_add(self.issued * LINE);
        self.issued += 1;
        if self.issued == self.lines {
            (self.issued, self.rows) = (0, self.rows - 1);
            self.row = self.row.wrapping_add(self.stride);
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_each_row_is_prefetched_once() {
        // Rows of 100 bytes: on two lines, or on three where they begin near the end of one.
        for (start, lines) in [(0, vec![0, 1, 8, 9]), (60, vec![0, 1, 2, 8, 9, 10])] {
            let start = std::ptr::without_provenance(start);
            let mut ahead = Ahead::new(start, 8 * LINE, 2, 100);
            ahead.spread(4);
            assert_eq!(ahead.share, lines.len().div_ceil(4));
            let found: Vec<usize> = std::iter::from_fn(|| ahead.next()).map(|p| p.addr() / LINE).collect();
            assert_eq!(found, lines);
        }
        assert!(Ahead::new(std::ptr::null(), 64, 8, 0).next().is_none(), "no bytes are no lines");
    }
}

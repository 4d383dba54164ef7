//! The byte moves on lines of rows: re-stride, append, all within one buffer.
//!
//! *Units*: rows and units (a unit is a row's share of a line, `unit_bytes`). See [`Place`] for the picture.

use crate::mode::Place;
use crate::tensor_buf::Run;

/// Moves rows `0..n` of all lines from one place to another within a buffer.
///
/// A line never overtakes one that has not moved yet: towards higher addresses the last line goes first.
pub(crate) fn relocate(bytes: &mut [u8], unit: usize, n_lines: usize, n: usize, from: Place, to: Place) {
    if n == 0 || from == to {
        return;
    }
    let len = n * unit;
    let mut line = |l: usize| {
        let (src, dst) = (from.unit(l, 0) * unit, to.unit(l, 0) * unit);
        if src != dst {
            bytes.copy_within(src..src + len, dst);
        }
    };
    if to.stride >= from.stride { (0..n_lines).rev().for_each(&mut line) } else { (0..n_lines).for_each(&mut line) }
}

/// Copies a run of the new columns (lines of `ar` units) to row `row` of the past.
pub(crate) fn append(past: &mut [u8], place: Place, row: usize, new: &[u8], ar: usize, run: Run, unit: usize) {
    let Run { col: src_col, len: n } = run;
    if n == 0 {
        return;
    }
    let (stride, first) = (place.stride * unit, place.unit(0, row) * unit);
    let sources = new.chunks_exact(ar * unit);
    // One element a line is the decode step's case: fixed widths compile to plain loads and stores.
    match n * unit {
        1 => scatter::<1>(past, first, stride, sources, src_col * unit),
        2 => scatter::<2>(past, first, stride, sources, src_col * unit),
        4 => scatter::<4>(past, first, stride, sources, src_col * unit),
        len => {
            let src = src_col * unit;
            for (line, source) in sources.enumerate() {
                let at = first + line * stride;
                past[at..at + len].copy_from_slice(&source[src..src + len]);
            }
        }
    }
}

fn scatter<'a, const N: usize>(
    past: &mut [u8],
    first: usize,
    stride: usize,
    sources: impl Iterator<Item = &'a [u8]>,
    src: usize,
) {
    let mut at = first;
    for source in sources {
        past[at..at + N].copy_from_slice(&source[src..src + N]);
        at += stride;
    }
}

//! Moves as data: which bytes go where, before any byte has moved. Pure: numbers in, numbers out.
//!
//! An append, a change of shape, a closed hole: for each tensor it is one [`CopyPlan`], runs of equal length at two even
//! strides. The manager plans them, worker threads make them, and whoever wants to know what a change will cost asks
//! for its [`bytes`](CopyPlan::bytes) and [`cache_lines`](CopyPlan::cache_lines) first.
//!
//! *Units*: bytes, except rows. *Invariant*: made in the order of [`order`](CopyPlan::order), a plan within one buffer
//! never writes over a run that it has yet to read.
//! *Not here*: single elements into tiles ([`NativeKv`](crate::mode::NativeKv)); their plan is the tile's formula.

use crate::geometry::KvTensor;
use crate::mode::RowLayout;

/// `n` runs of `len` bytes: run `i` goes from `src + i * src_step` to `dst + i * dst_step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyPlan {
    /// Byte at which the first run is read.
    pub src: usize,
    /// Byte at which the first run is written.
    pub dst: usize,
    /// Bytes of a run.
    pub len: usize,
    /// Runs.
    pub n: usize,
    /// Bytes from a run to the next, where they are read.
    pub src_step: usize,
    /// Bytes from a run to the next, where they are written.
    pub dst_step: usize,
}

impl CopyPlan {
    /// Bytes that move.
    pub const fn bytes(&self) -> usize {
        self.len * self.n
    }

    /// Lines of cache of `line` bytes that are written: what an append of one token costs, whose keys are single
    /// elements in lines far apart.
    pub fn cache_lines(&self, line: usize) -> usize {
        let mut last = None;
        let mut count = 0;
        for i in 0..self.n {
            let start = self.dst + i * self.dst_step;
            let (first, end) = (start / line, (start + self.len).div_ceil(line));
            let new = if last == Some(first) { first + 1 } else { first };
            count += end.saturating_sub(new);
            last = end.checked_sub(1);
        }
        count
    }

    /// One run instead of many where they touch on both sides.
    #[must_use]
    pub const fn merged(self) -> Self {
        if self.n > 1 && self.len == self.src_step && self.len == self.dst_step {
            Self { len: self.len * self.n, n: 1, src_step: 0, dst_step: 0, ..self }
        } else {
            self
        }
    }

    /// The runs in an order that is safe within one buffer: those that move down, lowest first, then those that move
    /// up, highest first. Runs that stay where they are do not appear.
    pub fn order(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let c = *self;
        let at = move |i: usize| (c.src + i * c.src_step, c.dst + i * c.dst_step);
        let down = (0..c.n).map(at).filter(|(src, dst)| dst < src);
        down.chain((0..c.n).rev().map(at).filter(|(src, dst)| dst > src))
    }
}

/// The rows `0..n` of a tensor from one place to another of the same buffer: a change of AR or CL, in place.
pub fn reshape(tensor: &KvTensor, n: usize, from: RowLayout, to: RowLayout) -> CopyPlan {
    // Tiles move as blocks of tokens: lines of their own, in larger units.
    let (n_lines, unit, n, from, to) = match from.tile {
        None => (tensor.n_lines(), tensor.unit_bytes(), n, from, to),
        Some(tile) => {
            let (n_lines, block_elems, tokens) = tile.lines(tensor);
            let blocks = |place: RowLayout| RowLayout::dense(place.stride / tokens);
            (n_lines, block_elems * tensor.dtype.size_bytes(), n.div_ceil(tokens), blocks(from), blocks(to))
        }
    };
    if n == 0 || from == to {
        return CopyPlan::default();
    }
    lines((n_lines, unit, n), (from, 0), (to, 0))
}

/// `n` rows of a tensor from one buffer to another, both without tiles: an append, an export, an import.
pub fn transfer(tensor: &KvTensor, n: usize, from: (RowLayout, usize), to: (RowLayout, usize)) -> CopyPlan {
    lines((tensor.n_lines(), tensor.unit_bytes(), n), from, to)
}

/// `n` rows of some lines from row `src` to row `dst` of the same place without tiles: a hole that is closed.
pub fn shift_rows(tensor: &KvTensor, n: usize, place: RowLayout, src: usize, dst: usize) -> CopyPlan {
    if src == dst {
        return CopyPlan::default();
    }
    lines((tensor.n_lines(), tensor.unit_bytes(), n), (place, src), (place, dst))
}

fn lines((n_lines, unit, n): (usize, usize, usize), from: (RowLayout, usize), to: (RowLayout, usize)) -> CopyPlan {
    let ((from, row), (to, to_row)) = (from, to);
    CopyPlan {
        src: from.unit(0, row) * unit,
        dst: to.unit(0, to_row) * unit,
        len: n * unit,
        n: n_lines,
        src_step: from.stride * unit,
        dst_step: to.stride * unit,
    }
    .merged()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvKind};
    use crate::mode::ModeKind;
    use proptest::prelude::{Just, ProptestConfig, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::Strategy;

    #[test]
    fn a_switch_moves_the_rows_there_are_and_line_0_not_at_all() {
        let key = KvTensor::new(KvKind::Key, 0, 8, 64, KvDtype::U8);
        let mode = ModeKind::SMART_MASK;
        let (from, to) = (mode.mode().place(3968, 2048), mode.mode().place(4095, 2048));
        let plan = reshape(&key, 2048, from, to);
        assert_eq!(plan, CopyPlan { src: 0, dst: 0, len: 2048, n: 512, src_step: 3968, dst_step: 4095 });
        assert_eq!((plan.bytes(), plan.order().count()), (512 * 2048, 511));
        assert_eq!(plan.order().next(), Some((511 * 3968, 511 * 4095)), "the last line goes first");
        assert_eq!(reshape(&key, 2048, from, from), CopyPlan::default());
        assert_eq!(reshape(&key, 0, from, to), CopyPlan::default());
    }

    #[test]
    fn one_token_writes_a_cache_line_for_each_element_of_its_key() {
        let key = KvTensor::new(KvKind::Key, 0, 8, 64, KvDtype::U8);
        let value = KvTensor::new(KvKind::Value, 0, 8, 64, KvDtype::U8);
        let past = RowLayout::dense(4095);
        let plan = |t: &KvTensor| transfer(t, 1, (RowLayout::dense(1), 0), (past, 100));
        assert_eq!((plan(&key).bytes(), plan(&key).cache_lines(64)), (512, 512));
        assert_eq!((plan(&value).bytes(), plan(&value).cache_lines(64)), (512, 8));
        let all = transfer(&value, 4095, (past, 0), (past, 0));
        assert_eq!((all.n, all.len), (1, 8 * 4095 * 64), "lines that touch are one run");
        assert_eq!(CopyPlan { dst: 60, len: 8, n: 3, dst_step: 8, ..CopyPlan::default() }.cache_lines(64), 2);
    }

    fn any_tensor() -> impl Strategy<Value = KvTensor> {
        let kind = prop_oneof![Just(KvKind::Key), Just(KvKind::Value)];
        (kind, 1..4usize, 1..5usize).prop_map(|(kind, heads, dim)| KvTensor::new(kind, 0, heads, dim, KvDtype::U8))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 2_000 }))]

        #[test]
        fn a_reshape_in_place_loses_no_row(
            tensor in any_tensor(), mode in 0..3usize, a in 1..24usize, b in 1..24usize, n in 1..24usize, short in 0..24usize,
        ) {
            let mode = ModeKind::ALL[mode].mode();
            let (n, widest) = (n.min(a).min(b), a.max(b));
            // Down to no lead at all, as a cache widens beyond its graphs.
            let units = (mode.buffer_units(&tensor, widest, 0)).saturating_sub(short).max(tensor.n_lines() * widest);
            let place = |past| mode.place(past, n).fit(tensor.n_lines(), units);
            let (from, to) = (place(a), place(b));
            let unit = tensor.unit_bytes();
            let before: Vec<u8> = (0..units * unit).map(|i| (i * 7 + i / 251) as u8).collect();
            let mut bytes = before.clone();
            for (src, dst) in reshape(&tensor, n, from, to).order() {
                bytes.copy_within(src..src + n * unit, dst);
            }
            for line in 0..tensor.n_lines() {
                let (src, dst) = (from.unit(line, 0) * unit, to.unit(line, 0) * unit);
                prop_assert_eq!(&bytes[dst..dst + n * unit], &before[src..src + n * unit], "line {}", line);
            }
        }
    }
}

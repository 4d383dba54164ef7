//! One cache tensor's part of a block of memory: its past, its new columns, and the moves on them.
//!
//! ```text
//!   block of a shard   | tensor 0: past | new | tensor 1: past | new | ..      each at a multiple of 64 bytes
//! ```
//!
//! The tensor knows where its part begins; every method is handed that part.
//!
//! *Invariants*: `extent <= past_len`; all bytes were written: columns without a row hold the pad value or a row that
//! was valid once, so a masked column never brings a NaN of its own.

use crate::buffer::{ALIGN, fill};
use crate::cells::RowMove;
use crate::geometry::{KvKind, KvTensor};
use crate::mode::{CacheMode, ModeKind, RowLayout};
use crate::rope::{RopeSpec, Rotation, ShiftLoss, rotate};
use crate::rows::{self, Rows};
use std::sync::Arc;

/// Bytes of the smallest page.
const PAGE: usize = 4096;

/// Both sides of one cache tensor, for the current variant.
///
/// *Shapes* for AR = n and a past of p rows: keys `[n_heads, 1, head_dim, p]` and `[n_heads, 1, head_dim, n]`, values
/// `[n_heads, 1, p, head_dim]` and `[n_heads, 1, n, head_dim]`; `NativeKv` pads p and n to whole tiles. `past` is empty
/// when AR == CL.
#[derive(Debug)]
pub struct TensorView<'a> {
    /// Which tensor it is.
    pub spec: &'a KvTensor,
    /// Bytes for the graph's `past_*_in`.
    pub past: &'a [u8],
    /// Bytes for the graph's `past_*_out`; what was there before means nothing.
    pub new: &'a mut [u8],
}

/// A run of new columns to keep: `len` columns from `col`, as rows from `slot` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) col: usize,
    pub(crate) slot: usize,
    pub(crate) len: usize,
}

/// Where the new columns of a step go. Two runs (a ring that wraps) need no allocation.
#[derive(Clone, Debug)]
pub(crate) enum Runs {
    Few([Run; 2]),
    Many(Arc<[Run]>),
}

impl Runs {
    pub(crate) fn new(runs: &[Run]) -> Self {
        match *runs {
            [] => Self::Few([Run::default(); 2]),
            [a] => Self::Few([a, Run::default()]),
            [a, b] => Self::Few([a, b]),
            _ => Self::Many(runs.into()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[Run] {
        match self {
            Self::Few(runs) => runs,
            Self::Many(runs) => runs,
        }
    }
}

/// A change of a group's tensors.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Take the shape of a graph.
    Shape { group: usize, past_len: usize, ar: usize },
    /// Keep new columns; afterwards rows up to `extent` are in use, in a past of `past_len`.
    Append { group: usize, runs: Runs, extent: usize, past_len: usize },
    /// Move rows, in order.
    Move { group: usize, moves: Arc<[RowMove]> },
    /// Rows up to `extent` are in use.
    Extent { group: usize, extent: usize },
    /// Rotate keys to their positions.
    Rotate { group: usize, rotations: Arc<[Rotation]>, rope: Arc<RopeSpec> },
    /// No rows, all pad.
    Clear,
    /// Holds the worker until the other side of the channel is gone.
    #[cfg(test)]
    Hold(crossbeam::channel::Receiver<()>),
    /// A job that goes wrong.
    #[cfg(test)]
    Fail,
}

/// The buffer of one cache tensor, in the layout of the variant that runs.
#[derive(Debug)]
pub(crate) struct TensorBuf {
    pub(crate) spec: KvTensor,
    pub(crate) loss: ShiftLoss,
    /// Bytes of rows that were moved or copied since the last `clear`.
    pub(crate) moved: u64,
    past_len: usize,
    extent: usize,
    ar: usize,
    /// Units of the past; a unit is a row's share of a line.
    past_units: usize,
    /// Bytes of the past, its new columns behind it.
    past_bytes: usize,
    new_bytes: usize,
}

impl TensorBuf {
    /// A tensor for graphs with pasts of up to `max_past` rows and steps of up to `max_ar` tokens, that holds up to
    /// `capacity` rows.
    pub(crate) fn new(spec: KvTensor, mode: &dyn CacheMode, max_past: usize, capacity: usize, max_ar: usize) -> Self {
        let widened = spec.n_lines() * mode.padded(capacity);
        let past_units = mode.buffer_units(&spec, max_past, max_ar).max(widened);
        let new_rows = if mode.writes_in_place(&spec) { 0 } else { mode.padded(max_ar) };
        Self {
            spec,
            loss: ShiftLoss::default(),
            moved: 0,
            past_len: 0,
            extent: 0,
            ar: 0,
            past_units,
            past_bytes: past_units * spec.unit_bytes(),
            new_bytes: spec.rows_bytes(new_rows),
        }
    }

    /// Bytes of its part of the block. Never whole pages: a row's lines in all tensors would share sets of the processor's cache, and
    /// loads of new columns would wait for stores of rows whose addresses differ above the page alone.
    pub(crate) fn block_bytes(&self) -> usize {
        let bytes = self.new_at() + self.new_bytes.next_multiple_of(ALIGN);
        if bytes.is_multiple_of(PAGE) { bytes + ALIGN } else { bytes }
    }

    /// Byte of its part at which the new columns begin.
    pub(crate) fn new_at(&self) -> usize {
        self.past_bytes.next_multiple_of(ALIGN)
    }

    /// Bytes of both buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.past_bytes + self.new_bytes
    }

    pub(crate) fn apply(&mut self, bytes: &mut [u8], op: &Op, mode: &dyn CacheMode) {
        let own = self.spec.group;
        match op {
            Op::Shape { group, past_len, ar } if *group == own => {
                self.reshape(bytes, mode, *past_len, self.extent);
                self.ar = *ar;
            }
            Op::Append { group, runs, extent, past_len } if *group == own => {
                self.append(bytes, mode, runs.as_slice(), *extent, *past_len);
            }
            Op::Move { group, moves } if *group == own => {
                moves.iter().for_each(|m| self.move_rows(bytes, mode, None, *m));
            }
            Op::Extent { group, extent } if *group == own => self.resize(bytes, mode, *extent),
            Op::Rotate { group, rotations, rope } if *group == own && self.spec.kind == KvKind::Key => {
                let place = self.place(mode);
                for rotation in rotations.iter() {
                    rotate(&self.spec, &mut bytes[..self.past_bytes], place, rotation, rope, &mut self.loss);
                }
            }
            Op::Clear => {
                self.extent = 0;
                self.moved = 0;
                self.loss = ShiftLoss::default();
                self.pad(bytes);
            }
            #[cfg(test)]
            Op::Hold(until) => drop(until.recv()),
            #[cfg(test)]
            Op::Fail => panic!("asked to fail"),
            _ => {}
        }
    }

    /// The past input and the new columns' output, for the current shape.
    pub(crate) fn view<'a>(&'a self, bytes: &'a mut [u8], mode: &ModeKind) -> TensorView<'a> {
        let mode = mode.mode();
        let (spec, unit) = (&self.spec, self.spec.unit_bytes());
        let start = self.view_offset(mode);
        let past_len = spec.rows_bytes(mode.padded(self.past_len));
        if mode.writes_in_place(spec) {
            // One line: the new rows begin where the window ends, right behind the rows there are.
            let (head, tail) = bytes.split_at_mut(start + past_len);
            return TensorView { spec, past: &head[start..], new: &mut tail[..self.ar * unit] };
        }
        let (past, new) = bytes.split_at_mut(self.new_at());
        let new = &mut new[..spec.rows_bytes(mode.padded(self.ar))];
        TensorView { spec, past: &past[start..start + past_len], new }
    }

    /// Byte of its part at which the past input begins.
    pub(crate) fn view_offset(&self, mode: &dyn CacheMode) -> usize {
        mode.view_unit(self.past_len, self.extent) * self.spec.unit_bytes()
    }

    /// Copies `len` rows from `slot` on out, in layout-neutral form, to row `to` of a dense buffer of `n` rows.
    pub(crate) fn read_rows(
        &self,
        bytes: &[u8],
        mode: &dyn CacheMode,
        (slot, len): (usize, usize),
        out: &mut [u8],
        (to, n): (usize, usize),
    ) {
        let src = Rows { bytes, place: self.place(mode), row: slot };
        let mut dst = Rows { bytes: out, place: RowLayout::dense(n), row: to };
        if self.spec == self.spec.canonical() {
            rows::transfer(&self.spec, &src, &mut dst, len);
        } else {
            rows::transfer_elements(&self.spec, &self.spec.canonical(), &src, &mut dst, len);
        }
    }

    /// Replaces all rows by those of a dense buffer in layout-neutral form.
    pub(crate) fn write_rows(
        &mut self,
        bytes: &mut [u8],
        mode: &dyn CacheMode,
        data: &[u8],
        n: usize,
        past_len: usize,
    ) {
        self.past_len = past_len;
        self.extent = n;
        let place = self.place(mode);
        let src = Rows { bytes: data, place: RowLayout::dense(n), row: 0 };
        let mut dst = Rows { bytes, place, row: 0 };
        if self.spec == self.spec.canonical() {
            rows::transfer(&self.spec, &src, &mut dst, n);
        } else {
            rows::transfer_elements(&self.spec.canonical(), &self.spec, &src, &mut dst, n);
        }
    }

    /// Moves rows of one head or of all.
    pub(crate) fn move_rows(&mut self, bytes: &mut [u8], mode: &dyn CacheMode, head: Option<usize>, m: RowMove) {
        let place = self.place(mode);
        self.moved += rows::move_within(&self.spec, bytes, place, head, m.src..m.src + m.len, m.dst) as u64;
    }

    /// One element of a row in use, as raw bytes.
    pub(crate) fn element<'a>(
        &self,
        bytes: &'a [u8],
        mode: &dyn CacheMode,
        (head, dim, row): (usize, usize, usize),
    ) -> &'a [u8] {
        let size = self.spec.dtype.size_bytes();
        let at = self.place(mode).element(&self.spec, head, dim, row) * size;
        &bytes[at..at + size]
    }

    fn place(&self, mode: &dyn CacheMode) -> RowLayout {
        mode.place(self.past_len, self.extent).fit(self.spec.n_lines(), self.past_units)
    }

    fn relocate(&mut self, bytes: &mut [u8], n: usize, from: RowLayout, to: RowLayout) {
        self.moved += rows::relocate(&self.spec, bytes, n, from, to) as u64;
    }

    fn reshape(&mut self, bytes: &mut [u8], mode: &dyn CacheMode, past_len: usize, n: usize) {
        let from = self.place(mode);
        self.past_len = past_len;
        self.relocate(bytes, n, from, self.place(mode));
    }

    /// Gives up rows at the end. New rows that the graph has `written` right behind them come along; before it has there may not even be
    /// room for them.
    pub(crate) fn retract(&mut self, bytes: &mut [u8], mode: &dyn CacheMode, extent: usize, written: bool) {
        if written && mode.writes_in_place(&self.spec) {
            self.move_rows(bytes, mode, None, RowMove { src: self.extent, dst: extent, len: self.ar });
        }
        self.resize(bytes, mode, extent);
    }

    fn resize(&mut self, bytes: &mut [u8], mode: &dyn CacheMode, extent: usize) {
        if mode.rows_stay() {
            self.extent = extent;
            return;
        }
        let kept = self.extent.min(extent);
        let from = self.place(mode);
        self.extent = extent;
        self.relocate(bytes, kept, from, self.place(mode));
    }

    fn append(&mut self, bytes: &mut [u8], mode: &dyn CacheMode, runs: &[Run], extent: usize, past_len: usize) {
        if mode.writes_in_place(&self.spec) {
            // The new rows are in the buffer already, behind the rows there were.
            let behind = self.extent;
            if past_len != self.past_len {
                self.reshape(bytes, mode, past_len, behind + self.ar);
            }
            for run in runs {
                self.move_rows(bytes, mode, None, RowMove { src: behind + run.col, dst: run.slot, len: run.len });
            }
            self.extent = extent;
            return;
        }
        if past_len != self.past_len {
            self.reshape(bytes, mode, past_len, self.extent);
        }
        self.resize(bytes, mode, extent);
        let (place, spec) = (self.place(mode), &self.spec);
        let (past, new) = bytes.split_at_mut(self.new_at());
        for run in runs {
            let src = Rows { bytes: &*new, place: mode.new_place(self.ar), row: run.col };
            let mut dst = Rows { bytes: &mut *past, place, row: run.slot };
            self.moved += rows::transfer(spec, &src, &mut dst, run.len) as u64;
        }
    }

    /// Rows of the past input.
    pub(crate) fn past_len(&self) -> usize {
        self.past_len
    }

    /// New columns of a step, which its series has copied: `n` rows, up to `extent` in use.
    pub(crate) fn appended(&mut self, n: usize, extent: usize) {
        self.extent = extent;
        self.moved += self.spec.rows_bytes(n) as u64;
    }

    /// Rows in use.
    #[cfg(test)]
    pub(crate) fn extent(&self) -> usize {
        self.extent
    }

    /// Width of a step.
    pub(crate) fn ar(&self) -> usize {
        self.ar
    }

    /// Fills its part with the pad value.
    pub(crate) fn pad(&self, bytes: &mut [u8]) {
        let (element, size) = self.spec.pad_element();
        let parts = (self.past_bytes, self.past_bytes.next_multiple_of(ALIGN));
        fill(&mut bytes[..parts.0], &element[..size]);
        fill(&mut bytes[parts.1..parts.1 + self.new_bytes], &element[..size]);
    }
}

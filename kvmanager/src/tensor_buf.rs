//! One cache tensor's buffers: the past, the new columns, and the moves on them.
//!
//! *Invariants*: `extent <= past_len`; all bytes were written: columns without a row hold the pad value or a row that
//! was valid once, so a masked column never brings a NaN of its own.

use crate::buffer::{AlignedBytes, fill};
use crate::cells::RowMove;
use crate::geometry::{KvKind, KvTensor};
use crate::manager::TensorView;
use crate::mode::{CacheMode, ModeKind, Place};
use crate::rope::{RopeSpec, ShiftLoss, Turn, rotate};
use crate::rows::{self, Rows};
use std::sync::Arc;

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

    fn as_slice(&self) -> &[Run] {
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
    /// Turn keys to their positions.
    Rotate { group: usize, turns: Arc<[Turn]>, rope: Arc<RopeSpec> },
    /// No rows, all pad.
    Clear,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct TensorBuf {
    pub(crate) spec: KvTensor,
    pub(crate) loss: ShiftLoss,
    past_len: usize,
    extent: usize,
    ar: usize,
    past: AlignedBytes,
    new: AlignedBytes,
}

impl TensorBuf {
    /// Buffers for pasts of up to `max_past` rows and steps of up to `max_ar` tokens.
    pub(crate) fn new(spec: KvTensor, mode: &dyn CacheMode, max_past: usize, max_ar: usize) -> Self {
        let past = AlignedBytes::zeroed(mode.buffer_units(&spec, max_past, max_ar) * spec.unit_bytes());
        let new_rows = if mode.writes_in_place(&spec) { 0 } else { mode.padded(max_ar) };
        let new = AlignedBytes::zeroed(spec.rows_bytes(new_rows));
        let mut buf = Self { spec, loss: ShiftLoss::default(), past_len: 0, extent: 0, ar: 0, past, new };
        buf.pad();
        buf
    }

    pub(crate) fn bytes(&self) -> usize {
        self.past.len() + self.new.len()
    }

    pub(crate) fn apply(&mut self, op: &Op, mode: &dyn CacheMode) {
        let own = self.spec.group;
        match op {
            Op::Shape { group, past_len, ar } if *group == own => {
                self.reshape(mode, *past_len, self.extent);
                self.ar = *ar;
            }
            Op::Append { group, runs, extent, past_len } if *group == own => {
                self.append(mode, runs.as_slice(), *extent, *past_len);
            }
            Op::Move { group, moves } if *group == own => {
                moves.iter().for_each(|m| self.move_rows(mode, None, *m));
            }
            Op::Extent { group, extent } if *group == own => self.resize(mode, *extent),
            Op::Rotate { group, turns, rope } if *group == own && self.spec.kind == KvKind::Key => {
                let place = self.place(mode);
                for turn in turns.iter() {
                    rotate(&self.spec, self.past.as_mut_slice(), place, turn, rope, &mut self.loss);
                }
            }
            Op::Clear => {
                self.extent = 0;
                self.loss = ShiftLoss::default();
                self.pad();
            }
            _ => {}
        }
    }

    /// The past input and the new columns' output, for the current shape.
    pub(crate) fn view(&mut self, mode: &ModeKind) -> TensorView<'_> {
        let mode = mode.mode();
        let (spec, unit) = (&self.spec, self.spec.unit_bytes());
        let start = self.view_offset(mode);
        let past_len = spec.rows_bytes(mode.padded(self.past_len));
        if mode.writes_in_place(spec) {
            // One line: the new rows begin where the window ends, right behind the rows there are.
            let (head, tail) = self.past.as_mut_slice().split_at_mut(start + past_len);
            return TensorView { spec, past: &head[start..], new: &mut tail[..self.ar * unit] };
        }
        let past = &self.past.as_slice()[start..start + past_len];
        let new = &mut self.new.as_mut_slice()[..spec.rows_bytes(mode.padded(self.ar))];
        TensorView { spec, past, new }
    }

    /// Byte of the buffer at which the past input begins.
    pub(crate) fn view_offset(&self, mode: &dyn CacheMode) -> usize {
        mode.view_unit(self.past_len, self.extent) * self.spec.unit_bytes()
    }

    /// Copies one row out, in layout-neutral form, to row `to` of a dense buffer of `n` rows.
    pub(crate) fn read_rows(&self, mode: &dyn CacheMode, slot: usize, len: usize, out: &mut [u8], to: usize, n: usize) {
        let src = Rows { bytes: self.past.as_slice(), place: self.place(mode), row: slot };
        rows::transfer(&self.spec, &src, &mut Rows { bytes: out, place: Place::dense(n), row: to }, len);
    }

    /// Replaces all rows by those of a dense buffer.
    pub(crate) fn write_rows(&mut self, mode: &dyn CacheMode, data: &[u8], n: usize, past_len: usize) {
        self.past_len = past_len;
        self.extent = n;
        let place = self.place(mode);
        let src = Rows { bytes: data, place: Place::dense(n), row: 0 };
        rows::transfer(&self.spec, &src, &mut Rows { bytes: self.past.as_mut_slice(), place, row: 0 }, n);
    }

    /// Moves rows of one head or of all.
    pub(crate) fn move_rows(&mut self, mode: &dyn CacheMode, head: Option<usize>, m: RowMove) {
        let place = self.place(mode);
        rows::move_within(&self.spec, self.past.as_mut_slice(), place, head, m.src..m.src + m.len, m.dst);
    }

    /// Visits the elements of the rows in use as raw bytes.
    pub(crate) fn element(&self, mode: &dyn CacheMode, head: usize, dim: usize, row: usize) -> &[u8] {
        let size = self.spec.dtype.size_bytes();
        let at = self.place(mode).element(&self.spec, head, dim, row) * size;
        &self.past.as_slice()[at..at + size]
    }

    fn place(&self, mode: &dyn CacheMode) -> Place {
        mode.place(self.past_len, self.extent)
    }

    fn relocate(&mut self, n: usize, from: Place, to: Place) {
        rows::relocate(&self.spec, self.past.as_mut_slice(), n, from, to);
    }

    fn reshape(&mut self, mode: &dyn CacheMode, past_len: usize, n: usize) {
        let from = self.place(mode);
        self.past_len = past_len;
        self.relocate(n, from, self.place(mode));
    }

    /// Gives up rows at the end. New rows that the graph wrote right behind them come along.
    pub(crate) fn retract(&mut self, mode: &dyn CacheMode, extent: usize) {
        if mode.writes_in_place(&self.spec) {
            self.move_rows(mode, None, RowMove { src: self.extent, dst: extent, len: self.ar });
        }
        self.resize(mode, extent);
    }

    fn resize(&mut self, mode: &dyn CacheMode, extent: usize) {
        let kept = self.extent.min(extent);
        let from = self.place(mode);
        self.extent = extent;
        self.relocate(kept, from, self.place(mode));
    }

    fn append(&mut self, mode: &dyn CacheMode, runs: &[Run], extent: usize, past_len: usize) {
        if mode.writes_in_place(&self.spec) {
            // The new rows are in the buffer already, behind the rows there were.
            let behind = self.extent;
            if past_len != self.past_len {
                self.reshape(mode, past_len, behind + self.ar);
            }
            for run in runs {
                self.move_rows(mode, None, RowMove { src: behind + run.col, dst: run.slot, len: run.len });
            }
            self.extent = extent;
            return;
        }
        if past_len != self.past_len {
            self.reshape(mode, past_len, self.extent);
        }
        self.resize(mode, extent);
        let (place, spec) = (self.place(mode), &self.spec);
        for run in runs {
            let src = Rows { bytes: self.new.as_slice(), place: mode.new_place(self.ar), row: run.col };
            rows::transfer(spec, &src, &mut Rows { bytes: self.past.as_mut_slice(), place, row: run.slot }, run.len);
        }
    }

    fn pad(&mut self) {
        let (element, size) = self.spec.pad_element();
        fill(self.past.as_mut_slice(), &element[..size]);
        fill(self.new.as_mut_slice(), &element[..size]);
    }
}

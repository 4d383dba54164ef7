//! One cache tensor's buffers: the past, the new columns, and the moves on them.
//!
//! *Invariants*: `rows <= past_len`; all bytes were written: columns without a row hold the pad value or a row that
//! was valid once, so a masked column never brings a NaN of its own.

use crate::buffer::{AlignedBytes, fill};
use crate::geometry::KvTensor;
use crate::manager::TensorView;
use crate::mode::{CacheMode, Place};
use crate::rows;
use std::sync::Arc;

/// A run of new columns to keep: `len` columns from `col`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) col: usize,
    pub(crate) len: usize,
}

/// Which new columns an append keeps.
#[derive(Clone, Debug)]
pub(crate) enum Columns {
    /// The first `n`.
    First(usize),
    /// Some, in order.
    Runs(Arc<[Run]>),
}

impl Columns {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::First(n) => *n,
            Self::Runs(runs) => runs.iter().map(|r| r.len).sum(),
        }
    }
}

/// A change of a tensor's rows or shape.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Take the shape of a graph.
    Shape { past_len: usize, ar: usize },
    /// Keep new columns behind the rows there are; `spill_len` is the past length to widen to when they do not fit.
    Append { columns: Columns, spill_len: usize },
    /// Keep the first rows only.
    Truncate { n_rows: usize },
    /// No rows, all pad.
    Clear,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct TensorBuf {
    pub(crate) spec: KvTensor,
    pub(crate) past_len: usize,
    pub(crate) rows: usize,
    ar: usize,
    past: AlignedBytes,
    new: AlignedBytes,
}

impl TensorBuf {
    /// Buffers for pasts of up to `max_past` rows and steps of up to `max_ar` tokens.
    pub(crate) fn new(spec: KvTensor, mode: &dyn CacheMode, max_past: usize, max_ar: usize) -> Self {
        let past = AlignedBytes::zeroed(mode.buffer_units(&spec, max_past) * spec.unit_bytes());
        let new = AlignedBytes::zeroed(spec.rows_bytes(max_ar));
        let mut buf = Self { spec, past_len: 0, rows: 0, ar: 0, past, new };
        buf.pad();
        buf
    }

    pub(crate) fn bytes(&self) -> usize {
        self.past.len() + self.new.len()
    }

    pub(crate) fn apply(&mut self, op: &Op, mode: &dyn CacheMode) {
        match op {
            Op::Shape { past_len, ar } => {
                self.reshape(mode, *past_len);
                self.ar = *ar;
            }
            Op::Append { columns, spill_len } => self.append(mode, columns, *spill_len),
            Op::Truncate { n_rows } => self.resize(mode, *n_rows),
            Op::Clear => {
                self.rows = 0;
                self.pad();
            }
        }
    }

    /// The past input and the new columns' output, for the current shape.
    pub(crate) fn view(&mut self, mode: &dyn CacheMode) -> TensorView<'_> {
        let spec = &self.spec;
        let start = mode.view_unit(self.past_len, self.rows) * spec.unit_bytes();
        let past = &self.past.as_slice()[start..start + spec.rows_bytes(self.past_len)];
        let new = &mut self.new.as_mut_slice()[..spec.rows_bytes(self.ar)];
        TensorView { spec, past, new }
    }

    fn place(&self, mode: &dyn CacheMode) -> Place {
        mode.place(self.past_len, self.rows)
    }

    fn relocate(&mut self, n: usize, from: Place, to: Place) {
        rows::relocate(self.past.as_mut_slice(), self.spec.unit_bytes(), self.spec.n_lines(), n, from, to);
    }

    fn reshape(&mut self, mode: &dyn CacheMode, past_len: usize) {
        let from = self.place(mode);
        self.past_len = past_len;
        self.relocate(self.rows, from, self.place(mode));
    }

    fn resize(&mut self, mode: &dyn CacheMode, n_rows: usize) {
        let kept = self.rows.min(n_rows);
        let from = self.place(mode);
        self.rows = n_rows;
        self.relocate(kept, from, self.place(mode));
    }

    fn append(&mut self, mode: &dyn CacheMode, columns: &Columns, spill_len: usize) {
        let (row, n) = (self.rows, columns.len());
        if row + n > self.past_len {
            self.reshape(mode, spill_len.max(row + n));
        }
        self.resize(mode, row + n);
        let (place, unit) = (self.place(mode), self.spec.unit_bytes());
        let (past, new) = (self.past.as_mut_slice(), &self.new.as_slice()[..self.spec.rows_bytes(self.ar)]);
        match columns {
            Columns::First(n) => rows::append(past, place, row, new, self.ar, Run { col: 0, len: *n }, unit),
            Columns::Runs(runs) => {
                let mut row = row;
                for &run in runs.iter() {
                    rows::append(past, place, row, new, self.ar, run, unit);
                    row += run.len;
                }
            }
        }
    }

    fn pad(&mut self) {
        let (element, size) = self.spec.pad_element();
        fill(self.past.as_mut_slice(), &element[..size]);
        fill(self.new.as_mut_slice(), &element[..size]);
    }
}

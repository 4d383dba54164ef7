//! Logits for the rows that are asked for: which graph of the LM head computes them, and where they come out.
//!
//! A prompt of 512 tokens needs one row of logits; a head as wide as its step would compute 512. A head has no cache, so
//! a narrower graph of the same split may run instead: the wanted rows move to the front of the buffers that the head
//! reads, in order, and the narrowest graph that holds them all runs.
//!
//! *Invariant*: rows move only where the head alone reads them, and only between graphs whose tensors hold the same
//! rows (element type, encoding, extents except the number of rows, which is the outermost one that is not 1).

use genie_types::{DataFormat, SplitIdx, TensorInfo};
use nsp_graph::{GraphKind, GraphLayout, InputRole, ModelLayout, OutputRole};

use crate::io::{BufferRole, IoBuffers};

/// A buffer that a head reads rows from.
#[derive(Clone, Copy, Debug)]
struct Rows {
    buffer: usize,
    row_bytes: usize,
}

/// What ran last.
#[derive(Clone, Copy, Debug, Default)]
struct LastRun {
    graph: usize,
    /// The rows asked for came first, in order; else each row is at its own place.
    gathered: bool,
}

/// The rows asked for in a step, and the head that computes them.
#[derive(Debug)]
pub(crate) struct Head {
    /// By graph of the last split: the graphs that may run instead, by rising width. Empty if none may.
    narrower: Vec<Vec<(usize, usize)>>,
    /// By graph of the last split.
    reads: Vec<Vec<Rows>>,
    /// Rising.
    asked: Vec<usize>,
    ran: LastRun,
}

impl Head {
    pub(crate) fn new(layout: &ModelLayout, io: &IoBuffers) -> Self {
        let last = layout.splits.len() - 1;
        let split = &layout.splits[last];
        let alone =
            layout.wires.iter().filter(|w| w.consumers.contains(&SplitIdx(last))).all(|w| w.consumers.len() == 1);
        let gathers = alone && split.kind == GraphKind::LmHead;
        let narrower = |g: usize, wide: &GraphLayout| {
            let mut narrower: Vec<_> = (split.graphs.iter().enumerate())
                .filter(|(_, narrow)| gathers && narrow.ar < wide.ar && same_rows(wide, narrow))
                .map(|(n, narrow)| (narrow.ar.get(), narrow.cl != split.graphs[g].cl, n))
                .collect();
            narrower.sort_unstable();
            narrower.dedup_by_key(|(ar, ..)| *ar);
            narrower.into_iter().map(|(ar, _, n)| (ar, n)).collect()
        };
        let reads = |g: usize, graph: &GraphLayout| {
            let wires = (0..io.buffers.len()).filter(|&b| matches!(io.roles()[b], BufferRole::Wire(_)));
            wires
                .filter_map(|buffer| {
                    Some(Rows { buffer, row_bytes: io.bound_bytes(last, g, buffer)? / graph.ar.get() })
                })
                .collect()
        };
        let widest = layout.variants.iter().map(|v| v.ar().get()).max().unwrap_or(0);
        Self {
            narrower: split.graphs.iter().enumerate().map(|(g, graph)| narrower(g, graph)).collect(),
            reads: split.graphs.iter().enumerate().map(|(g, graph)| reads(g, graph)).collect(),
            asked: Vec::with_capacity(widest),
            ran: LastRun::default(),
        }
    }

    /// Sets which rows of the coming step are wanted, rising.
    pub(crate) fn ask(&mut self, rows: impl Iterator<Item = usize>) {
        self.asked.clear();
        self.asked.extend(rows);
        debug_assert!(self.asked.is_sorted_by(|a, b| a < b), "rows rise: {:?}", self.asked);
    }

    /// True if there is a row to compute.
    pub(crate) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Chooses the graph that runs in place of the last split's graph `g`, and moves the rows to where it reads them.
    /// `narrow`: others may.
    pub(crate) fn choose(&mut self, g: usize, narrow: bool, io: &mut IoBuffers) -> usize {
        let n = self.asked.len();
        let narrower = self.narrower[g].iter().find(|(ar, _)| narrow && *ar >= n);
        let Some(&(_, graph)) = narrower else {
            self.ran = LastRun { graph: g, gathered: false };
            return g;
        };
        for &Rows { buffer, row_bytes } in &self.reads[g] {
            let bytes = io.buffers[buffer].bytes_mut();
            for (to, &row) in self.asked.iter().enumerate().filter(|(to, row)| to != *row) {
                bytes.copy_within(row * row_bytes..(row + 1) * row_bytes, to * row_bytes);
            }
        }
        self.ran = LastRun { graph, gathered: true };
        graph
    }

    /// The graph that ran, and the place of a row among its logits.
    ///
    /// # Panics
    ///
    /// If the row was not asked for and therefore is nowhere.
    pub(crate) fn place_of(&self, row: usize) -> (usize, usize) {
        let LastRun { graph, gathered } = self.ran;
        let place = if gathered { self.asked.binary_search(&row).expect("only rows asked for are read") } else { row };
        (graph, place)
    }
}

/// True if both take and give the same rows, and nothing else.
fn same_rows(wide: &GraphLayout, narrow: &GraphLayout) -> bool {
    let same = |a: &TensorInfo, b: &TensorInfo| same_row(a, wide.ar.get(), b, narrow.ar.get());
    let wires = |graph: &GraphLayout| graph.inputs.iter().all(|role| matches!(role, InputRole::Wire(_)));
    let input = |role: &InputRole| match (wide.input(*role), narrow.input(*role)) {
        (Some((_, a)), Some((_, b))) => same(a, b),
        _ => false,
    };
    let logits = match (wide.output(OutputRole::Logits), narrow.output(OutputRole::Logits)) {
        (Some((_, a)), Some((_, b))) => same(a, b),
        _ => false,
    };
    wires(wide) && wires(narrow) && wide.inputs.iter().all(input) && narrow.inputs.iter().all(input) && logits
}

/// True if `a` is `rows_a` rows and `b` is `rows_b` rows of the same kind, one after the other.
fn same_row(a: &TensorInfo, rows_a: usize, b: &TensorInfo, rows_b: usize) -> bool {
    let alike = a.dtype == b.dtype && a.quant == b.quant && a.dims.len() == b.dims.len();
    let flat = a.format == DataFormat::Flat && b.format == DataFormat::Flat;
    let axis = a.dims.iter().zip(&b.dims).position(|(a, b)| a != b);
    let rows = |axis: usize| a.dims[axis] == rows_a && b.dims[axis] == rows_b;
    let outermost = |axis: usize| a.dims[..axis].iter().all(|&n| n == 1);
    alike && flat && axis.is_some_and(|at| rows(at) && outermost(at) && a.dims[at + 1..] == b.dims[at + 1..])
}

#[cfg(test)]
mod tests {
    use genie_types::{Dtype, Quant};

    use super::*;

    #[test]
    fn rows_are_the_outermost_extent() {
        let t = |dims: &[usize]| TensorInfo::new("hidden", dims, Dtype::F16);
        let quantised = |scale| t(&[1, 8, 16]).with_quant(Quant::PerTensor { scale, offset: 0 });
        let cases: [(TensorInfo, usize, TensorInfo, usize, bool); 8] = [
            (t(&[1, 8, 16]), 8, t(&[1, 1, 16]), 1, true),
            (t(&[8, 16]), 8, t(&[2, 16]), 2, true),
            (t(&[1, 1, 8, 16]), 8, t(&[1, 1, 1, 16]), 1, true),
            (t(&[1, 16, 8]), 8, t(&[1, 16, 1]), 1, false),
            (t(&[1, 8, 16]), 8, t(&[1, 1, 15]), 1, false),
            (t(&[1, 8, 16]), 8, t(&[1, 16]), 1, false),
            (t(&[1, 8, 16]), 4, t(&[1, 1, 16]), 1, false),
            (quantised(1.0), 8, TensorInfo { dims: vec![1, 1, 16], ..quantised(2.0) }, 1, false),
        ];
        for (a, n, b, m, expected) in cases {
            assert_eq!(same_row(&a, n, &b, m), expected, "{:?} and {:?}", a.dims, b.dims);
        }
    }
}

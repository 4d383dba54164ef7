//! Logits for the rows that are asked for: which graph of the LM head computes them, and where they come out.
//!
//! A prompt of 512 tokens needs one row of logits; a head as wide as its step would compute 512. A head has no cache, so
//! a narrower graph of the same split may run instead: the wanted rows move to the front of the buffers that the head
//! reads, in order, and the narrowest graph that holds them all runs. Where the bundle has no head as wide as the step,
//! a narrow one must: it runs once for each group of rows that it holds, the first group with the step, the others when
//! their logits are read.
//!
//! *Invariant*: rows move only to the front, only after all other splits have run, and only between graphs whose tensors
//! hold the same rows (element type, encoding, extents except the number of rows, which is the outermost one that is
//! not 1). A group never moves over rows of a later one, so groups are read in their order.

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
#[derive(Clone, Copy, Debug)]
enum LastRun {
    /// Each row is at its own place.
    Whole { graph: usize },
    /// Rows asked for, from that one on, in order and at the front.
    Gathered { graph: usize, first: usize },
}

/// The rows asked for in a step, and the head that computes them.
#[derive(Debug)]
pub(crate) struct Head {
    /// By graph of the last split: the graphs that may run instead, by rising width. Empty if none may.
    narrower: Vec<Vec<(usize, usize)>>,
    /// By graph of the last split.
    reads: Vec<Vec<Rows>>,
    /// By graph of the last split.
    widths: Vec<usize>,
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
                .filter(|(_, narrow)| gathers && layout.batch == 1 && narrow.ar < wide.ar && same_rows(wide, narrow))
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
            widths: split.graphs.iter().map(|graph| graph.ar.get()).collect(),
            asked: Vec::with_capacity(widest),
            ran: LastRun::Whole { graph: 0 },
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

    /// Chooses the graph that runs in place of the last split's graph `g` in a step of `ar` rows, and moves the rows to
    /// where it reads them. `narrow`: others may.
    pub(crate) fn choose(&mut self, g: usize, ar: usize, narrow: bool, io: &mut IoBuffers) -> usize {
        let n = self.asked.len();
        let narrower = self.narrower[g].iter().find(|(width, _)| narrow && *width >= n).map(|&(_, graph)| graph);
        let graph = match narrower {
            Some(graph) => graph,
            None if self.widths[g] < ar => g,
            None => {
                self.ran = LastRun::Whole { graph: g };
                return g;
            }
        };
        self.gather(graph, 0, io);
        graph
    }

    /// Moves the rows asked for, from number `first` on and as many as the graph holds, to the front of what it reads.
    fn gather(&mut self, graph: usize, first: usize, io: &mut IoBuffers) {
        for &Rows { buffer, row_bytes } in &self.reads[graph] {
            let bytes = io.buffers[buffer].bytes_mut();
            let rows = self.asked[first..].iter().take(self.widths[graph]).enumerate();
            for (to, &row) in rows.filter(|(to, row)| to != *row) {
                bytes.copy_within(row * row_bytes..(row + 1) * row_bytes, to * row_bytes);
            }
        }
        self.ran = LastRun::Gathered { graph, first };
    }

    /// The graph that ran, and the place of a row among its logits.
    ///
    /// # Panics
    ///
    /// If the row was not asked for, or came before a group that was read meanwhile, and therefore is nowhere.
    pub(crate) fn place_of(&self, row: usize) -> Place {
        match self.ran {
            LastRun::Whole { graph } => Place::At { graph, row },
            LastRun::Gathered { graph, first } => {
                let number = self.asked.binary_search(&row).expect("only rows asked for are read");
                let place = number.checked_sub(first).expect("rows are read in their order");
                if place < self.widths[graph] {
                    Place::At { graph, row: place }
                } else {
                    Place::Later { graph, first: number - place % self.widths[graph] }
                }
            }
        }
    }

    /// The graph that ran, and how many rows of its logits are those of real tokens in a step of `n_process`.
    pub(crate) fn rows_ran(&self, n_process: usize) -> (usize, usize) {
        match self.ran {
            LastRun::Whole { graph } => (graph, n_process),
            LastRun::Gathered { graph, first } => (graph, (self.asked.len() - first).min(self.widths[graph])),
        }
    }

    /// Prepares another run of the graph, for the rows from number `first` on.
    pub(crate) fn again(&mut self, graph: usize, first: usize, io: &mut IoBuffers) {
        self.gather(graph, first, io);
    }
}

/// Where the logits of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In that row of a graph's logits.
    At { graph: usize, row: usize },
    /// Nowhere yet: the graph must run for the rows asked for from that number on.
    Later { graph: usize, first: usize },
}

/// True if both take and give the same rows, and nothing else.
fn same_rows(wide: &GraphLayout, narrow: &GraphLayout) -> bool {
    let same = |a: &TensorInfo, b: &TensorInfo| same_row(a, wide.ar.get(), b, narrow.ar.get());
    let reads = |role: &InputRole| matches!(role, InputRole::Wire(_) | InputRole::Weight(_));
    let wires = |graph: &GraphLayout| graph.inputs.iter().all(reads);
    let input = |role: &InputRole| match (wide.input(*role), narrow.input(*role)) {
        // The layout has made sure that a weight is the same.
        (Some(_), Some(_)) if matches!(role, InputRole::Weight(_)) => true,
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

//! Reading at places that an index tensor names. A place outside of the table is an error, never a read.

use crate::bytes::Bytes;
use crate::exec::load::Table;
use crate::kernels::Packed;
use crate::kernels::packed::Packing;
use crate::step::{Fault, Fill};
use crate::step::{Lane32, RunContext, Src};

/// `index` as a place in `0..limit`.
pub(crate) fn place(index: i32, limit: usize) -> Result<usize, Fault> {
    usize::try_from(index).ok().filter(|&i| i < limit).ok_or(Fault::Index { index: i64::from(index), limit })
}

/// Whole slices of the axes behind `axis`, the table read in its declared type.
pub(crate) struct Gather {
    pub(crate) table: Table,
    pub(crate) index: Src,
    /// Extent of the indexed axis.
    pub(crate) limit: usize,
    /// Elements behind the axis.
    pub(crate) inner: usize,
}

impl Fill for Gather {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let index = cx.read::<i32>(&self.index);
        for (r, out) in out.chunks_exact_mut(self.inner).enumerate() {
            let row = first / self.inner + r;
            let (outer, i) = (row / index.len(), row % index.len());
            let at = (outer * self.limit + place(index[i], self.limit)?) * self.inner;
            self.table.read(cx, at, out);
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.inner
    }
}

/// Rows of a packed table.
pub(crate) struct GatherPacked {
    pub(crate) bytes: Bytes,
    pub(crate) packing: Packing,
    pub(crate) index: Src,
    /// Rows and columns of the table.
    pub(crate) shape: [usize; 2],
}

impl Fill for GatherPacked {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let [rows, cols] = self.shape;
        let (index, table) = (cx.read::<i32>(&self.index), Packed::new(&self.bytes, self.packing, rows, cols));
        for (r, out) in out.chunks_exact_mut(cols).enumerate() {
            table.row(place(index[first / cols + r], rows)?, u32::as_real(out));
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.shape[1]
    }
}

/// `out[i] = table[i with the axis' index replaced by index[i]]`.
pub(crate) struct GatherElements {
    pub(crate) table: Src,
    pub(crate) index: Src,
    pub(crate) table_shape: Vec<usize>,
    pub(crate) index_shape: Vec<usize>,
    pub(crate) axis: usize,
}

impl Fill for GatherElements {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let (table, index) = (cx.read::<u32>(&self.table), cx.read::<i32>(&self.index));
        for (i, out) in out.iter_mut().enumerate() {
            let at = along_axis(&self.table_shape, &self.index_shape, self.axis, first + i, index)?;
            *out = table[at];
        }
        Ok(())
    }
}

/// Where in a tensor of `shape` the element lies that entry `i` of an index tensor of `index_shape` names.
pub(crate) fn along_axis(
    shape: &[usize],
    index_shape: &[usize],
    axis: usize,
    i: usize,
    index: &[i32],
) -> Result<usize, Fault> {
    let (mut rest, mut at, mut stride) = (i, 0, 1);
    for a in (0..shape.len()).rev() {
        let here = if a == axis { place(index[i], shape[a])? } else { rest % index_shape[a] };
        rest /= index_shape[a];
        at += here * stride;
        stride *= shape[a];
    }
    Ok(at)
}

/// Slices at places of several numbers each.
pub(crate) struct GatherNd {
    pub(crate) table: Src,
    pub(crate) index: Src,
    /// Extents of the indexed axes.
    pub(crate) limits: Vec<usize>,
    /// Elements behind them.
    pub(crate) inner: usize,
    /// Places for each batch.
    pub(crate) places_per_batch: usize,
}

impl Fill for GatherNd {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let (table, index) = (cx.read::<u32>(&self.table), cx.read::<i32>(&self.index));
        let depth = self.limits.len();
        let batch_len = self.limits.iter().product::<usize>() * self.inner;
        for (r, out) in out.chunks_exact_mut(self.inner).enumerate() {
            let row = first / self.inner + r;
            let at = slice_at(&index[row * depth..(row + 1) * depth], &self.limits)?;
            let at = row / self.places_per_batch * batch_len + at * self.inner;
            out.copy_from_slice(&table[at..at + self.inner]);
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.inner
    }
}

/// The row-major place that several numbers name.
pub(crate) fn slice_at(index: &[i32], limits: &[usize]) -> Result<usize, Fault> {
    index.iter().zip(limits).try_fold(0, |at, (&i, &limit)| Ok(at * limit + place(i, limit)?))
}

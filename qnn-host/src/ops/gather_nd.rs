//! `GatherNd`: slices at places of several numbers each.

use super::gather::place;
use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "GatherNd",
    inputs: (2, 2),
    outputs: (1, 1),
    params: &[opt("batch_dims", Ints)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] [INDEX] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("GatherNd", &[], &[(F, &[2, 5]), (I, &[3, 1])], &[(F, &[3, 5])])]
}

fn batch_dims(call: &Call<'_>) -> Result<usize, Violation> {
    match call.ints("batch_dims")? {
        None => Ok(0),
        Some((_, &[n])) => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
        Some((_, other)) => Err(call.bad_param("batch_dims", "one value".into(), format!("{other:?}"))),
    }
}

/// Index rows of length k pick at the first k axes (after the batch axes).
fn shapes(call: &Call<'_>) -> Shapes {
    let (data, index, batch) = (call.dims(0)?, call.dims(1)?, batch_dims(call)?);
    let (&k, rows) = index.split_last().ok_or_else(|| call.bad_input(1, "rank 1 or more".into(), "rank 0".into()))?;
    let k = k as usize;
    let fits =
        batch < index.len() && batch.checked_add(k).is_some_and(|n| n <= data.len()) && index[..batch] == data[..batch];
    if !fits {
        let expected = format!("rows of at most {} after {batch} batch axes of {data:?}", data.len());
        return Err(call.bad_input(1, expected, format!("{index:?}")));
    }
    Ok(vec![[rows, &data[batch + k..]].concat()])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (table, index, batch_dims) = (l.input(0)?, l.int(1)?, batch_dims(l)?);
    let storage = l.storage(table);
    l.emit_as(Op::leaf(GatherNdOp { batch_dims }), &[table, index], l.output(0), storage);
    Ok(())
}

/// `table, index`.
#[derive(Debug)]
struct GatherNdOp {
    batch_dims: usize,
}

impl LeafOp for GatherNdOp {
    fn label(&self) -> &'static str {
        "GatherNd"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let (table, index, batch) = (b.input(node, 0)?, b.input(node, 1)?, self.batch_dims);
        let (shape, index_shape) = (b.shape(table), b.shape(index));
        let depth = index_shape.last().copied().unwrap_or(0);
        let limits = shape[batch..batch + depth].to_vec();
        let inner = shape[batch + depth..].iter().product::<usize>().max(1);
        let places_per_batch = index_shape[batch..index_shape.len() - 1].iter().product::<usize>().max(1);
        b.each(node, GatherNd { table: b.src(table), index: b.src(index), limits, inner, places_per_batch })
    }
}

/// Slices at places of several numbers each.
struct GatherNd {
    table: Src,
    index: Src,
    /// Extents of the indexed axes.
    limits: Vec<usize>,
    /// Elements behind them.
    inner: usize,
    /// Places for each batch.
    places_per_batch: usize,
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
pub(super) fn slice_at(index: &[i32], limits: &[usize]) -> Result<usize, Fault> {
    index.iter().zip(limits).try_fold(0, |at, (&i, &limit)| Ok(at * limit + place(i, limit)?))
}

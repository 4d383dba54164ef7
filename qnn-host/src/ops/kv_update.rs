//! `LLaMAPackage::PDKVCacheUpdate`: new rows of keys and values put into a cache, from one place of the new rows to one of
//! the cache.
//!
//! *Shapes* of the nine inputs: `dep` (any; it is not read, it orders the write after what made it), past keys
//! `[.., D, P]` or `[.., P, D]`, past values `[.., P, D]`, new keys and values alike with `N` for `P`, then four integers
//! of one element: the cache's first row to write, the first new row to read, how many, and whether to write at all.
//! The outputs are the caches after the update.
//! *Units and dtype*: elements are moved as they are, so a cache and its new rows share type and encoding. Keys and values have one type, and
//! may have a scale each.
//! *Traps*: rows that do not fit are an error of the run, never cut off. With `enable` 0 the output is the past, also
//! where it lies in another buffer.

use super::prelude::*;

/// The op with its package.
pub(crate) const NAME: &str = "LLaMAPackage::PDKVCacheUpdate";

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: NAME,
    inputs: (9, 9),
    outputs: (2, 2),
    params: &[],
    same_in: 0,
    same_out: 0,
    rows: &[row!(Moved: [ALL] [CACHE] [CACHE] [CACHE] [CACHE] [INDEX] => [CACHE])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let scalars = [(I, &[1][..]); 4];
    use super::samples::T;
    let node = |keys: (T, T), values: (T, T)| {
        let inputs = [&[(F, &[3][..]), keys.0, values.0, keys.1, values.1][..], &scalars].concat();
        sample(NAME, &[], &inputs, &[keys.0, values.0])
    };
    vec![
        node(((F, &[1, 2, 4, 9]), (F, &[1, 2, 4, 3])), ((F, &[1, 2, 9, 4]), (F, &[1, 2, 3, 4]))),
        node(((H, &[1, 2, 9, 4]), (H, &[1, 2, 3, 4])), ((H, &[1, 2, 9, 4]), (H, &[1, 2, 3, 4]))),
    ]
}

/// Past and new rows of keys and values, by input.
const KEYS: (usize, usize) = (1, 3);
const VALUES: (usize, usize) = (2, 4);
/// The four integers, by input.
const SCALARS: std::ops::Range<usize> = 5..9;

fn shapes(call: &Call<'_>) -> Shapes {
    for (output, (past, new)) in [KEYS, VALUES].into_iter().enumerate() {
        let (cache, new_rows) = (call.tensor(past)?, call.tensor(new)?);
        let expected = || format!("{:?} in the encoding of the cache: {:?}", cache.dtype, cache.quant);
        if (new_rows.dtype, &new_rows.quant) != (cache.dtype, &cache.quant) {
            return Err(call.bad_input(new, expected(), format!("{:?}: {:?}", new_rows.dtype, new_rows.quant)));
        }
        if let Some(updated) = call.outputs.get(output)
            && (updated.dtype, &updated.quant) != (cache.dtype, &cache.quant)
        {
            return Err(call.bad_output(output, expected(), format!("{:?}: {:?}", updated.dtype, updated.quant)));
        }
    }
    let (keys, values) = (call.tensor(KEYS.0)?.dtype, call.tensor(VALUES.0)?.dtype);
    if keys != values {
        return Err(call.bad_input(KEYS.0, format!("{values:?}, as the values are"), format!("{keys:?}")));
    }
    for i in SCALARS {
        if call.dims(i)?.iter().any(|&d| d != 1) {
            return Err(call.bad_input(i, "one element".into(), format!("dims {:?}", call.dims(i)?)));
        }
    }
    let (keys, values) = (call.dims(KEYS.0)?, call.dims(VALUES.0)?);
    let values_axis = values.len().checked_sub(2).filter(|_| fits(call, VALUES, values.len() - 2));
    if values_axis.is_none() {
        let expected = format!("rows that fit {values:?} along the axis before the last");
        return Err(call.bad_input(VALUES.1, expected, format!("{:?}", call.dims(VALUES.1)?)));
    }
    keys_axis(call)?;
    Ok(vec![keys.to_vec(), values.to_vec()])
}

/// Whether new rows have the extents of a cache, that axis aside, and are no more.
fn fits(call: &Call<'_>, (past, new): (usize, usize), axis: usize) -> bool {
    let (Ok(past), Ok(new)) = (call.dims(past), call.dims(new)) else { return false };
    past.len() == new.len()
        && past.iter().zip(new).enumerate().all(|(a, (p, n))| if a == axis { n <= p } else { n == p })
}

/// The axis of the keys' rows. The values tell how many rows the cache and the step have; where both axes fit, keys lie
/// sequence last, as `kvmanager` keeps them.
fn keys_axis(call: &Call<'_>) -> Result<usize, Violation> {
    let (keys, values, new_values) = (call.dims(KEYS.0)?, call.dims(VALUES.0)?, call.dims(VALUES.1)?);
    let (rank, rows, new_rows) = (keys.len(), values[values.len() - 2], new_values[new_values.len() - 2]);
    let new_keys = call.dims(KEYS.1)?;
    let is_axis = |&axis: &usize| keys[axis] == rows && new_keys.get(axis) == Some(&new_rows) && fits(call, KEYS, axis);
    let found = if rank < 2 || rank != values.len() { None } else { [rank - 1, rank - 2].into_iter().find(is_axis) };
    found.ok_or_else(|| {
        let expected = format!("keys whose new rows are {new_rows} of {rows} along one of the last two axes");
        call.bad_input(KEYS.1, expected, format!("{new_keys:?} for a cache of {keys:?}"))
    })
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let scalars = [l.int(5)?, l.int(6)?, l.int(7)?, l.int(8)?];
    let values_axis = l.dims(VALUES.0)?.len() - 2;
    for (output, (past, new), axis) in [(0, KEYS, keys_axis(l)?), (1, VALUES, values_axis)] {
        let inputs = [&[l.input(past)?, l.input(new)?][..], &scalars].concat();
        l.emit(Op::KvUpdate { axis }, &inputs, l.output(output));
    }
    Ok(())
}

/// Where rows go, as the four integers of a run say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// First row of the cache, and of the new ones.
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) n: usize,
}

/// The four integers as operands, and the extents of the axis.
#[derive(Clone)]
pub(super) struct RowsSrc {
    scalars: [Src; 4],
    past: usize,
    new: usize,
}

impl RowsSrc {
    /// Operands `past, new, to, from, n, enable` of a node.
    pub(super) fn of(b: &StepBuilder<'_>, node: &Node, axis: usize) -> Result<Self, ExecError> {
        let extent = |i| b.input(node, i).map(|id| b.shape(id)[axis]);
        let scalar = |i| b.input(node, i).map(|id| b.src(id));
        Ok(Self { scalars: [scalar(2)?, scalar(3)?, scalar(4)?, scalar(5)?], past: extent(0)?, new: extent(1)? })
    }

    /// What this run writes; no rows when it is not enabled.
    pub(super) fn read(&self, cx: &RunContext<'_>) -> Result<Rows, Fault> {
        let [to, from, n, enable] = self.scalars.each_ref().map(|src| i64::from(cx.read::<i32>(src)[0]));
        if enable == 0 || n == 0 {
            return Ok(Rows { to: 0, from: 0, n: 0 });
        }
        let count = usize::try_from(n).map_err(|_| Fault::Index { index: n, limit: self.new + 1 })?;
        let first = |first: i64, limit: usize| {
            let fits = usize::try_from(first).ok().filter(|f| f.checked_add(count).is_some_and(|end| end <= limit));
            fits.ok_or(Fault::Index { index: if first < 0 { first } else { first + n - 1 }, limit })
        };
        Ok(Rows { to: first(to, self.past)?, from: first(from, self.new)?, n: count })
    }
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, axis: usize) -> Result<Box<dyn Step>, ExecError> {
    let (past, new) = (b.input(node, 0)?, b.input(node, 1)?);
    let (rows, inner) = (RowsSrc::of(b, node, axis)?, b.behind(past, axis));
    b.each(node, KvUpdate { past: b.src(past), new: b.src(new), rows, inner })
}

/// A cache beside its past.
struct KvUpdate {
    past: Src,
    new: Src,
    rows: RowsSrc,
    /// Elements of a row behind the axis.
    inner: usize,
}

impl Fill for KvUpdate {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let Rows { to, from, n } = self.rows.read(cx)?;
        let (past, new, inner) = (cx.read::<u32>(&self.past), cx.read::<u32>(&self.new), self.inner);
        out.copy_from_slice(&past[first..first + out.len()]);
        for (i, block) in out.chunks_exact_mut(self.unit()).enumerate() {
            let at = (first / self.unit() + i) * self.rows.new + from;
            block[to * inner..(to + n) * inner].copy_from_slice(&new[at * inner..(at + n) * inner]);
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.rows.past * self.inner
    }
}

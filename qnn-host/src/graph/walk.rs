//! Walking a row-major result while operands follow by strides: broadcasts, transpositions, slices, repetitions.

/// Most axes of a tensor.
pub(crate) const MAX_RANK: usize = 8;
/// Most axes of a walk: a repetition makes two of each.
const MAX_AXES: usize = 2 * MAX_RANK;

/// What two shapes broadcast to, aligned at the last axis.
pub(crate) fn broadcast_shape(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Elements from one index of each axis to the next, row-major.
pub(crate) fn strides_of(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Strides that make `shape` look like `to`, which it broadcasts to: 0 along repeated axes.
pub(crate) fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<isize> {
    let own = strides_of(shape);
    (0..to.len())
        .map(|axis| match (axis + shape.len()).checked_sub(to.len()) {
            Some(i) if shape[i] != 1 => own[i] as isize,
            _ => 0,
        })
        .collect()
}

/// A result's extents, and for each of `N` operands where it starts and how it moves along each axis, in elements.
#[derive(Clone, Debug)]
pub(crate) struct Walk<const N: usize> {
    dims: Vec<usize>,
    strides: Vec<[isize; N]>,
    base: [isize; N],
}

/// A part of a result row in which every operand moves evenly.
pub(crate) struct Run<const N: usize> {
    /// Where it begins in the part of the result that is being filled.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// First element of each operand.
    pub(crate) start: [isize; N],
    /// From one element to the next.
    pub(crate) step: [isize; N],
}

impl<const N: usize> Walk<N> {
    /// Drops axes of one element and joins axes that all operands cross evenly.
    pub(crate) fn new(dims: &[usize], strides: &[[isize; N]], base: [isize; N]) -> Self {
        assert!(dims.len() <= MAX_AXES && dims.len() == strides.len(), "a walk over {} axes", dims.len());
        let mut walk = Self { dims: Vec::new(), strides: Vec::new(), base };
        for (&dim, &stride) in dims.iter().zip(strides) {
            if dim == 1 {
                continue;
            }
            match (walk.dims.last_mut(), walk.strides.last_mut()) {
                (Some(last), Some(outer)) if (0..N).all(|i| outer[i] == stride[i] * dim as isize) => {
                    *last *= dim;
                    *outer = stride;
                }
                _ => {
                    walk.dims.push(dim);
                    walk.strides.push(stride);
                }
            }
        }
        if walk.dims.is_empty() {
            walk.dims.push(dims.iter().product());
            walk.strides.push([0; N]);
        }
        walk
    }

    /// Operands of these shapes, each broadcast to `to`.
    pub(crate) fn broadcast(to: &[usize], shapes: [&[usize]; N]) -> Self {
        let each = shapes.map(|shape| broadcast_strides(shape, to));
        let strides: Vec<[isize; N]> = (0..to.len()).map(|axis| std::array::from_fn(|i| each[i][axis])).collect();
        Self::new(to, &strides, [0; N])
    }

    /// Calls `visit` for the runs that make up `n` result elements from `first` on.
    pub(crate) fn runs(&self, first: usize, n: usize, mut visit: impl FnMut(Run<N>)) {
        let mut index = [0usize; MAX_AXES];
        let rank = self.dims.len();
        let mut rest = first;
        for axis in (0..rank).rev() {
            index[axis] = rest % self.dims[axis].max(1);
            rest /= self.dims[axis].max(1);
        }
        let mut at = 0;
        while at < n {
            let len = (self.dims[rank - 1] - index[rank - 1]).min(n - at);
            let mut start = self.base;
            for (&i, stride) in index.iter().zip(&self.strides) {
                (0..N).for_each(|operand| start[operand] += i as isize * stride[operand]);
            }
            visit(Run { at, len, start, step: self.strides[rank - 1] });
            at += len;
            index[rank - 1] += len;
            for axis in (1..rank).rev() {
                if index[axis] == self.dims[axis] {
                    index[axis] = 0;
                    index[axis - 1] += 1;
                }
            }
        }
    }
}

impl Walk<1> {
    /// Axis `a` of the result is axis `perm[a]` of `shape`.
    pub(crate) fn transpose(shape: &[usize], perm: &[usize]) -> Self {
        let own = strides_of(shape);
        let dims: Vec<usize> = perm.iter().map(|&a| shape[a]).collect();
        let strides: Vec<[isize; 1]> = perm.iter().map(|&a| [own[a] as isize]).collect();
        Self::new(&dims, &strides, [0])
    }

    /// `counts` elements of each axis, from `begin` on, every `stride`-th.
    pub(crate) fn slice(shape: &[usize], begin: &[usize], stride: &[i64], counts: &[usize]) -> Self {
        let own = strides_of(shape);
        let strides: Vec<[isize; 1]> = own.iter().zip(stride).map(|(&o, &s)| [o as isize * s as isize]).collect();
        let base: usize = own.iter().zip(begin).map(|(o, b)| o * b).sum();
        Self::new(counts, &strides, [base as isize])
    }

    /// Each axis repeated as a whole.
    pub(crate) fn tile(shape: &[usize], multiples: &[usize]) -> Self {
        let own = strides_of(shape);
        let dims: Vec<usize> = multiples.iter().zip(shape).flat_map(|(&m, &d)| [m, d]).collect();
        let strides: Vec<[isize; 1]> = own.iter().flat_map(|&s| [[0], [s as isize]]).collect();
        Self::new(&dims, &strides, [0])
    }
}

/// The axes of a tensor, some of which are reduced.
pub(crate) struct Axes {
    kept: Vec<(usize, usize)>,
    reduced: Vec<(usize, usize)>,
}

impl Axes {
    /// Extents and strides of the axes that stay and of those that go.
    pub(crate) fn new(shape: &[usize], axes: &[usize]) -> Self {
        let pairs: Vec<(usize, usize)> = shape.iter().copied().zip(strides_of(shape)).collect();
        let pick = |reduced: bool| {
            pairs.iter().enumerate().filter(|(a, _)| axes.contains(a) == reduced).map(|(_, &p)| p).collect()
        };
        Self { kept: pick(false), reduced: pick(true) }
    }

    /// How many elements become one.
    pub(crate) fn count(&self) -> usize {
        self.reduced.iter().map(|(d, _)| d).product()
    }

    /// Calls `visit` with the place of each element that becomes result element `i`.
    pub(crate) fn each(&self, i: usize, mut visit: impl FnMut(usize)) {
        let base = offset(&self.kept, i);
        match *self.reduced.as_slice() {
            [(n, stride)] => (0..n).for_each(|j| visit(base + j * stride)),
            _ => (0..self.count()).for_each(|j| visit(base + offset(&self.reduced, j))),
        }
    }
}

/// Where the row-major `i`-th index of these axes lies.
fn offset(axes: &[(usize, usize)], mut i: usize) -> usize {
    let mut at = 0;
    for &(dim, stride) in axes.iter().rev() {
        at += i % dim * stride;
        i /= dim;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_as_numpys_do() {
        type Case = (&'static [usize], &'static [usize], Option<&'static [usize]>);
        let cases: [Case; 6] = [
            (&[2, 3], &[3], Some(&[2, 3])),
            (&[2, 1], &[1, 4], Some(&[2, 4])),
            (&[], &[5], Some(&[5])),
            (&[2, 3], &[2], None),
            (&[1], &[0], Some(&[0])),
            (&[4, 1, 6], &[5, 1], Some(&[4, 5, 6])),
        ];
        for (a, b, expected) in cases {
            assert_eq!(broadcast_shape(a, b).as_deref(), expected, "{a:?} with {b:?}");
        }
    }

    #[test]
    fn a_walk_visits_each_element_from_any_start() {
        let walk = Walk::broadcast(&[2, 3, 4], [&[2, 1, 4], &[3, 1]]);
        for first in 0..24 {
            for n in 0..=24 - first {
                let mut seen = vec![[-1; 2]; n];
                walk.runs(first, n, |run| {
                    for i in 0..run.len {
                        seen[run.at + i] = std::array::from_fn(|o| run.start[o] + i as isize * run.step[o]);
                    }
                });
                for (i, seen) in seen.iter().enumerate() {
                    let (a, b, c) = ((first + i) / 12, (first + i) / 4 % 3, (first + i) % 4);
                    assert_eq!(*seen, [(a * 4 + c) as isize, b as isize], "{i} after {first}");
                }
            }
        }
    }

    #[test]
    fn axes_join_where_operands_move_evenly() {
        let walk = Walk::broadcast(&[2, 3, 4], [&[2, 3, 4], &[2, 3, 4]]);
        assert_eq!(walk.dims, [24]);
        let mut runs = 0;
        walk.runs(0, 24, |_| runs += 1);
        assert_eq!(runs, 1);
    }
}

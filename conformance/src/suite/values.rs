//! Numbers in double precision with extents: what references compute on.

/// A dense, row-major array.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// Elements.
    pub data: Vec<f64>,
}

impl Values {
    /// Elements in row-major order.
    ///
    /// # Panics
    /// Not as many as the extents say.
    pub fn new(dims: impl Into<Vec<usize>>, data: Vec<f64>) -> Self {
        let dims = dims.into();
        assert_eq!(dims.iter().product::<usize>(), data.len(), "as many elements as {dims:?} says");
        Self { dims, data }
    }

    /// Numbers in `[-amplitude, amplitude)`, the same every time.
    pub fn noise(seed: u64, dims: impl Into<Vec<usize>>, amplitude: f64) -> Self {
        let dims = dims.into();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f64 / f64::from(1u32 << 23) - 1.0) * amplitude
        };
        let n = dims.iter().product();
        Self { dims, data: (0..n).map(|_| next()).collect() }
    }

    /// Numbers in `[low, high)`, the same every time.
    pub fn between(seed: u64, dims: impl Into<Vec<usize>>, low: f64, high: f64) -> Self {
        Self::noise(seed, dims, 0.5).map(|x| low + (x + 0.5) * (high - low))
    }

    /// Whole numbers in `[low, high)`, the same every time.
    pub fn integers(seed: u64, dims: impl Into<Vec<usize>>, low: i64, high: i64) -> Self {
        Self::between(seed, dims, low as f64, high as f64).map(f64::floor)
    }

    /// The number that `f` gives for each index.
    pub fn from_fn(dims: impl Into<Vec<usize>>, mut f: impl FnMut(&[usize]) -> f64) -> Self {
        let dims = dims.into();
        let n = dims.iter().product();
        let mut index = vec![0; dims.len()];
        let mut data = Vec::with_capacity(n);
        for _ in 0..n {
            data.push(f(&index));
            for (i, &extent) in index.iter_mut().zip(&dims).rev() {
                *i += 1;
                if *i < extent {
                    break;
                }
                *i = 0;
            }
        }
        Self { dims, data }
    }

    /// Where an index is in [`Values::data`].
    fn offset(&self, index: &[usize]) -> usize {
        assert_eq!(index.len(), self.dims.len(), "an index of {:?}", self.dims);
        index.iter().zip(&self.dims).fold(0, |at, (&i, &extent)| {
            assert!(i < extent, "{index:?} lies in {:?}", self.dims);
            at * extent + i
        })
    }

    /// The number at an index.
    pub fn at(&self, index: &[usize]) -> f64 {
        self.data[self.offset(index)]
    }

    /// The number at an index, to be changed.
    pub fn at_mut(&mut self, index: &[usize]) -> &mut f64 {
        let offset = self.offset(index);
        &mut self.data[offset]
    }

    /// The number at an index of a larger array that this one is stretched to, by numpy's rules.
    pub fn stretched(&self, index: &[usize]) -> f64 {
        let own = &index[index.len() - self.dims.len()..];
        let own: Vec<usize> = own.iter().zip(&self.dims).map(|(&i, &extent)| if extent == 1 { 0 } else { i }).collect();
        self.at(&own)
    }

    /// Each number changed.
    #[must_use]
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { dims: self.dims.clone(), data: self.data.iter().map(|&x| f(x)).collect() }
    }

    /// Numbers of two arrays combined, stretched by numpy's rules.
    ///
    /// # Panics
    /// The extents do not fit each other.
    #[must_use]
    pub fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let rank = self.dims.len().max(other.dims.len());
        let extent = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |j| dims[j]);
        let dims: Vec<usize> = (0..rank).map(|i| extent(&self.dims, i).max(extent(&other.dims, i))).collect();
        Self::from_fn(dims, |i| f(self.stretched(i), other.stretched(i)))
    }

    /// Each row of the last axis changed.
    #[must_use]
    pub fn map_rows(&self, f: impl FnMut(&[f64]) -> Vec<f64>) -> Self {
        Self::new(self.dims.clone(), self.data.chunks(self.width()).flat_map(f).collect())
    }

    /// The same numbers under other extents.
    ///
    /// # Panics
    /// Not as many as the extents say.
    #[must_use]
    pub fn reshaped(&self, dims: impl Into<Vec<usize>>) -> Self {
        Self::new(dims, self.data.clone())
    }

    /// Extent of the last axis.
    pub fn width(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Largest magnitude.
    pub fn largest(&self) -> f64 {
        self.data.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_count_row_major_and_ones_stretch() {
        let a = Values::from_fn([2, 3], |i| (10 * i[0] + i[1]) as f64);
        assert_eq!(a.data, [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
        let b = Values::new([3], vec![1.0, 2.0, 3.0]);
        assert_eq!(b.zip(&a, |b, a| a - b).data, [-1.0, -1.0, -1.0, 9.0, 9.0, 9.0]);
        let column = Values::new([2, 1], vec![5.0, 6.0]);
        assert_eq!(column.zip(&b, |c, b| c * b), Values::new([2, 3], vec![5.0, 10.0, 15.0, 6.0, 12.0, 18.0]));
    }
}

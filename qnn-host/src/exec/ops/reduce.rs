//! Many elements to one: sums, means, extremes; places of extremes; running sums.

use crate::graph::scalar::ReduceOp;
use crate::graph::walk::strides_of;
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

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

/// Reduces numbers, in double precision.
pub(crate) struct RealReduce {
    pub(crate) op: ReduceOp,
    pub(crate) x: Src,
    pub(crate) axes: Axes,
}

impl Fill for RealReduce {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = cx.read::<f32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let fold = |start: f64, f: fn(f64, f64) -> f64| {
                let mut sum = start;
                self.axes.each(first + i, |at| sum = f(sum, f64::from(x[at])));
                sum
            };
            *out = match self.op {
                ReduceOp::Sum => fold(0.0, |a, b| a + b),
                ReduceOp::Mean => fold(0.0, |a, b| a + b) / self.axes.count() as f64,
                ReduceOp::Max => fold(f64::NEG_INFINITY, f64::max),
                ReduceOp::Min => fold(f64::INFINITY, f64::min),
                ReduceOp::Prod => fold(1.0, |a, b| a * b),
            } as f32;
        }
        Ok(())
    }
}

/// Reduces integers; a mean is rounded towards zero, sums and products saturate.
pub(crate) struct IntReduce {
    pub(crate) op: ReduceOp,
    pub(crate) x: Src,
    pub(crate) axes: Axes,
}

impl Fill for IntReduce {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let x = cx.read::<i32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let fold = |start: i64, f: fn(i64, i64) -> i64| {
                let mut sum = start;
                self.axes.each(first + i, |at| sum = f(sum, i64::from(x[at])));
                sum
            };
            let result = match self.op {
                ReduceOp::Sum => fold(0, i64::saturating_add),
                ReduceOp::Mean => fold(0, i64::saturating_add) / self.axes.count() as i64,
                ReduceOp::Max => fold(i64::MIN, i64::max),
                ReduceOp::Min => fold(i64::MAX, i64::min),
                ReduceOp::Prod => fold(1, i64::saturating_mul),
            };
            *out = result.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        }
        Ok(())
    }
}

/// The first place of the largest element along an axis.
pub(crate) struct Argmax {
    pub(crate) x: Src,
    pub(crate) real: bool,
    pub(crate) axes: Axes,
}

impl Fill for Argmax {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let words = cx.read::<u32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let (mut best, mut place, mut j) = (f64::NEG_INFINITY, 0, 0);
            self.axes.each(first + i, |at| {
                let x = number(words[at], self.real);
                if x > best {
                    (best, place) = (x, j);
                }
                j += 1;
            });
            *out = place;
        }
        Ok(())
    }
}

/// A stored word as a number.
pub(crate) fn number(word: u32, real: bool) -> f64 {
    if real { f64::from(f32::from_bits(word)) } else { f64::from(word.cast_signed()) }
}

/// Sums of all elements up to each, along an axis.
pub(crate) struct CumulativeSum {
    pub(crate) x: Src,
    pub(crate) real: bool,
    /// Extent of the axis, and elements behind it.
    pub(crate) n: usize,
    pub(crate) inner: usize,
    pub(crate) exclusive: bool,
    pub(crate) reverse: bool,
}

impl Fill for CumulativeSum {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = &cx.read::<u32>(&self.x)[first..first + out.len()];
        for (x, out) in x.chunks_exact(self.unit()).zip(out.chunks_exact_mut(self.unit())) {
            for column in 0..self.inner {
                let mut sum = 0.0;
                for j in 0..self.n {
                    let row = if self.reverse { self.n - 1 - j } else { j };
                    let at = row * self.inner + column;
                    let before = sum;
                    sum += number(x[at], self.real);
                    let result = if self.exclusive { before } else { sum };
                    out[at] =
                        if self.real { (result as f32).to_bits() } else { (result as i64 as i32).cast_unsigned() };
                }
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.n * self.inner
    }
}

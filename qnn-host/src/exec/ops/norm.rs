//! Plain normalisations, sums in double precision; the reference for fused ones.

use super::reduce::Axes;
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

/// What is normalised over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// By the root of the mean square.
    Rms,
    /// By the standard deviation, around the mean.
    Layer,
}

/// `(x - centre) / spread * gamma + beta` for each row.
pub(crate) struct Norm {
    pub(crate) kind: NormKind,
    pub(crate) x: Src,
    pub(crate) gamma: Option<Src>,
    pub(crate) beta: Option<Src>,
    pub(crate) width: usize,
    pub(crate) epsilon: f32,
}

impl Fill for Norm {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        let (gamma, beta) =
            (self.gamma.as_ref().map(|s| cx.read::<f32>(s)), self.beta.as_ref().map(|s| cx.read::<f32>(s)));
        for (x, out) in x.chunks_exact(self.width).zip(out.chunks_exact_mut(self.width)) {
            let n = self.width as f64;
            let centre = match self.kind {
                NormKind::Rms => 0.0,
                NormKind::Layer => x.iter().map(|&x| f64::from(x)).sum::<f64>() / n,
            };
            let square = x.iter().map(|&x| (f64::from(x) - centre).powi(2)).sum::<f64>() / n;
            let factor = 1.0 / (square + f64::from(self.epsilon)).sqrt();
            for (i, (out, &x)) in out.iter_mut().zip(x).enumerate() {
                let y = (f64::from(x) - centre) * factor * gamma.map_or(1.0, |g| f64::from(g[i]));
                *out = (y + beta.map_or(0.0, |b| f64::from(b[i]))) as f32;
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.width
    }
}

/// `x / sqrt(max(sum of squares over the axes, epsilon))`.
pub(crate) struct L2Norm {
    pub(crate) x: Src,
    pub(crate) axes: Axes,
    /// The same axes, but of the result element's place: maps an element to its sum.
    pub(crate) shape: Vec<usize>,
    pub(crate) reduced: Vec<usize>,
    pub(crate) epsilon: f32,
}

impl Fill for L2Norm {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = cx.read::<f32>(&self.x);
        let mut last = None;
        for (i, out) in out.iter_mut().enumerate() {
            let group = self.group(first + i);
            let factor = match last {
                Some((g, factor)) if g == group => factor,
                _ => {
                    let mut sum = 0.0;
                    self.axes.each(group, |at| sum += f64::from(x[at]).powi(2));
                    1.0 / sum.max(f64::from(self.epsilon)).sqrt()
                }
            };
            last = Some((group, factor));
            *out = (f64::from(x[first + i]) * factor) as f32;
        }
        Ok(())
    }
}

impl L2Norm {
    /// Which sum element `i` is divided by: its index with the reduced axes dropped.
    fn group(&self, mut i: usize) -> usize {
        let (mut group, mut stride) = (0, 1);
        for axis in (0..self.shape.len()).rev() {
            let (dim, here) = (self.shape[axis], i % self.shape[axis]);
            i /= dim;
            if !self.reduced.contains(&axis) {
                group += here * stride;
                stride *= dim;
            }
        }
        group
    }
}

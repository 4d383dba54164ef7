//! Plain products: batched matrices of values, and the convolution.

use crate::graph::walk::{Walk, broadcast_strides};
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

/// `out[b] = A[b] B[b] (+ bias)`, row-major, leading axes broadcast.
pub(crate) struct MatMul {
    pub(crate) a: Src,
    pub(crate) b: Src,
    pub(crate) bias: Option<Src>,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
    pub(crate) transpose_a: bool,
    pub(crate) transpose_b: bool,
    /// First element of A and B for each batch.
    pub(crate) batches: Vec<[usize; 2]>,
}

impl MatMul {
    /// Where each batch's matrices begin.
    pub(crate) fn batches(to: &[usize], a: &[usize], b: &[usize], a_len: usize, b_len: usize) -> Vec<[usize; 2]> {
        let (a, b) = (broadcast_strides(a, to), broadcast_strides(b, to));
        let strides: Vec<[isize; 2]> = a.into_iter().zip(b).map(|(a, b)| [a, b]).collect();
        let n = to.iter().product();
        let mut starts = vec![[0; 2]; n];
        Walk::new(to, &strides, [0; 2]).runs(0, n, |run| {
            for (i, start) in starts[run.at..run.at + run.len].iter_mut().enumerate() {
                let at = |o: usize| (run.start[o] + i as isize * run.step[o]) as usize;
                *start = [at(0) * a_len, at(1) * b_len];
            }
        });
        starts
    }
}

impl Fill for MatMul {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let (a, b) = (cx.read::<f32>(&self.a), cx.read::<f32>(&self.b));
        let bias = self.bias.as_ref().map(|s| cx.read::<f32>(s));
        for (r, out) in out.chunks_exact_mut(self.n).enumerate() {
            let row = first / self.n + r;
            let [a_at, b_at] = self.batches[row / self.m];
            let (row, b) = (row % self.m, &b[b_at..b_at + self.k * self.n]);
            let x = |k: usize| if self.transpose_a { a[a_at + k * self.m + row] } else { a[a_at + row * self.k + k] };
            match bias {
                Some(bias) => out.copy_from_slice(bias),
                None => out.fill(0.0),
            }
            if self.transpose_b {
                for (out, b) in out.iter_mut().zip(b.chunks_exact(self.k.max(1))) {
                    *out += dot(b, x);
                }
            } else {
                for (k, b) in b.chunks_exact(self.n).enumerate() {
                    let x = x(k);
                    out.iter_mut().zip(b).for_each(|(out, b)| *out += x * b);
                }
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.n
    }
}

/// A dot product in eight partial sums.
fn dot(b: &[f32], x: impl Fn(usize) -> f32) -> f32 {
    let mut sums = [0.0f32; 8];
    for (c, b) in b.chunks(8).enumerate() {
        b.iter().zip(&mut sums).enumerate().for_each(|(i, (b, sum))| *sum += b * x(c * 8 + i));
    }
    sums.iter().sum()
}

/// `x [B, H, W, C], w [kh, kw, C / groups, O]` -> `[B, H', W', O]`, in double precision.
pub(crate) struct Conv2d {
    pub(crate) x: Src,
    pub(crate) w: Src,
    pub(crate) bias: Option<Src>,
    pub(crate) input: [usize; 4],
    pub(crate) weights: [usize; 4],
    /// Rows and columns of the result.
    pub(crate) out: [usize; 2],
    pub(crate) stride: [usize; 2],
    /// Rows and columns of zeros before the input.
    pub(crate) before: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) groups: usize,
}

impl Fill for Conv2d {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let (x, w) = (cx.read::<f32>(&self.x), cx.read::<f32>(&self.w));
        let bias = self.bias.as_ref().map(|s| cx.read::<f32>(s));
        let [_, h, wd, c] = self.input;
        let [kh, kw, cg, n] = self.weights;
        for (i, out) in out.iter_mut().enumerate() {
            let at = first + i;
            let (o, at) = (at % n, at / n);
            let (col, at) = (at % self.out[1], at / self.out[1]);
            let (row, batch) = (at % self.out[0], at / self.out[0]);
            let group = o / (n / self.groups);
            let mut sum = bias.map_or(0.0, |b| f64::from(b[o]));
            for (r, s) in (0..kh).flat_map(|r| (0..kw).map(move |s| (r, s))) {
                let y = (row * self.stride[0] + r * self.dilation[0]).wrapping_sub(self.before[0]);
                let z = (col * self.stride[1] + s * self.dilation[1]).wrapping_sub(self.before[1]);
                if y >= h || z >= wd {
                    continue;
                }
                let pixel = ((batch * h + y) * wd + z) * c + group * cg;
                let kernel = (r * kw + s) * cg * n + o;
                for j in 0..cg {
                    sum += f64::from(x[pixel + j]) * f64::from(w[kernel + j * n]);
                }
            }
            *out = sum as f32;
        }
        Ok(())
    }
}

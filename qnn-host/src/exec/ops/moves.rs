//! Moving elements as they are: by strides (transposition, slice, repetition), side by side, with a border.

use super::walk::{Walk, strides_of};
use crate::exec::run_context::{RunContext, Src};
use crate::exec::step::{Fault, Fill};
use crate::passes::op::PadScheme;

/// `out[i] = x[walk(i)]`.
pub(crate) struct Strided {
    pub(crate) x: Src,
    pub(crate) walk: Walk<1>,
}

impl Strided {
    /// Axis `a` of the result is axis `perm[a]` of `shape`.
    pub(crate) fn transpose(shape: &[usize], perm: &[usize]) -> Walk<1> {
        let own = strides_of(shape);
        let dims: Vec<usize> = perm.iter().map(|&a| shape[a]).collect();
        let strides: Vec<[isize; 1]> = perm.iter().map(|&a| [own[a] as isize]).collect();
        Walk::new(&dims, &strides, [0])
    }

    /// `counts` elements of each axis, from `begin` on, every `stride`-th.
    pub(crate) fn slice(shape: &[usize], begin: &[usize], stride: &[i64], counts: &[usize]) -> Walk<1> {
        let own = strides_of(shape);
        let strides: Vec<[isize; 1]> = own.iter().zip(stride).map(|(&o, &s)| [o as isize * s as isize]).collect();
        let base: usize = own.iter().zip(begin).map(|(o, b)| o * b).sum();
        Walk::new(counts, &strides, [base as isize])
    }

    /// Each axis repeated as a whole.
    pub(crate) fn tile(shape: &[usize], multiples: &[usize]) -> Walk<1> {
        let own = strides_of(shape);
        let dims: Vec<usize> = multiples.iter().zip(shape).flat_map(|(&m, &d)| [m, d]).collect();
        let strides: Vec<[isize; 1]> = own.iter().flat_map(|&s| [[0], [s as isize]]).collect();
        Walk::new(&dims, &strides, [0])
    }
}

impl Fill for Strided {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = cx.read::<u32>(&self.x);
        self.walk.runs(first, out.len(), |run| {
            let out = &mut out[run.at..run.at + run.len];
            let start = run.start[0];
            match run.step[0] {
                1 => out.copy_from_slice(&x[start as usize..start as usize + run.len]),
                step => out.iter_mut().enumerate().for_each(|(i, o)| *o = x[(start + i as isize * step) as usize]),
            }
        });
        Ok(())
    }
}

/// All parts side by side along an axis.
pub(crate) struct Concat {
    /// The parts, and how many elements each adds to a row of the result.
    pub(crate) parts: Vec<(Src, usize)>,
    /// Elements of a row of the result: the extents from the axis on.
    pub(crate) row: usize,
}

impl Fill for Concat {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        for (r, out) in out.chunks_exact_mut(self.row).enumerate() {
            let row = first / self.row + r;
            let mut at = 0;
            for (src, n) in &self.parts {
                out[at..at + n].copy_from_slice(&cx.read::<u32>(src)[row * n..(row + 1) * n]);
                at += n;
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.row
    }
}

/// A border around a tensor.
pub(crate) struct Pad {
    pub(crate) x: Src,
    pub(crate) shape: Vec<usize>,
    pub(crate) padded: Vec<usize>,
    pub(crate) before: Vec<usize>,
    pub(crate) scheme: PadScheme,
    /// The constant, as the storage type's bits.
    pub(crate) fill: u32,
}

impl Fill for Pad {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = cx.read::<u32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let (mut rest, mut from, mut stride, mut inside) = (first + i, 0, 1, true);
            for axis in (0..self.shape.len()).rev() {
                let place = (rest % self.padded[axis]) as isize - self.before[axis] as isize;
                rest /= self.padded[axis];
                match mirrored(place, self.shape[axis] as isize, self.scheme) {
                    Some(place) => from += place * stride,
                    None => inside = false,
                }
                stride *= self.shape[axis];
            }
            *out = if inside { x[from] } else { self.fill };
        }
        Ok(())
    }
}

/// The element that a place along an axis of `n` shows, if any.
fn mirrored(place: isize, n: isize, scheme: PadScheme) -> Option<usize> {
    let place = match scheme {
        PadScheme::Constant(_) => place,
        PadScheme::Edge => place.clamp(0, n - 1),
        PadScheme::Reflect if place < 0 => -place,
        PadScheme::Reflect if place >= n => 2 * (n - 1) - place,
        PadScheme::Symmetric if place < 0 => -place - 1,
        PadScheme::Symmetric if place >= n => 2 * n - 1 - place,
        _ => place,
    };
    (0..n).contains(&place).then_some(place as usize)
}

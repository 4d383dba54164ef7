//! Moving elements as they are: by strides (transposition, slice, repetition), side by side, with a border.

use crate::graph::op::PadScheme;
use crate::graph::walk::Walk;
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

/// `out[i] = x[walk(i)]`.
pub(crate) struct Strided {
    pub(crate) x: Src,
    pub(crate) walk: Walk<1>,
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

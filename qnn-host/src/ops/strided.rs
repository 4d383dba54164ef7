//! The step of transpositions, slices and repetitions: a walk over the input by strides.

use crate::graph::walk::{Run, Walk};
use crate::kernels::{FloatsMut, transpose};
use crate::step::{Fault, Fill, Lane32, RunContext, Src};

/// `out[i] = x[walk(i)]`.
pub(super) struct Strided {
    pub(super) x: Src,
    pub(super) walk: Walk<1>,
}

impl Fill for Strided {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = cx.read::<f32>(&self.x);
        let out = u32::as_real(out);
        // Neighbouring columns of a matrix are moved together: a cache line of it has a number of each of 16.
        let mut columns: Option<Columns> = None;
        self.walk.runs(first, out.len(), |run| {
            if !columns.as_mut().is_some_and(|columns| columns.take(&run))
                && let Some(whole) = columns.replace(Columns { first: run, count: 1 })
            {
                whole.write(cx, x, out);
            }
        });
        if let Some(last) = columns {
            last.write(cx, x, out);
        }
        Ok(())
    }
}

/// Runs of which each begins an element of the operand after the one before, and follows it in the result.
struct Columns {
    first: Run<1>,
    count: usize,
}

impl Columns {
    /// Takes the run that follows, if it is the next column.
    fn take(&mut self, run: &Run<1>) -> bool {
        let Self { first, count } = self;
        let follows = run.len == first.len
            && run.step == first.step
            && run.start[0] == first.start[0] + *count as isize
            && run.at == first.at + *count * first.len;
        let taken = follows && first.step[0] > 1;
        *count += usize::from(taken);
        taken
    }

    fn write(&self, cx: &RunContext<'_>, x: &[f32], out: &mut [f32]) {
        let Run { at, len, start: [start], step: [step] } = self.first;
        let out = &mut out[at..at + self.count * len];
        match step {
            1 => out.copy_from_slice(&x[start as usize..start as usize + len]),
            _ if self.count > 1 => {
                let x = &x[start as usize..];
                transpose(cx.isa, x, step as usize, len, self.count, FloatsMut::f32(out), len);
            }
            _ => out.iter_mut().enumerate().for_each(|(i, o)| *o = x[(start + i as isize * step) as usize]),
        }
    }
}

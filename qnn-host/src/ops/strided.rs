//! The step of transpositions, slices and repetitions: a walk over the input by strides.

use crate::graph::walk::Walk;
use crate::step::{Fault, Fill, RunContext, Src};

/// `out[i] = x[walk(i)]`.
pub(super) struct Strided {
    pub(super) x: Src,
    pub(super) walk: Walk<1>,
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

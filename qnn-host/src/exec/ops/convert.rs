//! Conversions that are more than a view.

use crate::graph::op::CastOp;
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

/// The same elements at another place, to be rounded there.
pub(crate) struct Copy(pub(crate) Src);

impl Fill for Copy {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        out.copy_from_slice(&cx.read(&self.0)[first..first + out.len()]);
        Ok(())
    }
}

/// Numbers to integers, towards zero and saturated, or back.
pub(crate) struct ConvertStorage {
    pub(crate) x: Src,
    pub(crate) to_real: bool,
}

impl Fill for ConvertStorage {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = &cx.read::<u32>(&self.x)[first..first + out.len()];
        if self.to_real {
            out.iter_mut().zip(x).for_each(|(out, &x)| *out = (x.cast_signed() as f32).to_bits());
        } else {
            out.iter_mut().zip(x).for_each(|(out, &x)| *out = (f32::from_bits(x) as i32).cast_unsigned());
        }
        Ok(())
    }
}

/// A cast that sees codes where the types are fixed-point.
pub(crate) struct Cast {
    pub(crate) x: Src,
    pub(crate) op: CastOp,
    pub(crate) from_real: bool,
    pub(crate) to_real: bool,
}

impl Fill for Cast {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = &cx.read::<u32>(&self.x)[first..first + out.len()];
        for (out, &x) in out.iter_mut().zip(x) {
            let value = match (self.from_real, self.op.from) {
                (true, Some(grid)) => grid.code(f32::from_bits(x)) as f64,
                (true, None) => f64::from(f32::from_bits(x)),
                (false, _) => f64::from(x.cast_signed()),
            };
            *out = match (self.to_real, self.op.to) {
                (false, _) if self.op.boolean => u32::from(value != 0.0),
                (false, _) => (value as i32).cast_unsigned(),
                (true, Some(grid)) => grid.real((value as i64).clamp(grid.min, grid.max)).to_bits(),
                (true, None) => (value as f32).to_bits(),
            };
        }
        Ok(())
    }
}

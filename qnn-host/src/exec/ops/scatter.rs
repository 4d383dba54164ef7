//! Writing updates at places that an index tensor names, over a copy of the data. A place outside is an error.

use super::gather::{along_axis, slice_at};
use crate::graph::scalar::ScatterOp;
use crate::pool::Worker;
use crate::step::{Dst, RunContext, Src};
use crate::step::{Fault, Step};

/// What an index entry names.
pub(crate) enum Places {
    /// An element: the entry replaces the place along one axis.
    Elements { shape: Vec<usize>, index_shape: Vec<usize>, axis: usize },
    /// A slice of `inner` elements: numbers for the leading axes.
    Slices { limits: Vec<usize>, inner: usize },
}

/// `out = data`, then each update in order. One thread does it: places may repeat.
pub(crate) struct Scatter {
    pub(crate) op: ScatterOp,
    pub(crate) real: bool,
    pub(crate) data: Src,
    pub(crate) index: Src,
    pub(crate) updates: Src,
    pub(crate) places: Places,
    pub(crate) dst: Dst,
}

impl Step for Scatter {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        if worker.index() != 0 {
            return Ok(());
        }
        // SAFETY: only thread 0 comes here, and the plan keeps a step's output apart from its inputs.
        let out = unsafe { cx.write::<u32>(&self.dst).part(0..self.dst.n) };
        out.copy_from_slice(cx.read(&self.data));
        let (index, updates) = (cx.read::<i32>(&self.index), cx.read::<u32>(&self.updates));
        match &self.places {
            Places::Elements { shape, index_shape, axis } => {
                for (i, &update) in updates.iter().enumerate() {
                    let at = along_axis(shape, index_shape, *axis, i, index)?;
                    out[at] = self.meet(out[at], update);
                }
            }
            Places::Slices { limits, inner } => {
                let depth = limits.len();
                for (i, update) in updates.chunks_exact((*inner).max(1)).enumerate() {
                    let at = slice_at(&index[i * depth..(i + 1) * depth], limits)? * inner;
                    for (out, &update) in out[at..at + inner].iter_mut().zip(update) {
                        *out = self.meet(*out, update);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Scatter {
    fn meet(&self, old: u32, update: u32) -> u32 {
        if self.op == ScatterOp::Replace {
            return update;
        }
        if self.real {
            let (a, b) = (f32::from_bits(old), f32::from_bits(update));
            let met = match self.op {
                ScatterOp::Add => a + b,
                ScatterOp::Multiply => a * b,
                _ => a.max(b),
            };
            return met.to_bits();
        }
        let (a, b) = (old.cast_signed(), update.cast_signed());
        let met = match self.op {
            ScatterOp::Add => a.wrapping_add(b),
            ScatterOp::Multiply => a.wrapping_mul(b),
            _ => a.max(b),
        };
        met.cast_unsigned()
    }
}

//! `ScatterNd` and `ScatterElements`: updates at places that an index tensor names, over a copy of the data.
//!
//! A place beyond the data's end is not written, as on Qualcomm's HTP: libGenie lets a step's padding lie behind the slots of a cache group. A
//! negative one is an error of the run.

use super::gather_elements::along_axis;
use super::gather_nd::slice_at;
use super::prelude::*;
use crate::graph::scalar::ScatterOp;
use crate::pool::Worker;
use crate::step::Dst;

const ND: OpSpec = OpSpec {
    name: "ScatterNd",
    inputs: (3, 3),
    outputs: (1, 1),
    params: &[opt("reduction", UInt)],
    same_in: 0b101,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] [INDEX] [ALL] => [ALL])],
    shapes: nd_shapes,
    lower: |l| {
        let op = reduction(l, ND_REDUCTIONS)?;
        lower(l, Op::ScatterNd(op))
    },
};
/// How many ways of meeting what is there each op documents, by `reduction` number.
const ND_REDUCTIONS: usize = 3;
const ELEMENTS_REDUCTIONS: usize = 4;

pub(super) const OPS: &[OpSpec] = &[
    ND,
    OpSpec {
        name: "ScatterElements",
        params: &[opt("axis", UInt), opt("reduction", UInt)],
        shapes: elements_shapes,
        lower: |l| {
            let (axis, op) = (axis(l)?, reduction(l, ELEMENTS_REDUCTIONS)?);
            lower(l, Op::ScatterElements { axis, op })
        },
        ..ND
    },
];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let axis = [("axis", Param::UInt(1))];
    vec![
        sample("ScatterNd", &[], &[(F, &[9, 4]), (I, &[2, 1]), (F, &[2, 4])], &[(F, &[9, 4])]),
        sample("ScatterElements", &axis, &[(F, &[2, 5]), (I, &[2, 1]), (F, &[2, 1])], &[(F, &[2, 5])]),
    ]
}

fn reduction(call: &Call<'_>, n: usize) -> Result<ScatterOp, Violation> {
    let all = [ScatterOp::Replace, ScatterOp::Add, ScatterOp::Multiply, ScatterOp::Max];
    let mode = call.uint("reduction", 0)?;
    match usize::try_from(mode).ok().and_then(|mode| all[..n].get(mode)) {
        Some(&op) => Ok(op),
        None => Err(call.bad_param("reduction", format!("0 to {}", n - 1), mode.to_string())),
    }
}

/// Updates at index rows of length k; the output has the data's extents.
fn nd_shapes(call: &Call<'_>) -> Shapes {
    let (data, index, updates) = (call.dims(0)?, call.dims(1)?, call.dims(2)?);
    reduction(call, ND_REDUCTIONS)?;
    let (&k, rows) = index.split_last().ok_or_else(|| call.bad_input(1, "rank 1 or more".into(), "rank 0".into()))?;
    if k as usize > data.len() {
        return Err(call.bad_input(1, format!("rows of at most {}", data.len()), format!("{index:?}")));
    }
    let want = [rows, &data[k as usize..]].concat();
    if updates != want {
        return Err(call.bad_input(2, format!("dims {want:?}"), format!("{updates:?}")));
    }
    common::same(call)
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len())
}

/// Updates element by element along an axis; the output has the data's extents.
fn elements_shapes(call: &Call<'_>) -> Shapes {
    let (data, index, updates) = (call.dims(0)?, call.dims(1)?, call.dims(2)?);
    axis(call)?;
    reduction(call, ELEMENTS_REDUCTIONS)?;
    let fits = index.len() == data.len() && index.iter().zip(data).all(|(i, d)| i <= d);
    if !fits {
        return Err(call.bad_input(1, format!("dims within {data:?}"), format!("{index:?}")));
    }
    if updates != index {
        return Err(call.bad_input(2, format!("dims {index:?} as the index"), format!("{updates:?}")));
    }
    common::same(call)
}

fn lower(l: &mut Lowering<'_, '_>, op: Op) -> Result<(), Violation> {
    let (data, index, updates) = (l.input(0)?, l.int(1)?, l.input(2)?);
    let storage = l.storage(data);
    let updates = l.as_storage(updates, storage);
    l.emit_as(op, &[data, index, updates], l.output(0), storage);
    Ok(())
}

pub(super) fn nd_step(b: &StepBuilder<'_>, node: &Node, op: ScatterOp) -> Result<Box<dyn Step>, ExecError> {
    let (shape, index) = (b.shape(b.input(node, 0)?), b.shape(b.input(node, 1)?));
    let depth = index.last().copied().unwrap_or(0);
    let (limits, inner) = (shape[..depth].to_vec(), shape[depth..].iter().product());
    step(b, node, op, Places::Slices { limits, inner })
}

pub(super) fn elements_step(
    b: &StepBuilder<'_>,
    node: &Node,
    axis: usize,
    op: ScatterOp,
) -> Result<Box<dyn Step>, ExecError> {
    let (shape, index_shape) = (b.shape(b.input(node, 0)?).to_vec(), b.shape(b.input(node, 1)?).to_vec());
    step(b, node, op, Places::Elements { shape, index_shape, axis })
}

fn step(b: &StepBuilder<'_>, node: &Node, op: ScatterOp, places: Places) -> Result<Box<dyn Step>, ExecError> {
    let &[data, index, updates] = node.inputs.as_slice() else { return Err(b.broken(node, "needs three inputs")) };
    let (real, dst) = (b.is_real(data), b.dst(b.output(node)?));
    let [data, index, updates] = [data, index, updates].map(|id| b.src(id));
    Ok(Box::new(Scatter { op, real, data, index, updates, places, dst }))
}

/// What an index entry names.
enum Places {
    /// An element: the entry replaces the place along one axis.
    Elements { shape: Vec<usize>, index_shape: Vec<usize>, axis: usize },
    /// A slice of `inner` elements: numbers for the leading axes.
    Slices { limits: Vec<usize>, inner: usize },
}

/// `out = data`, then each update in order. One thread does it: places may repeat.
struct Scatter {
    op: ScatterOp,
    real: bool,
    data: Src,
    index: Src,
    updates: Src,
    places: Places,
    dst: Dst,
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
                    if let Some(at) = within(along_axis(shape, index_shape, *axis, i, index))? {
                        out[at] = self.meet(out[at], update);
                    }
                }
            }
            Places::Slices { limits, inner } => {
                let depth = limits.len();
                for (i, update) in updates.chunks_exact((*inner).max(1)).enumerate() {
                    let Some(at) = within(slice_at(&index[i * depth..(i + 1) * depth], limits))? else { continue };
                    let at = at * inner;
                    for (out, &update) in out[at..at + inner].iter_mut().zip(update) {
                        *out = self.meet(*out, update);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A place, or `None` for one beyond the end.
pub(super) fn within(place: Result<usize, Fault>) -> Result<Option<usize>, Fault> {
    match place {
        Ok(at) => Ok(Some(at)),
        Err(Fault::Index { index, .. }) if index >= 0 => Ok(None),
        Err(fault) => Err(fault),
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

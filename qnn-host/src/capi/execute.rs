//! Runs a prepared graph on the client's buffers.
//!
//! A run allocates nothing here: the tables were made when the graph was prepared, the lists of buffers keep their capacity
//! between runs. Client buffers are checked one by one (id, element type, extents, size), every tensor of the graph
//! exactly once, and then against each other: an output that is the buffer of the input it updates is written in place, one
//! that shares bytes with an input otherwise is computed aside and copied when the run is over, two outputs that share
//! bytes are refused.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;
use crate::exec::{Executable, Profile as StepProfile};
use crate::ir::{Role, SourceGraph, TensorId};
use crate::pool::Pool;

use super::mem::Mem;
use super::objects::ContextShared;
use super::tiles::Tiles;
use super::trace;

/// A client's tensor, as far as a run needs it.
pub(super) struct ClientTensor<'a> {
    /// The client's id: index of the tensor plus one.
    pub(super) id: u32,
    /// QNN's number of the element type.
    pub(super) dtype: u32,
    pub(super) dims: &'a [u32],
    pub(super) buffer: Buffer,
}

/// Memory of the client: readable for inputs, writable for outputs, by the contract of `graphExecute`.
pub(super) use crate::step::ClientBuffer as Buffer;

/// The buffers of one run, by place in the graph's lists of inputs and outputs.
#[derive(Default)]
pub(super) struct Binding {
    inputs: Vec<Option<Buffer>>,
    outputs: Vec<Option<Buffer>>,
    /// Registered memory in use: kept mapped for the length of the run.
    pub(super) mems: Vec<Arc<Mem>>,
}

/// Where a tensor of the graph is handed over.
#[derive(Clone, Copy)]
enum Slot {
    Input(usize),
    Output(usize),
    /// Not the client's to give.
    Inner,
}

/// Lists that keep their capacity from run to run. The addresses in them are those of the last run.
#[derive(Default)]
struct RunScratch {
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    ranges: Vec<(usize, usize, usize)>,
    /// Outputs that are computed aside, by place in the list of outputs.
    aside: Vec<usize>,
    staging: Vec<Vec<u8>>,
    /// Whether an input is the buffer of the output that updates it, by place in the list of inputs.
    updated: Vec<bool>,
    /// Dense forms of the inputs that come in tiles, by place in the list of inputs.
    dense: Vec<Vec<u8>>,
}

/// A prepared graph with its tables.
pub(super) struct Runner {
    pub(super) ir: Arc<SourceGraph>,
    pub(super) updateable: Vec<TensorId>,
    /// How many packages were registered when it was prepared: they have accepted its nodes.
    pub(super) asked: usize,
    executable: Executable,
    pool: Arc<Pool>,
    slots: Vec<Slot>,
    inputs: Vec<TensorId>,
    outputs: Vec<TensorId>,
    /// The binding of calls that wait for their run; its lock makes them take turns.
    pub(super) binding: Mutex<Binding>,
    scratch: Mutex<RunScratch>,
}

impl Runner {
    pub(super) fn new(
        ir: Arc<SourceGraph>,
        executable: Executable,
        pool: Arc<Pool>,
        updateable: Vec<TensorId>,
        asked: usize,
    ) -> Self {
        let (inputs, outputs): (Vec<_>, Vec<_>) = (ir.inputs().collect(), ir.outputs().collect());
        let mut slots = vec![Slot::Inner; ir.tensors.len()];
        inputs.iter().enumerate().for_each(|(i, id)| slots[id.0 as usize] = Slot::Input(i));
        outputs.iter().enumerate().for_each(|(i, id)| slots[id.0 as usize] = Slot::Output(i));
        let scratch = RunScratch {
            inputs: Vec::with_capacity(inputs.len()),
            outputs: Vec::with_capacity(outputs.len()),
            ranges: Vec::with_capacity(inputs.len() + outputs.len()),
            aside: Vec::with_capacity(outputs.len()),
            staging: Vec::new(),
            updated: vec![false; inputs.len()],
            dense: vec![Vec::new(); inputs.len()],
        };
        Self {
            binding: Mutex::new(Binding {
                inputs: Vec::with_capacity(inputs.len()),
                outputs: Vec::with_capacity(outputs.len()),
                mems: Vec::new(),
            }),
            scratch: Mutex::new(scratch),
            ir,
            updateable,
            asked,
            executable,
            pool,
            slots,
            inputs,
            outputs,
        }
    }

    /// Makes a binding empty and ready for this graph.
    pub(super) fn start(&self, binding: &mut Binding) {
        binding.mems.clear();
        for (list, n) in [(&mut binding.inputs, self.inputs.len()), (&mut binding.outputs, self.outputs.len())] {
            list.clear();
            list.resize(n, None);
        }
    }

    /// Checks a client's tensor and puts it into its place.
    pub(super) fn bind(&self, binding: &mut Binding, given: &ClientTensor<'_>, as_input: bool) -> Result<(), Error> {
        let slot = given.id.checked_sub(1).and_then(|i| Some((i, *self.slots.get(i as usize)?)));
        let Some((index, slot)) = slot else {
            return Err(Error::NoSuchTensor { graph: self.ir.name.clone(), tensor: String::new(), id: given.id });
        };
        let tensor = &self.ir.tensors[index as usize];
        let refuse =
            |what: String| Err(Error::InvalidTensor { graph: self.ir.name.clone(), tensor: tensor.name.clone(), what });
        let place = match (slot, as_input) {
            (Slot::Input(i), true) => &mut binding.inputs[i],
            (Slot::Output(i), false) => &mut binding.outputs[i],
            (_, true) => return refuse("expected an input of the graph among the inputs".to_owned()),
            (_, false) => return refuse("expected an output of the graph among the outputs".to_owned()),
        };
        if place.is_some() {
            return refuse("expected it once, found it twice".to_owned());
        }
        if given.dtype != tensor.dtype as u32 {
            return refuse(format!("expected element type {:?}, found number {:#06x}", tensor.dtype, given.dtype));
        }
        if given.dims != tensor.dims {
            return refuse(format!("expected dims {:?}, found {:?}", tensor.dims, given.dims));
        }
        let bytes = Tiles::of(tensor).map_or_else(|| tensor.size_bytes(), |tiles| tiles.bytes());
        if given.buffer.start.is_null() {
            return refuse(format!("expected a buffer of {bytes} bytes, found null"));
        }
        if given.buffer.len < bytes {
            return refuse(format!("expected a buffer of {bytes} bytes, found {}", given.buffer.len));
        }
        *place = Some(Buffer { start: given.buffer.start, len: bytes });
        Ok(())
    }

    /// Runs once.
    ///
    /// # Safety
    /// The buffers must be valid for their lengths, inputs for reading and outputs for writing, and no other thread may
    /// write inputs or touch outputs until this returns: the contract of `graphExecute`.
    pub(super) unsafe fn run(
        &self,
        core: &ContextShared,
        binding: &Binding,
        profile: Option<&mut dyn StepProfile>,
    ) -> Result<(), Error> {
        self.complete(binding)?;
        let mut scratch = self.scratch.lock();
        let scratch = &mut *scratch;
        self.resolve_aliasing(scratch, binding)?;
        let RunScratch { inputs, outputs, aside, staging, dense, updated, .. } = scratch;
        inputs.clear();
        outputs.clear();
        for (i, buffer) in binding.inputs.iter().flatten().enumerate() {
            let tensor = self.ir.tensor(self.inputs[i]);
            let Some(tiles) = Tiles::of(tensor) else {
                inputs.push(*buffer);
                continue;
            };
            dense[i].resize(tensor.size_bytes(), 0);
            // SAFETY: `bind` checked the length, the caller promises validity, and nothing is written before the run.
            tiles.unpack(unsafe { std::slice::from_raw_parts(buffer.start.cast_const(), buffer.len) }, &mut dense[i]);
            inputs.push(Buffer::reading(&dense[i]));
        }
        for (i, buffer) in binding.outputs.iter().flatten().enumerate() {
            outputs.push(match aside.iter().position(|&o| o == i) {
                Some(k) => Buffer::writing(&mut staging[k]),
                None => *buffer,
            });
        }
        trace::note(|| {
            let in_place = updated.iter().filter(|&&u| u).count();
            format!("{} updated {in_place} in place, computed {} aside", self.ir.name, aside.len())
        });
        let mut arena = core.backend.arena.lock();
        // SAFETY: the caller's promise for the client's buffers. `resolve_aliasing` replaced each output that shares bytes with
        // an input by staging, except for the buffers of inputs that `Executable::updates` names beside it; it refused
        // outputs that share bytes. Staging and dense forms are of this scratch, which is locked.
        let done = unsafe { self.executable.run_at(&self.pool, &mut arena, inputs, outputs, profile) };
        done.map_err(|source| Error::Execute { graph: self.ir.name.clone(), source: Box::new(source) })?;
        for (k, &i) in aside.iter().enumerate() {
            let Some(buffer) = binding.outputs.get(i).copied().flatten() else { continue };
            if let Some(tiles) = Tiles::of(self.ir.tensor(self.outputs[i])) {
                // SAFETY: the client's output is writable for its length, and no reference to the run's buffers is left.
                tiles.pack(&staging[k], unsafe { std::slice::from_raw_parts_mut(buffer.start, buffer.len) });
                continue;
            }
            // SAFETY: the client's output is writable for its length, no reference to the run's buffers is left, and
            // staging is ours, so the two do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(staging[k].as_ptr(), buffer.start, buffer.len) };
        }
        Ok(())
    }

    /// Every tensor of the graph must have its buffer.
    fn complete(&self, binding: &Binding) -> Result<(), Error> {
        for (list, ids) in [(&binding.inputs, &self.inputs), (&binding.outputs, &self.outputs)] {
            if let Some((_, id)) = list.iter().zip(ids).find(|(b, _)| b.is_none()) {
                return Err(Error::InvalidTensor {
                    graph: self.ir.name.clone(),
                    tensor: self.ir.tensor(*id).name.clone(),
                    what: "expected a buffer for it, found none".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Finds the outputs that must be computed aside, and provides staging for them.
    fn resolve_aliasing(&self, scratch: &mut RunScratch, binding: &Binding) -> Result<(), Error> {
        const INPUT: usize = usize::MAX;
        scratch.ranges.clear();
        scratch.aside.clear();
        scratch.updated.fill(false);
        for &(input, output) in self.executable.updates() {
            let (Some(from), Some(to)) = (binding.inputs[input], binding.outputs[output]) else { continue };
            scratch.updated[input] |= from.start == to.start && from.len == to.len;
        }
        for (list, is_output) in [(&binding.inputs, false), (&binding.outputs, true)] {
            for (i, b) in list.iter().flatten().enumerate() {
                // The range of an updated input stands there once, as the output's.
                if !is_output && scratch.updated[i] {
                    continue;
                }
                let start = b.start.addr();
                scratch.ranges.push((start, start.saturating_add(b.len), if is_output { i } else { INPUT }));
            }
        }
        scratch.ranges.sort_unstable();
        let (mut in_end, mut out_end, mut out) = (0, 0, INPUT);
        for &(start, end, who) in &scratch.ranges {
            if who == INPUT {
                in_end = in_end.max(end);
                if start < out_end && !scratch.aside.contains(&out) {
                    scratch.aside.push(out);
                }
                continue;
            }
            if start < out_end {
                return Err(Error::InvalidTensor {
                    graph: self.ir.name.clone(),
                    tensor: self.ir.tensor(self.outputs[who]).name.clone(),
                    what: format!(
                        "expected bytes of its own, found them shared with output `{}`",
                        self.ir.tensor(self.outputs[out]).name
                    ),
                });
            }
            if start < in_end {
                scratch.aside.push(who);
            }
            (out_end, out) = (end, who);
        }
        for (i, id) in self.outputs.iter().enumerate() {
            if Tiles::of(self.ir.tensor(*id)).is_some() && !scratch.aside.contains(&i) {
                scratch.aside.push(i);
            }
        }
        for k in 0..scratch.aside.len() {
            let bytes = self.ir.tensor(self.outputs[scratch.aside[k]]).size_bytes();
            if scratch.staging.len() == k {
                scratch.staging.push(Vec::new());
            }
            scratch.staging[k].resize(bytes, 0);
        }
        Ok(())
    }

    /// Number of the client's inputs and outputs.
    pub(super) fn counts(&self) -> (usize, usize) {
        debug_assert!(self.ir.tensors.iter().filter(|t| matches!(t.role, Role::Input)).count() == self.inputs.len());
        (self.inputs.len(), self.outputs.len())
    }
}

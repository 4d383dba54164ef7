//! Memory of one run, as its steps see it: arena, constants, client buffers.
//!
//! *Invariants*, established by `build` and checked by `plan::check`: every [`Src`] and [`Dst`] lies inside the arena and
//! is aligned; what a step writes does not overlap what it reads; constants are aligned to their type. Client buffers
//! were measured by the executor before the run, and need no alignment. An output may be the very buffer of an input where
//! `Executable::updates` says so; then its step reads that input no more once it writes.

use std::marker::PhantomData;

use crate::bytes::Bytes;
use crate::ir::Dtype;
use crate::kernels::{Float, Floats, Isa, SharedMut};

use super::ClientBuffer;

/// Where an operand's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// At a byte offset of the arena.
    Arena(usize),
    /// In a constant.
    Const(Bytes),
    /// In a client's input buffer.
    Input(usize),
}

/// An operand to read: `n` elements stored as `dtype`.
#[derive(Clone, Debug)]
pub(crate) struct Src {
    pub(crate) place: Place,
    pub(crate) n: usize,
    pub(crate) dtype: Dtype,
}

/// An operand to write: `n` four-byte elements at a byte offset of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dst {
    pub(crate) offset: usize,
    pub(crate) n: usize,
}

/// Element types of the arena: four bytes, every pattern valid.
pub(crate) trait Lane32: Copy + Send + Sync + Default + 'static {
    /// The same memory as numbers.
    fn as_real(words: &mut [Self]) -> &mut [f32] {
        // SAFETY: every implementor has the size and alignment of `f32`, every pattern is valid for both; the borrow
        // moves along.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
    }
}

impl Lane32 for f32 {}
impl Lane32 for i32 {}
impl Lane32 for u32 {}

/// One run's memory.
pub(crate) struct RunContext<'r> {
    pub(crate) isa: Isa,
    base: *mut u8,
    arena_bytes: usize,
    scratch_at: usize,
    inputs: &'r [ClientBuffer],
    outputs: &'r [ClientBuffer],
    memory: PhantomData<&'r mut [u8]>,
}

// SAFETY: the pointers name memory that outlives the run; threads keep apart in it by the plan (arena) and by the shares
// that steps take of their outputs.
unsafe impl Sync for RunContext<'_> {}

/// The kernels' name of a float type.
pub(crate) fn float_of(dtype: Dtype) -> Float {
    match dtype {
        Dtype::F16 => Float::F16,
        Dtype::Bf16 => Float::Bf16,
        _ => Float::F32,
    }
}

impl<'r> RunContext<'r> {
    /// Views a run's memory. The first `scratch_at` bytes of the arena hold values, the rest is scratch.
    ///
    /// # Safety
    /// For `'r`, inputs are readable, and outputs are writable and reached by nothing else; they share no bytes, except that an
    /// output may be the buffer of the input it updates.
    pub(crate) unsafe fn new(
        isa: Isa,
        arena: &'r mut super::Arena,
        scratch_at: usize,
        inputs: &'r [ClientBuffer],
        outputs: &'r [ClientBuffer],
    ) -> Self {
        let (arena_bytes, base) = (arena.bytes(), arena.base());
        Self { isa, base, arena_bytes, scratch_at, inputs, outputs, memory: PhantomData }
    }

    /// The bytes of a client's input.
    pub(crate) fn input(&self, index: usize) -> &[u8] {
        let ClientBuffer { start, len } = self.inputs[index];
        // SAFETY: readable for the run, by the contract of `new`. If an output is this very buffer, only the step that updates
        // it writes, in a phase after all other readers, and that step does not come here.
        unsafe { std::slice::from_raw_parts(start.cast_const(), len) }
    }

    /// Where a client's input is.
    pub(crate) fn input_address(&self, index: usize) -> *const u8 {
        self.inputs[index].start.cast_const()
    }

    /// The bytes of an operand.
    pub(crate) fn bytes<'s>(&'s self, src: &'s Src) -> &'s [u8] {
        match &src.place {
            Place::Const(bytes) => bytes,
            Place::Input(index) => self.input(*index),
            Place::Arena(offset) => {
                let n = src.n * size_of::<u32>();
                assert!(offset + n <= self.arena_bytes, "{n} bytes at {offset} lie outside of the arena");
                // SAFETY: inside the arena (above), whose bytes are initialised; no step writes them during this one.
                unsafe { std::slice::from_raw_parts(self.base.add(*offset), n) }
            }
        }
    }

    /// An operand in the arena or an aligned constant, as numbers of four bytes.
    pub(crate) fn read<'s, T: Lane32>(&'s self, src: &'s Src) -> &'s [T] {
        let bytes = self.bytes(src);
        let start = bytes.as_ptr().cast::<T>();
        assert!(start.is_aligned() && src.dtype.size_bytes() == 4, "operand is no aligned array of four-byte numbers");
        // SAFETY: aligned (above), initialised, every pattern is valid for a `Lane32`; the length is that of the bytes.
        unsafe { std::slice::from_raw_parts(start, bytes.len() / size_of::<T>()) }
    }

    /// An operand of `float16`, `bfloat16` or `float32`, wherever it is.
    pub(crate) fn floats<'s>(&'s self, src: &'s Src) -> Floats<'s> {
        Floats::new(self.bytes(src), float_of(src.dtype))
    }

    /// An operand to write, shared between the threads.
    pub(crate) fn write<T: Lane32>(&self, dst: &Dst) -> SharedMut<'_, T> {
        let n = dst.n * size_of::<T>();
        assert!(dst.offset + n <= self.arena_bytes && dst.offset.is_multiple_of(align_of::<T>()), "bad plan: {dst:?}");
        // SAFETY: inside the arena and aligned (above); initialised; readers of these bytes are other steps.
        unsafe { SharedMut::from_raw(self.base.add(dst.offset).cast(), dst.n) }
    }

    /// A client's output buffer, shared between the threads.
    pub(crate) fn output(&self, index: usize) -> SharedMut<'_, u8> {
        let ClientBuffer { start, len } = self.outputs[index];
        // SAFETY: the client lent these bytes for `'r`; each output is written by one step only.
        unsafe { SharedMut::from_raw(start, len) }
    }

    /// Memory for the running step alone, shared between the threads: at least as much as its `scratch_bytes`, aligned to 64.
    pub(crate) fn scratch<T: Lane32>(&self) -> SharedMut<'_, T> {
        let n = (self.arena_bytes - self.scratch_at) / size_of::<T>();
        // SAFETY: the scratch part of the arena, which holds no value; aligned as the plan rounds its start to 64.
        unsafe { SharedMut::from_raw(self.base.add(self.scratch_at).cast(), n) }
    }
}

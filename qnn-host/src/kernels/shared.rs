//! A mutable slice that the threads of one run write in parts.
//!
//! *Invariant*: no element is written by one thread while another uses it; the `unsafe` callers keep it.

use std::marker::PhantomData;
use std::ops::Range;

/// Memory that several threads write at once, each its own part. Copies name the same memory.
///
/// Making one is safe; *using* it is not: who calls [`SharedMut::part`], or a kernel that takes a `SharedMut`, promises
/// that no element is written by one thread while another reads or writes it (a barrier lies in between).
pub struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a pointer and a length; every access goes through unsafe functions whose callers keep threads apart.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<T> Clone for SharedMut<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares a slice that nothing else can reach.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), memory: PhantomData }
    }

    /// Shares `len` elements at `start`.
    ///
    /// # Safety
    /// They are initialised, aligned, readable and writable for `'a`, and reached by other means only where the promise
    /// of [`SharedMut`] allows.
    pub unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        Self { start, len, memory: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element's address.
    pub fn ptr(&self) -> *mut T {
        self.start
    }

    /// The elements `range`, to write.
    ///
    /// # Safety
    /// No other thread uses them, and no other reference to them is alive, while this one is.
    ///
    /// # Panics
    /// When they do not lie inside.
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        // SAFETY: the range lies inside the memory that `new` or `from_raw` was given, and the caller promised that it is
        // not used otherwise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

//! From the client's pointers to slices, strings and references: the only place where they are trusted.
//!
//! What can be found out is (null, misaligned, absurd lengths); what cannot (dangling, too short) is the client's
//! promise, stated by QNN for every argument.

use std::ffi::{CStr, c_char};

use crate::error::{Component, Error};

/// Most entries of a list of configs; a longer one has lost its terminator.
const MAX_CONFIGS: usize = 4096;

fn misaligned(component: Component, what: &'static str) -> Error {
    Error::Argument { component, what: format!("expected `{what}` to be aligned for its type") }
}

/// Borrows what a pointer points at.
///
/// # Safety
/// A pointer that is neither null nor misaligned must point to a live `T` that is not written for `'a`.
pub(super) unsafe fn reference<'a, T>(p: *const T, component: Component, what: &'static str) -> Result<&'a T, Error> {
    if !p.is_null() && !p.is_aligned() {
        return Err(misaligned(component, what));
    }
    // SAFETY: the caller's promise; null gives `None`.
    unsafe { p.as_ref() }.ok_or(Error::Null { component, what })
}

/// Borrows `n` values; none may be given as null.
///
/// # Safety
/// A pointer that is neither null nor misaligned must point to `n` live `T` that is not written for `'a`.
pub(super) unsafe fn slice<'a, T>(
    p: *const T,
    n: usize,
    component: Component,
    what: &'static str,
) -> Result<&'a [T], Error> {
    if n == 0 {
        return Ok(&[]);
    }
    if p.is_null() {
        return Err(Error::Null { component, what });
    }
    if !p.is_aligned() {
        return Err(misaligned(component, what));
    }
    if n.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Error::Argument { component, what: format!("expected `{what}` of a possible size, found {n}") });
    }
    // SAFETY: not null, aligned, of a possible size; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(p, n) })
}

/// Borrows a string.
///
/// # Safety
/// A pointer that is not null must point to a NUL-terminated string that is not written for `'a`.
pub(super) unsafe fn text<'a>(p: *const c_char, component: Component, what: &'static str) -> Result<&'a str, Error> {
    if p.is_null() {
        return Err(Error::Null { component, what });
    }
    // SAFETY: not null; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(p) };
    text.to_str().map_err(|_| Error::Argument {
        component,
        what: format!("expected `{what}` in UTF-8, found `{}`", text.to_string_lossy()),
    })
}

/// Refuses a place that a result could not be written to: asked before something is made that would be left behind.
pub(super) fn place<T>(p: *mut T, component: Component, what: &'static str) -> Result<(), Error> {
    if p.is_null() {
        return Err(Error::Null { component, what });
    }
    if !p.is_aligned() {
        return Err(misaligned(component, what));
    }
    Ok(())
}

/// Writes a result.
///
/// # Safety
/// A pointer that is neither null nor misaligned must be valid for writing a `T`.
pub(super) unsafe fn write<T>(p: *mut T, value: T, component: Component, what: &'static str) -> Result<(), Error> {
    place(p, component, what)?;
    // SAFETY: not null, aligned; the rest is the caller's promise.
    unsafe { p.write(value) };
    Ok(())
}

/// The entries of a null-terminated list of pointers; null is the empty list.
///
/// # Safety
/// A list that is not null must be readable up to its null.
pub(super) unsafe fn pointers<T>(
    p: *const *const T,
    component: Component,
    what: &'static str,
) -> Result<Vec<*const T>, Error> {
    let mut all = Vec::new();
    if p.is_null() {
        return Ok(all);
    }
    while all.len() < MAX_CONFIGS {
        // SAFETY: the caller's promise: entries up to the null are there, and it was not met yet.
        let entry = unsafe { p.add(all.len()).read_unaligned() };
        if entry.is_null() {
            return Ok(all);
        }
        all.push(entry);
    }
    Err(Error::Argument { component, what: format!("expected `{what}` to end with a null pointer") })
}

/// Borrows what the entries of a null-terminated list point at; null is the empty list.
///
/// # Safety
/// A list that is not null must consist of pointers to live `T` up to its null, none written for `'a`.
pub(super) unsafe fn list<'a, T>(
    p: *const *const T,
    component: Component,
    what: &'static str,
) -> Result<Vec<&'a T>, Error> {
    // SAFETY: the caller's promise.
    let entries = unsafe { pointers(p, component, what) }?;
    // SAFETY: the caller's promise for each entry.
    entries.into_iter().map(|entry| unsafe { reference(entry, component, what) }).collect()
}

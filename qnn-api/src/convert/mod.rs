//! Converts between plain Rust values and the C structs.

mod config;
mod dtype;
mod quant;
mod tensor;

pub(crate) use config::ConfigList;
pub(crate) use quant::Ownership;
pub(crate) use tensor::{Role, Store, client_bytes, describe, raw_tensor};

use core::ffi::{CStr, c_char};
use std::ffi::CString;

use crate::error::{Error, Result};

/// A C string of the library as text; empty for null.
///
/// # Safety
/// Null, or a C string that lives for the call.
pub(crate) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A name as C takes it.
pub(crate) fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::Name { name: name.to_owned() })
}

/// A slice of the library's, given as pointer and length; empty when either is zero.
///
/// # Safety
/// `n` valid elements at `pointer`, or null; they outlive `'a`.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, n: u32) -> &'a [T] {
    if pointer.is_null() || n == 0 {
        return &[];
    }
    // SAFETY: not null, and the caller vouches for length and lifetime.
    unsafe { core::slice::from_raw_parts(pointer, n as usize) }
}

//! The QNN C ABI in Rust: types, function tables, error numbers, and stub tables.
//!
//! A backend overrides the slots it has and leaves the rest to the stub:
//!
//! ```
//! use qnn_sys::*;
//!
//! unsafe extern "C" fn version(out: *mut Qnn_ApiVersion_t) -> Qnn_ErrorHandle_t {
//!     // SAFETY: QNN's contract for this slot: `out` points at a writable version.
//!     unsafe { (*out).coreApiVersion.major = 2 };
//!     QNN_SUCCESS
//! }
//! let table = QnnInterfaceTable { backendGetApiVersion: Some(version), ..stub::interface() };
//! assert!(table.graphExecute.is_some());
//! ```
//!
//! # What is in here
//!
//! | module | what |
//! |---|---|
//! | [`generated`] | structs, unions, enums, constants, function types, both tables; from `abi/qnn-abi.json` by `cargo xtask codegen` |
//! | [`provider`] | what `QnnInterface_getProviders` hands out; versions |
//! | [`stub`] | tables whose every slot returns [`NOT_SUPPORTED`](stub::NOT_SUPPORTED) |
//! | [`error`] | from a number to its name, its component and what it usually means |
//! | [`bfloat16`] | an element type that is newer than the headers |
//! | [`cpu_op_package`] | what an op package for the CPU is given and gives back |
//! | [`host`] | what only the embedded backend knows: its number, a folder for weights |
//! | [`htp`] | the HTP device config, whose layout changed under the headers |
//!
//! # What it never does
//!
//! Call anything, own anything, decide anything.
//!
//! Features: `bindgen` has clang read the generated C header at build time, and an SDK's own headers where `QNN_SDK_ROOT`
//! names one; tests then compare the layouts with these.

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::identity_op,
    clippy::type_complexity,
    clippy::too_many_arguments
)] // C's spelling is the documentation's key; the vendor's manual explains it
#[rustfmt::skip]
pub mod generated;
pub mod bfloat16;
pub mod cpu_op_package;
pub mod error;
pub mod host;
pub mod htp;
mod not_supported;
pub mod provider;
pub mod stub;

/// A `Qnn_Scalar_t` of a datatype, by the member of its union that holds it. Bytes that the member does not have are zeros: a library may
/// read 32 bits of a narrower number.
///
/// ```
/// use qnn_sys::*;
///
/// let yes = scalar!(QNN_DATATYPE_BOOL_8, bool8Value, 1);
/// // SAFETY: all bytes of the union are set.
/// assert_eq!(unsafe { yes.anon0.uint64Value.to_le() }, 1);
/// ```
#[macro_export]
macro_rules! scalar {
    ($data_type:expr, $member:ident, $value:expr) => {{
        let mut anon0 = $crate::Qnn_Scalar_t_anon0::default();
        anon0.$member = $value;
        $crate::Qnn_Scalar_t { dataType: $data_type, anon0 }
    }};
}

#[cfg(test)]
mod tests;

pub use bfloat16::QNN_DATATYPE_BFLOAT_16;
pub use generated::constants::*;
pub use generated::functions::*;
pub use generated::tables::*;
pub use generated::types::*;
pub use provider::*;

/// What a successful call returns.
pub const QNN_SUCCESS: Qnn_ErrorHandle_t = 0;

//! Numbers of Genie's C interface by their names.

use serde::{Deserialize, Serialize};

/// Where a query or a piece of a reply stands in its sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(i32)]
pub enum Sentence {
    /// All of it.
    #[default]
    Complete = 0,
    /// Its first part.
    Begin = 1,
    /// A part in the middle.
    Continue = 2,
    /// Its last part.
    End = 3,
    /// Ends a sentence early.
    Abort = 4,
    /// The whole conversation again; the prefix that agrees with the cache is kept.
    Rewind = 5,
    /// Goes on after a pause.
    Resume = 6,
}

/// The name of a status, without its prefix.
pub fn code_name(code: i32) -> &'static str {
    match code {
        0 => "SUCCESS",
        1 => "WARNING_ABORTED",
        2 => "WARNING_BOUND_HANDLE",
        3 => "WARNING_PAUSED",
        4 => "WARNING_CONTEXT_EXCEEDED",
        -1 => "ERROR_GENERAL",
        -2 => "ERROR_INVALID_ARGUMENT",
        -3 => "ERROR_MEM_ALLOC",
        -4 => "ERROR_INVALID_CONFIG",
        -5 => "ERROR_INVALID_HANDLE",
        -6 => "ERROR_QUERY_FAILED",
        -7 => "ERROR_JSON_FORMAT",
        -8 => "ERROR_JSON_SCHEMA",
        -9 => "ERROR_JSON_VALUE",
        -10 => "ERROR_GENERATE_FAILED",
        -11 => "ERROR_GET_HANDLE_FAILED",
        -12 => "ERROR_APPLY_CONFIG_FAILED",
        -13 => "ERROR_SET_PARAMS_FAILED",
        -14 => "ERROR_BOUND_HANDLE",
        _ => "unknown status",
    }
}

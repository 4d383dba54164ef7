//! Qualcomm's own `libGenie.so` as the other party of a comparison.
//!
//! A [`Session`] says which library opens which config and what is asked of the dialog; [`Session::run`] plays it in a
//! process of its own (the program `libgenie`) and hands back tokens, codes, times, profile and log. [`Stage`] is a
//! folder in which another library stands where libGenie looks for `libQnnHtp.so`. [`Session::play_ours`] plays the
//! same session with our own dialog.
//!
//! *Why a process for each dialog*: the library leaves half of a 16-bit KV buffer as it came from the heap, so the heap
//! must be cleared (`MALLOC_PERTURB_`); after a dialog that met the context limit it may end the process.
//! *Source*: signatures and behaviour as measured on libGenie 1.21 (`docs/genie.md`).

mod child;
mod codes;
mod error;
mod ffi;
mod ours;
mod session;
mod stage;

pub use child::Run;
pub use codes::{Sentence, code_name};
pub use error::GenieError;
pub use ffi::{Dialog, Genie, LogLevel};
pub use ours::OurRun;
pub use session::{Act, Outcome, Player, Reply, Session};
pub use stage::Stage;

/// The library's file name.
pub const LIBRARY: &str = "libGenie.so";

fn tokens_of(replies: &[Reply]) -> Vec<&[u32]> {
    replies.iter().filter(|reply| !reply.tokens.is_empty()).map(|reply| &reply.tokens[..]).collect()
}

/// The real library on this machine.
///
/// # Panics
/// It is not there: the tests that ask for it can say nothing without it.
pub fn library() -> std::path::PathBuf {
    qnn_api::library::runtime::find(LIBRARY).expect("run `cargo xtask qnn-runtime`, or set QNN_RUNTIME_DIR")
}

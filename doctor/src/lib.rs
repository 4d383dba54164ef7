//! What will go wrong with a bundle on a device, told before anything is loaded there.
//!
//! ```
//! use doctor::{Case, Request, Surroundings, collect, examine};
//!
//! let case: Case = collect(&Request::default(), &Surroundings::here(), &[])?; // no bundle: the machine only
//! for finding in examine(&case) {
//!     println!("{finding}"); // what, where, why it matters, what to do
//! }
//! # Ok::<(), doctor::DoctorError>(())
//! ```
//!
//! # What is in here, in reading order
//!
//! | module | holds |
//! |---|---|
//! | [`case`] | plain data: all that is known of the machine, the device and the bundle |
//! | [`finding`] | [`Rule`]: an id with its reason and its cure; [`Finding`]: a rule broken somewhere |
//! | [`checks`] | the table of checks, one a file; pure, so each is tested without files |
//! | [`mod@collect`] | files, environment and libraries to a [`Case`] |
//! | [`report`] | a case and its findings as text or JSON |
//!
//! # What it never does
//!
//! Load a graph onto a backend, execute anything, write anything, or print.

#![forbid(unsafe_code)]

pub mod case;
pub mod checks;
pub mod collect;
mod error;
pub mod finding;
pub mod report;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use case::Case;
pub use checks::examine;
pub use collect::{Request, Surroundings, collect};
pub use error::DoctorError;
pub use finding::{Finding, Findings, Rule, Severity};
pub use report::Report;

//! Finds out from files alone what will go wrong with a bundle on a device, or with this machine's QNN libraries.
//!
//! ```
//! use doctor::{Environment, Facts, Request, collect, examine};
//!
//! let facts: Facts = collect(&Request::default(), &Environment::current(), &[])?; // no bundle: the machine only
//! for finding in examine(&facts) {
//!     println!("{finding}"); // where, what, why it matters, how to fix it
//! }
//! # Ok::<(), doctor::DoctorError>(())
//! ```
//!
//! # What is in here, in reading order
//!
//! | module | holds |
//! |---|---|
//! | [`facts`] | [`Facts`]: all that is known of the machine, the device and the bundle, as plain data |
//! | [`finding`] | [`Rule`]: an id with its reason and its fix; [`Finding`]: a broken rule, and where |
//! | [`fix`] | [`Fix`]: what to do about a finding; a program words it with its own flags |
//! | [`checks`] | all checks by subject; pure, so each is tested without files |
//! | [`mod@collect`] | reads files, environment and libraries into [`Facts`] |
//! | [`report`] | [`Report`]: facts and findings as text or JSON |
//!
//! # What it never does
//!
//! Load a graph onto a backend, execute anything, write anything, print, or name a program's flags.

#![forbid(unsafe_code)]

pub mod checks;
pub mod collect;
mod error;
pub mod facts;
pub mod finding;
pub mod fix;
pub mod report;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use checks::examine;
pub use collect::{Environment, Request, collect};
pub use error::DoctorError;
pub use facts::Facts;
pub use finding::{Finding, Findings, Rule, Severity};
pub use fix::Fix;
pub use report::Report;

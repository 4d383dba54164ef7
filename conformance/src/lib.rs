//! The harness of the conformance suite: backends by name, random bundles, one-op graphs with a double-precision reference.
//!
//! The suite itself is in `tests/`; each file says what it holds against what.
//!
//! ```
//! let backend = conformance::backends::linked();
//! let problem = &conformance::problems::all()[0];
//! let outputs = problem.run(&backend);
//! problem.check(&outputs).unwrap();
//! ```
#![forbid(unsafe_code)]

pub mod backends;
pub mod bundles;
pub mod problems;

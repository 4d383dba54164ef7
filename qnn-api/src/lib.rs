//! Safe handles over a QNN library, loaded or linked in.

pub mod error;

pub use error::{Error, QnnError, Result};

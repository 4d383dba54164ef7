//! Tidy, CI, code generation, the QNN runtime, cross-building and deployment.
#![forbid(unsafe_code)]

fn main() {}

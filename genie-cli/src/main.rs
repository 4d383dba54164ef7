//! genie: run, compile, inspect, plan and verify from the command line.
#![forbid(unsafe_code)]

fn main() {}

//! From tensor lists to meaning: graph kind, AR, CL, splits, cache groups, wiring.
#![forbid(unsafe_code)]

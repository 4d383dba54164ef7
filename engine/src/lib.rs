//! Plan, graphs and cache together: bundles in, logits out.
#![forbid(unsafe_code)]

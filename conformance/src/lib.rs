//! One suite of graphs and dialogs over several backends.
#![forbid(unsafe_code)]

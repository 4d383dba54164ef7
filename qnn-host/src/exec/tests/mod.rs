//! Whole graphs through preparation and execution.

mod llama;

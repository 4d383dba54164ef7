//! The engine over a toy model whose answers depend on every input: ids, mask, positions, cache and wires.

mod bundle;
mod overlap;
mod refuse;
mod run;
mod scheduling;
mod toy;

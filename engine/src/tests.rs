//! The engine over a toy model whose logits depend on every input: ids, mask, positions, cache and wires.

mod bundle;
mod overlap;
mod refuse;
mod run;
mod scheduling;
mod sequence_rows;
mod stop;
mod toy;

//! Whole tiny decoders on the emulator, prefilled and stepped over their own cache, against the model in double precision
//! and against the host.

use conformance::suite::{Emulator, Linked};

use crate::decoder_cases;

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_meets_the_whole_model_and_the_host() {
    decoder_cases::composed(&Linked::start(), Some(&Emulator::start()));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn compiled_bundles_meet_the_whole_model() {
    decoder_cases::compiled(Emulator::start().backend(), 1e-2);
}

//! Whole tiny decoders on the host, prefilled and stepped over their own cache, against the model in double precision.

#[path = "common/decoder_cases.rs"]
mod decoder_cases;

use conformance::backends;
use conformance::suite::Linked;

#[test]
fn the_host_meets_the_whole_model() {
    decoder_cases::composed(&Linked::start(), None);
}

#[test]
fn compiled_bundles_meet_the_whole_model() {
    decoder_cases::compiled(&backends::linked(), 1e-3);
}

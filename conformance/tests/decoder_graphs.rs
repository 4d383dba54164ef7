//! Whole tiny decoders on the host, prefilled and stepped over their own cache, against the model in double precision.

use conformance::backends;
use conformance::suite::Linked;

use crate::decoder_cases;

#[test]
fn the_host_meets_the_whole_model() {
    decoder_cases::composed(&Linked::start(), None);
}

#[test]
fn compiled_bundles_meet_the_whole_model() {
    decoder_cases::compiled(&backends::linked(), 1e-3);
}

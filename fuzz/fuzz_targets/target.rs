//! One target of `fuzz-targets`: the one that this program is named after.
#![no_main]

use std::sync::OnceLock;

use fuzz_targets::{Rng, Target, mutate};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| fuzz_targets::find(env!("CARGO_BIN_NAME")).expect("a program for each target"))
}

fuzz_target!(|data: &[u8]| (target().run)(data));

// Half of the inputs are changed as their form is, so that checksums fit and JSON stays JSON.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut rng = Rng::new(u64::from(seed));
    if rng.one_in(2) {
        return fuzzer_mutate(data, size, max_size);
    }
    let changed = mutate::mutate(target().form, &[data[..size].to_vec()], &mut rng);
    let len = changed.len().min(max_size).min(data.len());
    data[..len].copy_from_slice(&changed[..len]);
    len
});

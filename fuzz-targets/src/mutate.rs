//! Changes a seed: bytes of any file, values of JSON, fields behind a checksum.

mod bytes;
mod checksums;
mod json;

use crate::{Form, Rng};

/// A changed copy of one of the seeds. Without seeds, random bytes.
pub fn mutate(form: Form, seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = if seeds.is_empty() { Vec::new() } else { rng.pick(seeds).clone() };
    if form == Form::Json && !rng.one_in(4) {
        let changed = json::mutate(&input, rng);
        if changed != input && !rng.one_in(8) {
            return changed;
        }
        input = changed;
    }
    bytes::mutate(&mut input, seeds, rng);
    // A wrong checksum ends the reading of most files at once; now and then that is tried too.
    if !rng.one_in(8) {
        match form {
            Form::ContextBinary => checksums::context_binary(&mut input),
            Form::Snapshot => checksums::snapshot(&mut input),
            Form::Json | Form::Bytes => {}
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_input() {
        let seeds = vec![br#"{"a": [1, 2, {"b": "c"}], "d": null}"#.to_vec(), vec![7; 100]];
        for form in [Form::Bytes, Form::Json, Form::ContextBinary, Form::Snapshot] {
            let inputs = |seed| {
                let mut rng = Rng::new(seed);
                (0..200).map(|_| mutate(form, &seeds, &mut rng)).collect::<Vec<_>>()
            };
            assert_eq!(inputs(1), inputs(1));
            assert_ne!(inputs(1), inputs(2));
            assert!(inputs(3).iter().filter(|input| !seeds.contains(input)).count() > 150, "{form:?}");
        }
    }
}

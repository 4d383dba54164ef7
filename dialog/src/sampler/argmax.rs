//! The most likely token of a row of logits.
//!
//! A vocabulary has some 100,000 entries, and a step of many requests has a row for each, which one thread reads. So the loops below keep
//! the largest of each of a few places side by side, without a branch, which the compiler makes vectors of.

use genie_types::TokenId;

use super::SamplerError;

/// Numbers that are compared side by side: four registers of the least wide unit.
const LANES: usize = 16;
/// Numbers among which the largest is looked for one by one, at the end.
const BLOCK: usize = 64 * LANES;

/// The token with the largest logit; ties go to the lowest id, NaN is never the largest. Token 0 where no logit is above minus infinity.
pub fn most_likely(logits: &[f32]) -> TokenId {
    let (mut best, mut largest) = (0, f32::NEG_INFINITY);
    for (at, block) in logits.chunks(BLOCK).enumerate() {
        let of_block = largest_of(block);
        if of_block > largest {
            (best, largest) = (at, of_block);
        }
    }
    let first = best * BLOCK;
    let place = logits[first.min(logits.len())..].iter().position(|&logit| logit == largest);
    TokenId(place.filter(|_| largest > f32::NEG_INFINITY).map_or(0, |place| first + place) as u32)
}

/// As [`most_likely`]; refuses rows without a meaningful maximum.
pub(super) fn check(logits: &[f32]) -> Result<TokenId, SamplerError> {
    let n_vocab = logits.len();
    if !logits.iter().fold(true, |all, &logit| all & is_usable(logit)) {
        let mut bad = logits.iter().enumerate().filter(|&(_, &logit)| !is_usable(logit));
        if let Some((token, &value)) = bad.next() {
            return Err(SamplerError::NotFinite { token, value, n_bad: 1 + bad.count(), n_vocab });
        }
    }
    let token = most_likely(logits);
    match logits.get(token.0 as usize) {
        None => Err(SamplerError::Empty),
        Some(&f32::NEG_INFINITY) => Err(SamplerError::AllMasked { n_vocab }),
        Some(_) => Ok(token),
    }
}

/// Neither NaN nor infinity. Minus infinity rules an entry out.
pub(super) fn is_usable(logit: f32) -> bool {
    logit < f32::INFINITY
}

fn largest_of(block: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = block.as_chunks::<LANES>();
    for numbers in whole {
        for (lane, &number) in lanes.iter_mut().zip(numbers) {
            *lane = larger(*lane, number);
        }
    }
    lanes.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, larger)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One by one.
    fn plain(logits: &[f32]) -> usize {
        let larger = |best: (usize, f32), (id, &logit): (usize, &f32)| if logit > best.1 { (id, logit) } else { best };
        logits.iter().enumerate().fold((0, f32::NEG_INFINITY), larger).0
    }

    proptest! {
        #[test]
        fn is_the_first_of_the_largest(
            // Few values, so that many are alike.
            mut logits in prop::collection::vec((-3i8..3).prop_map(f32::from), 0..3 * BLOCK + 17),
            special in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![
                f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 3.5, -0.0,
            ])), 0..4),
        ) {
            let n = logits.len();
            for (at, value) in special.into_iter().filter(|_| n > 0) {
                logits[at.index(n)] = value;
            }
            prop_assert_eq!(most_likely(&logits).0 as usize, plain(&logits));
            let bad: Vec<usize> = (0..logits.len()).filter(|&i| logits[i].is_nan() || logits[i] == f32::INFINITY).collect();
            match (check(&logits), bad.first()) {
                (Err(SamplerError::NotFinite { token, n_bad, .. }), Some(&first)) => {
                    prop_assert_eq!((token, n_bad), (first, bad.len()));
                }
                (Ok(token), None) => prop_assert_eq!(token.0 as usize, plain(&logits)),
                (Err(SamplerError::Empty), None) => prop_assert!(logits.is_empty()),
                (Err(SamplerError::AllMasked { .. }), None) => {
                    prop_assert!(logits.iter().all(|&logit| logit == f32::NEG_INFINITY));
                }
                (found, first) => prop_assert!(false, "{found:?}, first bad {first:?}"),
            }
        }
    }
}

//! Changes of plain bytes.

use crate::Rng;

/// Most bytes that an input grows to.
const LARGEST: usize = 1 << 20;

/// Numbers at which readers err.
const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    32,
    127,
    128,
    255,
    256,
    4096,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0xFFFF_FFFF_FFFF_FFFF,
];

/// One to eight changes.
pub(super) fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    for _ in 0..1 + rng.below(8) {
        change(input, seeds, rng);
        input.truncate(LARGEST);
    }
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    if input.is_empty() {
        input.extend((0..rng.below(400)).map(|_| rng_byte(rng)));
        return;
    }
    // Descriptions stand at the front of most formats.
    let reach = if rng.one_in(2) { input.len().min(512) } else { input.len() };
    let at = rng.below(reach);
    match rng.below(10) {
        0 | 1 => input[at] ^= 1 << rng.below(8),
        2 => input[at] = rng_byte(rng),
        3 | 4 => number(input, at, rng),
        5 => {
            let end = (at + 1 + rng.below(32)).min(input.len());
            input.drain(at..end);
        }
        6 => {
            let end = (at + 1 + rng.below(64)).min(input.len());
            let copy = input[at..end].to_vec();
            let to = rng.below(input.len());
            input.splice(to..to, copy);
        }
        7 => {
            let new: Vec<u8> = (0..1 + rng.below(16)).map(|_| rng_byte(rng)).collect();
            input.splice(at..at, new);
        }
        8 => input.truncate(at),
        _ => {
            let Some(other) = seeds.get(rng.below(seeds.len())).filter(|other| !other.is_empty()) else { return };
            let from = rng.below(other.len());
            let end = (from + 1 + rng.below(256)).min(other.len());
            let to = (at + end - from).min(input.len());
            input.splice(at..to, other[from..end].iter().copied());
        }
    }
}

/// A number of 1, 2, 4 or 8 bytes, little-endian, often at a multiple of its size.
fn number(input: &mut [u8], at: usize, rng: &mut Rng) {
    let size = *rng.pick(&[1usize, 2, 4, 8]);
    let at = if rng.one_in(3) { at } else { at / size * size };
    let Some(place) = input.get_mut(at..at + size) else { return };
    let mut old = [0; 8];
    old[..size].copy_from_slice(place);
    let old = u64::from_le_bytes(old);
    let new = match rng.below(4) {
        0 => old.wrapping_add(1 + rng.below(16) as u64),
        1 => old.wrapping_sub(1 + rng.below(16) as u64),
        2 => old ^ 1 << rng.below(8 * size),
        _ => *rng.pick(&NUMBERS),
    };
    place.copy_from_slice(&new.to_le_bytes()[..size]);
}

fn rng_byte(rng: &mut Rng) -> u8 {
    (rng.bits() >> 11) as u8
}

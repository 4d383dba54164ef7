//! What a product does to the thread that runs it. Where the unit is not there, or not asked for, each test says so and ends.

use super::super::matrix::{Product, TILE_BYTES, TILE_K};
use super::length::of_this_thread;
use super::{Sme, TILE_ROWS, mode};

fn unit() -> Option<Sme> {
    let unit = Sme::detect();
    if unit.is_none() {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{test}: this CPU has no SME of 512 bits, or GENIE_SME=1 is not set: nothing is tested");
    }
    unit
}

/// A tile of `[16 pairs][16][2]` bf16, and its number for a row or column `i` and `k`.
fn tile(number: impl Fn(usize, usize) -> f32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TILE_BYTES);
    for (pair, i, half) in (0..TILE_BYTES / 2).map(|at| (at / 32, at / 2 % 16, at % 2)) {
        bytes.extend(half::bf16::from_f32(number(i, 2 * pair + half)).to_ne_bytes());
    }
    bytes
}

#[test]
fn sums_are_exact_for_small_numbers_and_the_thread_is_as_before() {
    let Some(unit) = unit() else { return };
    let before = of_this_thread();
    let numbers = [
        |i: usize, k: usize| (i + 3 * k) as f32 % 11.0 - 5.0,
        |i: usize, k: usize| (2 * i + k) as f32 % 7.0 - 3.0,
        |i: usize, k: usize| (5 * i + k) as f32 % 13.0 - 6.0,
        |i: usize, k: usize| (i + 7 * k) as f32 % 9.0 - 4.0,
    ];
    let [acts, weights] = [[0, 1], [2, 3]].map(|two| two.map(|which: usize| tile(numbers[which])).concat());
    for (panels, groups) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let mut sums = [[1.0f32; TILE_BYTES / 4]; 4];
        let kept = std::hint::black_box([1.5f64; 8]);
        let tiles = unit.tiles();
        for add in [true, false] {
            let mut at = sums.iter_mut().map(|sums| sums.as_mut_ptr());
            let product = Product {
                acts: acts.as_ptr(),
                weights: weights.as_ptr(),
                steps: 1,
                sums: std::array::from_fn(|_| at.next().expect("four")),
                stride: 4 * TILE_ROWS,
                next_sums: acts.as_ptr().cast(),
                next_acts: acts.as_ptr().cast(),
                add,
            };
            // SAFETY: two tiles each, and four of sums.
            unsafe { tiles.multiply(panels, groups, product) };
            assert_eq!(mode(), 0, "streaming mode and ZA are off");
            for (tile, sums) in sums.iter().enumerate() {
                let (panel, group) = (tile / 2, tile % 2);
                let computed = panel < panels && group < groups;
                for (at, &sum) in sums.iter().enumerate() {
                    let terms = (0..TILE_K).map(|k| numbers[panel](at / 16, k) * numbers[2 + group](at % 16, k));
                    let expected = if computed { terms.sum::<f32>() + if add { 1.0 } else { 0.0 } } else { 1.0 };
                    assert_eq!(sum, expected, "{panels} {groups} {add}: tile {tile}, [{at}]");
                }
            }
        }
        drop(tiles);
        assert_eq!(of_this_thread(), before, "the vector length is as before");
        assert_eq!(kept, [1.5; 8]);
    }
}

#[test]
fn rounds_are_counted() {
    let Some(unit) = unit() else { return };
    let tiles = unit.tiles();
    assert_eq!(tiles.rounds(3), 3 * tiles.rounds(1));
}

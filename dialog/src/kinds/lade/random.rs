//! The numbers that libGenie fills its window with: those of C's `rand()` in glibc, which it never seeds.
//!
//! *Recurrence*: `r[i] = r[i-31] + r[i-3]` modulo 2^32, given out without the lowest bit; the first 31 come from the minimal
//! standard generator (16807 modulo 2^31 - 1) with seed 1, and 310 are discarded.
//! *Source*: the behaviour of glibc's additive feedback generator; its first numbers are in the test.

/// The state: the last 31 words.
#[derive(Clone, Debug)]
pub(super) struct Random {
    words: [u32; 31],
    next: usize,
}

impl Random {
    /// As a program that never calls `srand`.
    pub(super) fn new() -> Self {
        let mut words = [0_u32; 31];
        let mut x = 1_u64;
        for word in &mut words {
            *word = x as u32; // below 2^31
            x = x * 16_807 % 0x7fff_ffff;
        }
        let mut random = Self { words, next: 3 };
        (0..310).for_each(|_| {
            random.number();
        });
        random
    }

    /// The next number, below 2^31.
    pub(super) fn number(&mut self) -> usize {
        let at = self.next;
        let sum = self.words[at].wrapping_add(self.words[(at + 28) % 31]);
        self.words[at] = sum;
        self.next = (at + 1) % 31;
        (sum >> 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_an_unseeded_program() {
        let mut random = Random::new();
        let first: Vec<usize> = (0..8).map(|_| random.number()).collect();
        assert_eq!(
            first,
            [
                1_804_289_383,
                846_930_886,
                1_681_692_777,
                1_714_636_915,
                1_957_747_793,
                424_238_335,
                719_885_386,
                1_649_760_492
            ]
        );
    }
}

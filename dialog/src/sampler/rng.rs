//! mt19937 as the C++ standard fixes it, with its state in the open.
//!
//! Kept here and not taken from a crate because a saved dialog holds the raw state: the last 624 untempered words,
//! oldest first, which is what a C++ stream writes for the engine. Checked against the `rand_mt` crate in the tests.
//!
//! *Source*: the C++ standard's parameters of `std::mt19937`; the draw is `generate_canonical<double, 53>` as measured.

const N: usize = 624;
const M: usize = 397;

/// Why a saved random state was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RngStateError {
    /// Not a decimal number of 32 bits.
    #[error("word {index} of the random state is `{found}`, expected a decimal number below 2^32")]
    BadWord {
        /// Position, from 0.
        index: usize,
        /// The text there.
        found: String,
    },
    /// Too few or too many.
    #[error("the random state has {found} words, expected {N}")]
    WrongLength {
        /// Words found.
        found: usize,
    },
}

/// A Mersenne twister.
///
/// *Invariant*: `words` is a ring; `words[next..]` then `words[..next]` are the last 624 untempered words, oldest first.
#[derive(Clone, PartialEq, Eq)]
pub struct Mt19937 {
    words: Box<[u32; N]>,
    next: usize,
}

impl std::fmt::Debug for Mt19937 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mt19937").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Mt19937 {
    /// Seeded as `std::mt19937(seed)`.
    pub fn new(seed: u32) -> Self {
        let mut words = Box::new([0_u32; N]);
        let mut x = seed;
        for (i, word) in words.iter_mut().enumerate() {
            if i > 0 {
                x = 1_812_433_253_u32.wrapping_mul(x ^ (x >> 30)).wrapping_add(i as u32);
            }
            *word = x;
        }
        Self { words, next: 0 }
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        let w = &mut self.words;
        let i = self.next;
        let (after, far) = ((i + 1) % N, (i + M) % N);
        let y = (w[i] & 0x8000_0000) | (w[after] & 0x7fff_ffff);
        let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
        w[i] = w[far] ^ (y >> 1) ^ twist;
        let mut z = w[i];
        self.next = after;
        z ^= z >> 11;
        z ^= (z << 7) & 0x9d2c_5680;
        z ^= (z << 15) & 0xefc6_0000;
        z ^ (z >> 18)
    }

    /// A number in `[0, 1]` from two words: `(r1 + r2 * 2^32) / 2^64`, in double as the C++ library does.
    ///
    /// *Trap*: rounding can give exactly 1; whoever inverts a CDF with it must fall back to the last item.
    pub fn next_unit(&mut self) -> f64 {
        let low = f64::from(self.next_u32());
        let high = f64::from(self.next_u32());
        (low + high * 4_294_967_296.0) / 18_446_744_073_709_551_616.0
    }

    /// 624 decimal words separated by spaces, oldest first.
    pub fn to_text(&self) -> String {
        let (newer, older) = self.words.split_at(self.next);
        let words: Vec<String> = older.iter().chain(newer).map(u32::to_string).collect();
        words.join(" ")
    }

    /// Reads what [`Mt19937::to_text`] writes.
    ///
    /// # Errors
    /// Not exactly 624 decimal words of 32 bits.
    pub fn from_text(text: &str) -> Result<Self, RngStateError> {
        let mut words = Box::new([0_u32; N]);
        let mut found = 0;
        for (index, word) in text.split_ascii_whitespace().enumerate() {
            let value =
                word.parse().map_err(|_| RngStateError::BadWord { index, found: word.chars().take(20).collect() })?;
            if let Some(slot) = words.get_mut(index) {
                *slot = value;
            }
            found += 1;
        }
        if found != N {
            return Err(RngStateError::WrongLength { found });
        }
        Ok(Self { words, next: 0 })
    }
}

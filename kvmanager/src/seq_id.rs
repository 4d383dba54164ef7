//! The number of a sequence.

/// A sequence, 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u8);

impl SeqId {
    /// Sequences a table can distinguish.
    pub const COUNT: usize = 64;

    /// The bit of this sequence among those of a cell.
    pub const fn bit(self) -> u64 {
        1 << (self.0 % 64)
    }
}

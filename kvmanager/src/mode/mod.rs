//! Modes: where the bytes of a row lie, and what has to move when rows come, go or the shape changes.
//!
//! The cache's meaning is the same under all of them; [`KvManager`](crate::KvManager) asks the mode only the questions
//! of [`CacheMode`] and moves bytes itself.

mod smart_mask;

pub use smart_mask::SmartMask;

use crate::geometry::KvTensor;

/// The modes by name, as Genie numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModeKind {
    /// Rows at fixed addresses from the left; the mask hides the rest. An append copies the new columns.
    #[default]
    SmartMask,
}

/// Where the rows of a tensor lie in its buffer.
///
/// Row `r` of line `l` begins at `(lead + l * stride + first + r) * unit_bytes`:
///
/// ```text
///           first        first + n_rows    stride
///   line 0  |...........|r0 r1 .. r(n-1)|........|
///   line 1  |...........|r0 r1 .. r(n-1)|........|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Units before line 0.
    pub lead: usize,
    /// Units from a line to the next.
    pub stride: usize,
    /// Column of row 0 within a line.
    pub first: usize,
}

impl Place {
    /// Unit at which a row of a line begins.
    pub const fn unit(&self, line: usize, row: usize) -> usize {
        self.lead + line * self.stride + self.first + row
    }
}

/// What a mode has to answer. Implementations hold no state: all follows from the number of rows and the past length.
pub trait CacheMode: Send + Sync + std::fmt::Debug {
    /// Which mode this is.
    fn kind(&self) -> ModeKind;

    /// The name used on command lines and in messages.
    fn name(&self) -> &'static str;

    /// Units a buffer needs so that pasts of up to `past_len` rows fit, whatever the number of valid rows.
    fn buffer_units(&self, tensor: &KvTensor, past_len: usize) -> usize;

    /// Where `n_rows` rows lie when the graph's past input is `past_len` long.
    fn place(&self, past_len: usize, n_rows: usize) -> Place;

    /// Unit at which the graph's past input begins.
    fn view_unit(&self, past_len: usize, n_rows: usize) -> usize;

    /// Mask column of row 0 in a past of that length.
    fn past_idx(&self, past_len: usize, n_rows: usize) -> usize;
}

impl ModeKind {
    /// The mode itself.
    pub fn mode(self) -> &'static dyn CacheMode {
        match self {
            Self::SmartMask => &SmartMask,
        }
    }
}

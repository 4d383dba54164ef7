//! Modes: where the bytes of a row lie, and what has to move when rows come, go or the shape changes.
//!
//! The cache's meaning is the same under all of them; [`KvCache`](crate::KvCache) asks the mode only the questions
//! of [`CacheMode`] and moves bytes itself.
//!
//! | mode | past input | an append costs | graph's address |
//! |---|---|---|---|
//! | [`SmartMask`] | rows from the left | copy of the new columns | fixed |
//! | [`ShiftConcat`] | rows at the right end | move of the whole past, then the new columns | fixed |
//! | [`PointerShift`] | rows at the right end of a window that slides | keys: the new columns; values of one head: nothing | moves |
//! | [`NativeKv`] | rows from the left, in hardware tiles | copy into tiles | fixed |

mod native_kv;
mod pointer_shift;
mod shift_concat;
mod smart_mask;

pub use native_kv::{NativeKv, Tile};
pub use pointer_shift::PointerShift;
pub use shift_concat::ShiftConcat;
pub use smart_mask::SmartMask;

use crate::error::Reason;
use crate::geometry::KvTensor;
use genie_types::DataFormat;

/// A mode, as a value. Genie numbers them: `ShiftConcat` 1, `SmartMask` 2, `NativeKv` 3, `PointerShift` 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each is documented at its type
pub enum ModeKind {
    SmartMask(SmartMask),
    ShiftConcat(ShiftConcat),
    PointerShift(PointerShift),
    NativeKv(NativeKv),
}

impl Default for ModeKind {
    fn default() -> Self {
        Self::SMART_MASK
    }
}

impl ModeKind {
    /// Rows at fixed addresses from the left; the mask hides the rest. The default.
    pub const SMART_MASK: Self = Self::SmartMask(SmartMask);
    /// Rows at the right end, moved left by each append.
    pub const SHIFT_CONCAT: Self = Self::ShiftConcat(ShiftConcat);
    /// Rows at the right end of a window that slides over a longer buffer.
    pub const POINTER_SHIFT: Self = Self::PointerShift(PointerShift);
    /// Rows in tiles of the Hexagon matrix unit.
    pub const NATIVE_KV: Self = Self::NativeKv(NativeKv::HMX);
    /// All four.
    pub const ALL: [Self; 4] = [Self::SMART_MASK, Self::SHIFT_CONCAT, Self::POINTER_SHIFT, Self::NATIVE_KV];

    /// The mode that a bundle's cache tensors ask for, as libGenie chooses: tiles when in- and outputs carry the
    /// tile format, else `SmartMask`.
    pub fn for_formats(formats: impl IntoIterator<Item = DataFormat>) -> Self {
        let mut formats = formats.into_iter().peekable();
        let tiles = formats.peek().is_some() && formats.all(|f| f == DataFormat::HmxWeight);
        if tiles { Self::NATIVE_KV } else { Self::SMART_MASK }
    }

    /// The mode of that name (`smart-mask`, `shift-concat`, `pointer-shift`, `native-kv`).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The name used on command lines and in messages.
    pub fn name(&self) -> &'static str {
        self.mode().name()
    }

    /// The mode's implementation.
    pub fn mode(&self) -> &dyn CacheMode {
        match self {
            Self::SmartMask(mode) => mode,
            Self::ShiftConcat(mode) => mode,
            Self::PointerShift(mode) => mode,
            Self::NativeKv(mode) => mode,
        }
    }
}

/// Where the rows of a tensor lie in its buffer.
///
/// Without tiles, row `r` of line `l` begins at unit `lead + l * stride + first + r`:
///
/// ```text
///    lead      first        first + extent    stride
///   |....|line 0 ..|r0 r1 .. r(n-1)|........|
///        |line 1 ..|r0 r1 .. r(n-1)|........|
/// ```
///
/// With tiles, `stride` is the padded length of the sequence; see [`Tile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Units before line 0.
    pub lead: usize,
    /// Units from a line to the next.
    pub stride: usize,
    /// Column of row 0 within a line.
    pub first: usize,
    /// The tile layout, if there is one.
    pub tile: Option<Tile>,
}

impl RowLayout {
    /// Rows from column 0 in dense lines: also the layout-neutral form of snapshots.
    pub const fn dense(stride: usize) -> Self {
        Self { lead: 0, stride, first: 0, tile: None }
    }

    /// The same with a smaller lead where `n_lines` lines would not fit into a buffer of `units`: a past wider than any
    /// graph's, that no graph will see before it is narrow again, gives up its lead first.
    #[must_use]
    pub fn fit(self, n_lines: usize, units: usize) -> Self {
        Self { lead: self.lead.min(units.saturating_sub(n_lines * self.stride)), ..self }
    }

    /// Unit at which a row of a line begins (without tiles).
    pub const fn unit(&self, line: usize, row: usize) -> usize {
        self.lead + line * self.stride + self.first + row
    }

    /// Element of a row, in any layout.
    pub fn element(&self, tensor: &KvTensor, head: usize, dim: usize, row: usize) -> usize {
        match self.tile {
            Some(tile) => tile.element(tensor, self.stride, head, dim, row),
            None => {
                let (line, unit_elems, within) = tensor.line_of(head, dim);
                self.unit(line, row) * unit_elems + within
            }
        }
    }
}

/// What a mode decides. Implementations hold no state: all follows from the extent (one past the last row in
/// use) and the length of the graph's past input.
pub trait CacheMode: Send + Sync + std::fmt::Debug {
    /// The name used on command lines and in messages.
    fn name(&self) -> &'static str;

    /// Columns that an input of `n` rows has in memory.
    fn padded(&self, n: usize) -> usize {
        n
    }

    /// Units a past buffer needs for pasts of up to `past_len` rows and steps of up to `ar` tokens.
    fn buffer_units(&self, tensor: &KvTensor, past_len: usize, ar: usize) -> usize;

    /// Where the rows `0..extent` lie when the graph's past input is `past_len` long.
    fn place(&self, past_len: usize, extent: usize) -> RowLayout;

    /// Where the rows of a step's output lie.
    fn new_place(&self, ar: usize) -> RowLayout {
        RowLayout::dense(ar)
    }

    /// Whether rows stay where they are, in lines without tiles, however many there are: an append is then one copy.
    fn rows_stay(&self) -> bool {
        false
    }

    /// Unit at which the graph's past input begins.
    fn view_unit(&self, _past_len: usize, _extent: usize) -> usize {
        0
    }

    /// Mask column of row 0 in a concat past of that length.
    fn past_idx(&self, _past_len: usize, _extent: usize) -> usize {
        0
    }

    /// Whether the graph writes this tensor's new rows right behind the rows there are, so that nothing is copied.
    fn writes_in_place(&self, _tensor: &KvTensor) -> bool {
        false
    }

    /// Why a tensor cannot be kept this way, if so.
    ///
    /// # Errors
    /// The reason.
    fn check(&self, _tensor: &KvTensor) -> Result<(), Reason> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_found_by_name_and_by_format() {
        for mode in ModeKind::ALL {
            assert_eq!(ModeKind::from_name(mode.name()), Some(mode));
        }
        assert_eq!(ModeKind::from_name("smartmask"), None);
        assert_eq!(ModeKind::for_formats([DataFormat::HmxWeight; 2]), ModeKind::NATIVE_KV);
        assert_eq!(ModeKind::for_formats([DataFormat::HmxWeight, DataFormat::Flat]), ModeKind::SMART_MASK);
        assert_eq!(ModeKind::for_formats([]), ModeKind::SMART_MASK);
    }
}

//! What matrix units have in common: tiles of 16 x 16 sums along 32 numbers of bf16, and the operands of a product of them.
//!
//! Weights are `[16 pairs of k][16 outputs][2]` on every unit. Rows of activations are laid out as the unit loads them; either way a
//! tile is 1,024 bytes.

/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = 1024;
/// Rows of activations, and outputs, of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Numbers along `k` of a tile.
pub(crate) const TILE_K: usize = 32;
/// Cache lines of [`Product::next_sums`] that are asked for in a step along `k`.
pub(super) const ASKED_LINES: usize = 4;
/// Cache lines of [`Product::next_acts`] that are asked for in a step along `k`, for the second-level cache.
pub(crate) const ASKED_ACTS: usize = 3;

/// What a unit's `multiply` works on.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    /// Two panels of activations: a tile of each for each step along `k`.
    pub(crate) acts: *const u8,
    /// Two groups of weights: a tile of each for each step along `k`.
    pub(crate) weights: *const u8,
    /// Tiles along `k`, at least one.
    pub(crate) steps: usize,
    /// Four tiles of sums: two groups of the first panel, then of the second.
    pub(crate) sums: [*mut f32; 4],
    /// Bytes from row to row of a tile of sums.
    pub(crate) stride: usize,
    /// Sums that will be worked on next: asked for meanwhile, [`ASKED_LINES`] lines for each step along `k`.
    pub(crate) next_sums: *const f32,
    /// Activations that will be worked on later, which AMX asks for meanwhile: [`ASKED_ACTS`] lines for each step along `k`.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(crate) next_acts: *const u8,
    /// Whether sums begin with what is there, or with 0.
    pub(crate) add: bool,
}

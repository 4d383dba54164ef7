//! The matrix units of x86: AMX, or products of bf16 on AVX-512 vectors. Their operands are the same.

use super::amx::{self, Amx};
use super::avx512::Avx512;
use super::avx512_bf16::Avx512Bf16;
use super::matrix::Product;

/// One of them; holding it is proof that it may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Matrix {
    Amx(Amx),
    Avx512Bf16(Avx512Bf16),
}

/// A unit that is ready on this thread.
pub(crate) enum Tiles {
    Amx(amx::Tiles),
    Avx512Bf16(Avx512Bf16),
}

impl Matrix {
    /// A short name for logs and test messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amx(_) => Amx::NAME,
            Self::Avx512Bf16(_) => Avx512Bf16::NAME,
        }
    }

    /// Whether it computes layers of weights in blocks, and attention: not where products of bytes are faster.
    pub(crate) fn takes_blocks(self) -> bool {
        match self {
            Self::Amx(_) => true,
            Self::Avx512Bf16(unit) => unit.takes_blocks(),
        }
    }

    /// The vector unit beside it.
    pub(crate) fn float(self) -> Avx512 {
        // A matrix unit is only looked for where that one was found.
        Avx512(())
    }

    /// Makes the unit ready on this thread.
    pub(crate) fn tiles(self) -> Tiles {
        match self {
            Self::Amx(amx) => Tiles::Amx(amx.tiles()),
            Self::Avx512Bf16(unit) => Tiles::Avx512Bf16(unit),
        }
    }
}

impl Tiles {
    /// The vector unit beside it.
    pub(crate) fn float(&self) -> Avx512 {
        // As above.
        Avx512(())
    }

    /// Adds up the products of the first `panels` (1 or 2) panels of activations with the first `groups` (1 or 2) groups of weights.
    ///
    /// # Safety
    /// All operands are readable, sums writable, as [`Product`] describes them.
    #[inline]
    pub(crate) unsafe fn multiply(&self, panels: usize, groups: usize, p: Product) {
        debug_assert!(p.steps > 0);
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Amx(tiles) => tiles.multiply(panels, groups, p),
                Self::Avx512Bf16(unit) => unit.multiply(panels, groups, p),
            }
        }
    }
}

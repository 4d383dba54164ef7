//! Opening blocks of weights of which four bits each lie in pairs of quads: the lower of 5, or all of 4, be they a value or the number of a
//! level or float.

use super::super::super::block_values::{NIBBLES, table_of};
use super::super::super::packed::Bits;
use super::super::super::simd::dot::Dot;
use super::tiled::Form;
use super::written_out::written_out;

/// Opens the block at `from`.
///
/// # Safety
/// It is readable; [`super::tiled::OPEN_BYTES`] are writable at `to`.
#[inline(always)]
pub(super) unsafe fn open_block<D: Dot>(d: D, form: impl Form<D>, bits: Bits, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; blocks of 5 bits have the fifth behind the other four.
    unsafe {
        let fifth = d.load(if has_fifth(bits) { from.add(NIBBLES) } else { from });
        written_out!(I in [0 2] {
            let (a, b) = (d.load(from.add(64 * I)), d.load(from.add(64 * (I + 1))));
            let low = (quad::<D, I>(d, bits, d.low(a), fifth), quad::<D, { I + 1 }>(d, bits, d.low(b), fifth));
            let high = (quad::<D, { I + 4 }>(d, bits, d.high(a), fifth), quad::<D, { I + 5 }>(d, bits, d.high(b), fifth));
            form.keep(d, to.add(64 * I), low.0, low.1);
            form.keep(d, to.add(64 * (I + 4)), high.0, high.1);
        });
    }
}

const fn has_fifth(bits: Bits) -> bool {
    matches!(bits, Bits::Five | Bits::UFive)
}

/// The weights of quad `QUAD`, from their four bits and, of 5 bits, the fifth ones of their block. A function, as a closure may not be inlined,
/// nor what it calls.
#[inline(always)]
fn quad<D: Dot, const QUAD: usize>(d: D, bits: Bits, four: D::Weights, fifth: D::Weights) -> D::Weights {
    match bits {
        Bits::Five | Bits::UFive => d.five(four, fifth, QUAD as u32),
        Bits::Nonlinear | Bits::Levels | Bits::FloatFour => d.levels(four, table_of(bits)),
        _ => four,
    }
}

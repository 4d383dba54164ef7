//! Operand types that the matrix products share, and the product itself.

use crate::suite::Bound;
use crate::suite::codec::{F16, F32, Fit, S8, S16, Ty, U8, U16};
use crate::suite::values::Values;

/// Activation and weight types, by the axis of the weights' outputs. Activation and output have one type.
pub(super) fn pairs(axis: u32) -> Vec<(Ty, Ty)> {
    vec![
        (F16, F16),
        (F32, F32),
        (F16, Ty::s8_by(axis)),
        (U16, Ty::s8_by(axis)),
        (U16, S8),
        (U16, U8.with(Fit::Centred)),
        (U16, Ty::s4_by(axis)),
        (U8, Ty::s8_by(axis)),
        (U8, U8.with(Fit::Centred)),
        (S16, Ty::s8_by(axis)),
    ]
}

/// What 4-bit weights cost on the emulator; 2 codes for the others.
pub(super) fn htp_bound(weights: &Ty, usual: Bound) -> Bound {
    if matches!(weights.fit, Fit::Axis(_, Some(4))) { Bound::Codes(10.0) } else { usual }
}

/// `[m, k] x [n, k]` and a bias.
pub(super) fn product(x: &Values, w: &Values, bias: Option<&Values>) -> Values {
    let k = x.width();
    let rows = x.data.len() / k;
    let n = w.dims[0];
    Values::from_fn([rows, n], |i| {
        let (row, col) = (&x.data[i[0] * k..][..k], &w.data[i[1] * k..][..k]);
        row.iter().zip(col).map(|(a, b)| a * b).sum::<f64>() + bias.map_or(0.0, |b| b.data[i[1]])
    })
}

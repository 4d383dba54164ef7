//! `Cast`: numbers stay, encodings are ignored.

use crate::suite::Problem;
use crate::suite::codec::{BOOL, F16, F32, I32, Ty, U32};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let whole = || Values::integers(171, [1, 5, 32], -99, 99);
    let counts = || Values::integers(172, [1, 5, 32], 0, 99);
    let parts = || Values::noise(173, [1, 5, 32], 8.0);
    vec![
        cast("numbers", F16, F32, parts(), |x| x),
        cast("numbers", F32, F16, parts(), |x| x).htp_within(crate::suite::Bound::Largest(5e-4)),
        cast("whole numbers", I32, F16, whole(), |x| x),
        cast("whole numbers", I32, F32, whole(), |x| x),
        cast("whole numbers", F32, I32, whole(), |x| x),
        cast("whole numbers", F16, I32, whole(), |x| x),
        cast("fractions are cut off", F32, I32, parts(), f64::trunc),
        cast("counts", I32, U32, counts(), |x| x),
        cast("yes or no", BOOL, F32, Values::integers(174, [1, 5, 32], 0, 2), |x| x),
        cast("yes or no", I32, BOOL, Values::integers(175, [1, 5, 32], 0, 2), |x| x),
        cast("zero or not", I32, BOOL, Values::integers(175, [1, 5, 32], 0, 9), |x| f64::from(x != 0.0))
            .htp_deviates("the integer's byte comes out, not 0 or 1"),
    ]
}

fn cast(case: &str, from: Ty, to: Ty, values: Values, f: fn(f64) -> f64) -> Problem {
    let rounds = to == F16 && from == F32;
    let problem = Problem::of("Cast", case).input(from, values).output(to).answer(move |x| x[0].map(f));
    if rounds { problem } else { problem.exact() }
}

//! `CumulativeSum` along an axis.

use qnn_api::Param;

use crate::suite::codec::{F16, F32, I32, Ty};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

pub(super) fn problems() -> Vec<Problem> {
    vec![
        sum("inclusive", F16, false, false),
        sum("inclusive", F32, false, false),
        sum("inclusive", I32, false, false),
        sum("exclusive", F16, true, false).htp_refuses("the op cannot be built"),
        sum("from the end", F16, false, true).htp_refuses("the op cannot be built"),
    ]
}

fn sum(case: &str, ty: Ty, exclusive: bool, reverse: bool) -> Problem {
    let values = match ty == I32 {
        true => Values::integers(241, [1, 4, 32], -9, 9),
        false => Values::between(241, [1, 4, 32], -0.5, 1.0),
    };
    let exact = ty == I32;
    let problem = Problem::of("CumulativeSum", case)
        .input(ty.clone(), values)
        .count("axis", 2)
        .param("exclusive", Param::Bool(exclusive))
        .param("reverse", Param::Bool(reverse))
        .output(ty)
        .answer(move |x| {
            x[0].map_rows(|row| {
                let n = row.len();
                let part = |i: usize| match (reverse, exclusive) {
                    (false, false) => 0..i + 1,
                    (false, true) => 0..i,
                    (true, false) => i..n,
                    (true, true) => i + 1..n,
                };
                (0..n).map(|i| row[part(i)].iter().sum()).collect()
            })
        });
    if exact { problem.exact() } else { problem.htp_within(Bound::Largest(4e-3)) }
}

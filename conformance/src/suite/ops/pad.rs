//! `Pad` with a constant.

use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, Ty, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    vec![
        pad("zeros", F16, 0.0),
        pad("zeros", F32, 0.0).htp_unsteady("float32 is padded with what lay there"),
        pad("another number", F16, -1.5),
        pad("zeros", U16, 0.0),
    ]
}

fn pad(case: &str, ty: Ty, fill: f32) -> Problem {
    let fixed = ty.dtype.is_fixed_point();
    let values = Values::noise(231, [1, 4, 8], 2.0);
    let mut problem = Problem::of("Pad", case)
        .input(ty.clone(), values)
        .param("scheme", Param::U32(0))
        .param("pad_amount", Param::U32Tensor { dims: vec![3, 2], data: vec![0, 0, 1, 2, 0, 3] });
    if !fixed {
        problem = problem.param("pad_constant_value", Param::F32(fill));
    }
    problem
        .output(if fixed { ty.like(0) } else { ty })
        .answer(move |x| {
            Values::from_fn([1, 7, 11], |i| match i[1].checked_sub(1) {
                Some(row) if row < 4 && i[2] < 8 => x[0].at(&[0, row, i[2]]),
                _ => f64::from(fill),
            })
        })
        .exact()
}

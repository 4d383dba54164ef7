//! `ReduceMean`, `ReduceSum`, `ReduceMax`, `ReduceMin` over axes, kept as 1 or dropped.

use qnn_api::Param;

use crate::suite::codec::{F16, F32, I32, Ty, U8, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

type F = fn(&[f64]) -> f64;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    let ops: [(&'static str, F); 4] = [
        ("ReduceMean", |x| x.iter().sum::<f64>() / x.len() as f64),
        ("ReduceSum", |x| x.iter().sum()),
        ("ReduceMax", |x| x.iter().copied().fold(f64::MIN, f64::max)),
        ("ReduceMin", |x| x.iter().copied().fold(f64::MAX, f64::min)),
    ];
    for (op, f) in ops {
        for ty in [F16, F32, U16, U8] {
            all.push(reduce(op, "the last axis, kept", f, ty, &[1, 5, 64], &[2], true));
        }
        all.push(reduce(op, "the last axis, dropped", f, F16, &[1, 5, 64], &[2], false));
        all.push(reduce(op, "two axes, rank 4", f, F16, &[2, 3, 5, 8], &[1, 2], true));
    }
    all.push(reduce("ReduceSum", "the last axis, kept", |x| x.iter().sum(), I32, &[1, 5, 64], &[2], true));
    all
}

fn reduce(op: &'static str, case: &str, f: F, ty: Ty, dims: &[usize], axes: &'static [usize], keep: bool) -> Problem {
    let values = if ty == I32 { Values::integers(211, dims, -99, 99) } else { Values::noise(211, dims, 2.0) };
    let picks = matches!(op, "ReduceMax" | "ReduceMin") && ty.dtype.is_float();
    let exact = ty == I32 || picks;
    let problem = Problem::of(op, case)
        .input(ty.clone(), values)
        .list("axes", axes)
        .param("keep_dims", Param::Bool(keep))
        .output(ty)
        .answer(move |x| reduced(&x[0], axes, keep, f));
    match problem.bounds.htp {
        _ if exact => problem.exact(),
        Bound::Codes(_) => problem.htp_within(Bound::Codes(3.0)),
        _ => problem,
    }
}

fn reduced(x: &Values, axes: &[usize], keep: bool, f: F) -> Values {
    let kept: Vec<usize> = x.dims.iter().enumerate().map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect();
    let mut groups = vec![Vec::new(); kept.iter().product()];
    Values::from_fn(x.dims.clone(), |i| {
        let at = i.iter().zip(&kept).fold(0, |at, (&i, &d)| at * d + if d == 1 { 0 } else { i });
        groups[at].push(x.at(i));
        0.0
    });
    let dropped: Vec<usize> = (0..kept.len()).filter(|i| !axes.contains(i)).map(|i| kept[i]).collect();
    Values::new(if keep { kept } else { dropped }, groups.iter().map(|g| f(g)).collect())
}

//! Two operands element by element, under their own names: `ElementWiseAdd` and similar, broadcast by numpy's rules.

use crate::suite::codec::{BOOL, F16, F32, I32, S16, Ty, U8, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

type F = fn(f64, f64) -> f64;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    let basic: [(&'static str, F, Vec<Ty>); 6] = [
        ("ElementWiseAdd", |a, b| a + b, vec![F16, F32, I32, U16, U8, S16]),
        ("ElementWiseMultiply", |a, b| a * b, vec![F16, F32, I32, U16, U8, S16]),
        ("ElementWiseSubtract", |a, b| a - b, vec![F16, F32, I32, U16, U8]),
        ("ElementWiseDivide", |a, b| a / b, vec![F16, F32, U16]),
        ("ElementWiseMaximum", f64::max, vec![F16, F32, U16]),
        ("ElementWiseMinimum", f64::min, vec![F16, F32, U16]),
    ];
    for (op, f, types) in basic {
        for ty in types {
            all.push(pair(op, "alike", f, ty.clone(), &[1, 5, 32], &[1, 5, 32]));
            if ty == F16 || ty == U16 {
                all.push(pair(op, "a row for all", f, ty.clone(), &[1, 3, 7, 8], &[8]));
                all.push(pair(op, "a mask for all heads", f, ty.clone(), &[2, 4, 3, 16], &[1, 1, 3, 16]));
            }
        }
    }
    all.push(pair("ElementWiseAdd", "both stretch", |a, b| a + b, F16, &[1, 5, 1, 8], &[1, 1, 6, 8]));
    let square: F = |a, b| (a - b).powi(2);
    all.push(pair("ElementWiseSquaredDifference", "alike", square, F16, &[1, 5, 32], &[1, 5, 32]));
    all.push(
        Problem::of("ElementWisePower", "squares")
            .input(F16, Values::between(53, [1, 5, 32], 0.2, 2.0))
            .constant(F16, Values::new([1], vec![2.0]))
            .output(F16)
            .answer(|x| x[0].zip(&x[1], f64::powf)),
    );
    let comparisons: [(&'static str, F); 5] = [
        ("ElementWiseGreater", |a, b| f64::from(a > b)),
        ("ElementWiseGreaterEqual", |a, b| f64::from(a >= b)),
        ("ElementWiseLess", |a, b| f64::from(a < b)),
        ("ElementWiseEqual", |a, b| f64::from(a == b)),
        ("ElementWiseNotEqual", |a, b| f64::from(a != b)),
    ];
    for (op, f) in comparisons {
        for ty in [F16, I32] {
            let values = |seed| Values::integers(seed, [1, 5, 32], -2, 3);
            let problem = Problem::of(op, "small integers").input(ty.clone(), values(54)).input(ty, values(55));
            all.push(problem.output(BOOL).answer(move |x| x[0].zip(&x[1], f)));
        }
    }
    all
}

fn pair(op: &'static str, case: &str, f: F, ty: Ty, a: &[usize], b: &[usize]) -> Problem {
    let values = |seed, dims: &[usize]| match ty == I32 {
        true => Values::integers(seed, dims, -99, 99),
        false => Values::noise(seed, dims, 2.0),
    };
    let divides = op == "ElementWiseDivide";
    // Divisors keep away from zero.
    let second = if divides { Values::between(52, b, 0.5, 2.0) } else { values(52, b) };
    let exact = ty == I32 || (matches!(op, "ElementWiseMaximum" | "ElementWiseMinimum") && !ty.dtype.is_fixed_point());
    let problem = Problem::of(op, case)
        .input(ty.clone(), values(51, a))
        .input(ty.clone(), second)
        .output(ty)
        .answer(move |x| x[0].zip(&x[1], f));
    match (exact, divides && problem.bounds.htp == Bound::Codes(2.0)) {
        (true, _) => problem.exact(),
        (_, true) => problem.htp_within(Bound::Codes(16.0)),
        _ => problem,
    }
}

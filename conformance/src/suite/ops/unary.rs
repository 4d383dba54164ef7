//! `ElementWiseUnary` by number, and the same operations under their own names.

use qnn_api::Param;

use crate::suite::codec::{BOOL, F16, F32, Ty, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

struct Unary {
    number: u32,
    case: &'static str,
    name: &'static str,
    f: fn(f64) -> f64,
    /// Range of the operand.
    range: (f64, f64),
    exact: bool,
}

const fn unary(
    number: u32,
    case: &'static str,
    name: &'static str,
    f: fn(f64) -> f64,
    range: (f64, f64),
    exact: bool,
) -> Unary {
    Unary { number, case, name, f, range, exact }
}

const WIDE: (f64, f64) = (-3.0, 3.0);
const UNIT: (f64, f64) = (-0.99, 0.99);
const ABOVE: (f64, f64) = (0.1, 4.0);

static ALL: [Unary; 15] = [
    unary(0, "ABS", "ElementWiseAbs", f64::abs, WIDE, true),
    unary(1, "ASIN", "ElementWiseAsin", f64::asin, UNIT, false),
    unary(2, "ATAN", "ElementWiseAtan", f64::atan, WIDE, false),
    unary(3, "CEIL", "ElementWiseCeil", f64::ceil, WIDE, true),
    unary(4, "COS", "ElementWiseCos", f64::cos, WIDE, false),
    unary(5, "EXP", "ElementWiseExp", f64::exp, WIDE, false),
    unary(6, "FLOOR", "ElementWiseFloor", f64::floor, WIDE, true),
    unary(7, "LOG", "ElementWiseLog", f64::ln, ABOVE, false),
    unary(8, "NEG", "ElementWiseNeg", |x| -x, WIDE, true),
    unary(10, "RECIPROCAL", "", f64::recip, ABOVE, false),
    unary(11, "ROUND", "ElementWiseRound", f64::round_ties_even, WIDE, true),
    unary(12, "RSQRT", "ElementWiseRsqrt", |x| x.sqrt().recip(), ABOVE, false),
    unary(13, "SIGN", "ElementWiseSign", sign, WIDE, true),
    unary(14, "SIN", "ElementWiseSin", f64::sin, WIDE, false),
    unary(15, "SQRT", "ElementWiseSquareRoot", f64::sqrt, ABOVE, false),
];

fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for one in &ALL {
        all.push(numbered(one, F16));
        if !one.name.is_empty() {
            all.push(finish(Problem::of(one.name, "by name"), one, F16));
        }
    }
    for number in [0, 5, 8, 12, 15] {
        let one = ALL.iter().find(|o| o.number == number).expect("it is in the list");
        all.push(numbered(one, F32));
        all.push(numbered(one, U16));
    }
    all.push(
        Problem::of("ElementWiseUnary", "NOT")
            .input(BOOL, Values::integers(72, [1, 5, 32], 0, 2))
            .param("operation", Param::U32(9))
            .output(BOOL)
            .answer(|x| x[0].map(|v| 1.0 - v)),
    );
    all
}

fn numbered(one: &'static Unary, ty: Ty) -> Problem {
    finish(Problem::of("ElementWiseUnary", one.case).param("operation", Param::U32(one.number)), one, ty)
}

fn finish(problem: Problem, one: &'static Unary, ty: Ty) -> Problem {
    let exact = one.exact && !ty.dtype.is_fixed_point();
    let values = Values::between(71, [1, 5, 32], one.range.0, one.range.1);
    let problem = problem.input(ty.clone(), values).output(ty).answer(|x| x[0].map(one.f));
    let fixed = matches!(problem.bounds.htp, Bound::Codes(_));
    match one.case {
        _ if exact => problem.exact(),
        "EXP" if fixed => problem.htp_within(Bound::Codes(4.0)),
        "SQRT" if fixed => problem.htp_within(Bound::Codes(80.0)),
        // Near the ends of its range.
        "ASIN" => problem.htp_within(Bound::Largest(5e-2)),
        "SIN" | "COS" => problem.htp_within(Bound::Largest(3e-3)),
        _ => problem,
    }
}

//! `ElementWiseBinary`: two operands by number.

use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{BOOL, F16, F32, I32, Ty, U16};
use crate::suite::values::Values;

type F = fn(f64, f64) -> f64;

const ARITHMETIC: [(u32, &str, F); 9] = [
    (0, "ADD", |a, b| a + b),
    (2, "DIVIDE", |a, b| a / b),
    (4, "FLOOR_DIV", |a, b| (a / b).floor()),
    (10, "MAXIMUM", f64::max),
    (11, "MINIMUM", f64::min),
    (13, "MULTIPLY", |a, b| a * b),
    (16, "POWER", f64::powf),
    (17, "SQUARED_DIFFERENCE", |a, b| (a - b).powi(2)),
    (18, "SUBTRACT", |a, b| a - b),
];

const COMPARISONS: [(u32, &str, F); 6] = [
    (3, "EQUAL", |a, b| f64::from(a == b)),
    (6, "GREATER", |a, b| f64::from(a > b)),
    (7, "GREATER_EQUAL", |a, b| f64::from(a >= b)),
    (8, "LESS", |a, b| f64::from(a < b)),
    (9, "LESS_EQUAL", |a, b| f64::from(a <= b)),
    (14, "NOT_EQUAL", |a, b| f64::from(a != b)),
];

const LOGIC: [(u32, &str, F); 3] =
    [(1, "AND", |a, b| a * b), (15, "OR", f64::max), (19, "XOR", |a, b| f64::from(a != b))];

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for (number, case, f) in ARITHMETIC {
        all.push(arithmetic(number, case, f, F16));
        if matches!(number, 0 | 13 | 18) {
            all.push(arithmetic(number, case, f, F32));
            all.push(arithmetic(number, case, f, U16));
        }
    }
    for (number, case, f) in COMPARISONS {
        let values = |seed| Values::integers(seed, [1, 5, 32], -2, 3);
        for ty in [F16, I32] {
            all.push(binary(number, case, f, [(ty.clone(), values(81)), (ty, values(82))], BOOL));
        }
    }
    for (number, case, f) in LOGIC {
        let values = |seed| Values::integers(seed, [1, 5, 32], 0, 2);
        all.push(binary(number, case, f, [(BOOL, values(83)), (BOOL, values(84))], BOOL));
    }
    all
}

fn arithmetic(number: u32, case: &str, f: F, ty: Ty) -> Problem {
    // Quotients and powers need operands above zero; whole divisors keep floors away from their steps.
    let low = if matches!(number, 2 | 4 | 16) { 0.3 } else { -2.0 };
    let second = match number {
        4 => Values::new([1], vec![0.25]),
        _ => Values::between(82, [1, 5, 32], low, 2.0),
    };
    let first = match number {
        4 => Values::integers(81, [1, 5, 32], 0, 40).map(|x| x * 0.125 + 0.0625),
        _ => Values::between(81, [1, 5, 32], low, 2.0),
    };
    let exact = matches!(number, 4 | 10 | 11);
    let problem = binary(number, case, f, [(ty.clone(), first), (ty.clone(), second)], ty);
    if exact { problem.exact() } else { problem }
}

fn binary(number: u32, case: &str, f: F, operands: [(Ty, Values); 2], out: Ty) -> Problem {
    let [(a, first), (b, second)] = operands;
    Problem::of("ElementWiseBinary", case)
        .input(a, first)
        .input(b, second)
        .param("operation", Param::U32(number))
        .output(out)
        .answer(move |x| x[0].zip(&x[1], f))
}

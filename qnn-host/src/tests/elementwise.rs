//! Element-wise operations under all their names and numbers.

use super::reference::{Case, T};
use crate::ir::{Dtype, Param};

type Binary = (&'static str, u64, fn(f64, f64) -> f64);

#[test]
fn binary_operations_broadcast() {
    let ops: [Binary; 11] = [
        ("ElementWiseAdd", 0, |a, b| a + b),
        ("ElementWiseDivide", 2, |a, b| a / b),
        ("ElementWiseFloorDiv", 4, |a, b| (a / b).floor()),
        ("ElementWiseFmod", 5, |a, b| a % b),
        ("ElementWiseMaximum", 10, f64::max),
        ("ElementWiseMinimum", 11, f64::min),
        ("ElementWiseMod", 12, |a, b| a - (a / b).floor() * b),
        ("ElementWiseMultiply", 13, |a, b| a * b),
        ("ElementWisePower", 16, |a, b| a.abs().powf(b)),
        ("ElementWiseSquaredDifference", 17, |a, b| (a - b) * (a - b)),
        ("ElementWiseSubtract", 18, |a, b| a - b),
    ];
    let shapes: [(&[usize], &[usize], &[usize]); 5] = [
        (&[3, 4], &[3, 4], &[3, 4]),
        (&[2, 3, 4], &[4], &[2, 3, 4]),
        (&[2, 1, 4], &[3, 1], &[2, 3, 4]),
        (&[1], &[2, 5], &[2, 5]),
        (&[2, 3, 1], &[2, 1, 700], &[2, 3, 700]),
    ];
    for (name, number, f) in ops {
        for (a, b, out) in shapes {
            let (mut a, mut b) = (T::noise(a, 1), T::noise(b, 2));
            // Away from zero, so that a quotient's digits and its floor are certain.
            b.data.iter_mut().for_each(|x| *x = f64::from((*x + x.signum() * 0.37) as f32));
            if name == "ElementWisePower" {
                a.data.iter_mut().for_each(|x| *x = x.abs() + 0.5);
            }
            let wanted = T::of(out, |i| f(a.at(i), b.at(i)));
            let tolerance = 1e-4;
            Case::new(name).input(&a).input(&b).within(tolerance).yields(wanted.clone());
            let numbered = Case::new("ElementWiseBinary").param("operation", Param::UInt(number));
            numbered.input(&a).input(&b).within(tolerance).yields(wanted);
        }
    }
}

#[test]
fn the_larger_and_the_smaller_of_nan_and_a_number_are_nan() {
    const NAN: f64 = f64::NAN;
    let (a, b) = (T::list(&[4], &[NAN, 2.0, NAN, 2.0]), T::list(&[4], &[1.0, NAN, NAN, 1.0]));
    for (name, of_numbers) in [("ElementWiseMaximum", 2.0), ("ElementWiseMinimum", 1.0)] {
        for dtype in [Dtype::F32, Dtype::F16] {
            let case = Case::new(name).typed(&a, dtype).typed(&b, dtype);
            case.output_typed(T::list(&[4], &[NAN, NAN, NAN, of_numbers]), dtype).check();
        }
    }
}

#[test]
fn comparisons_and_logic_yield_truth() {
    let ops: [Binary; 6] = [
        ("ElementWiseEqual", 3, |a, b| f64::from(a == b)),
        ("ElementWiseGreater", 6, |a, b| f64::from(a > b)),
        ("ElementWiseGreaterEqual", 7, |a, b| f64::from(a >= b)),
        ("ElementWiseLess", 8, |a, b| f64::from(a < b)),
        ("ElementWiseLessEqual", 9, |a, b| f64::from(a <= b)),
        ("ElementWiseNotEqual", 14, |a, b| f64::from(a != b)),
    ];
    let a = T::of(&[3, 5], |i| ((i[0] * 5 + i[1]) % 4) as f64);
    let b = T::list(&[5], &[0.0, 1.0, 2.0, 3.0, 1.0]);
    for (name, number, f) in ops {
        let wanted = T::of(&[3, 5], |i| f(a.at(i), b.at(i)));
        for dtype in [Dtype::F32, Dtype::F16, Dtype::I32] {
            let case = Case::new(name).typed(&a, dtype).typed(&b, dtype);
            case.output_typed(wanted.clone(), Dtype::Bool8).check();
        }
        let numbered = Case::new("ElementWiseBinary").param("operation", Param::UInt(number)).input(&a).input(&b);
        numbered.output_typed(wanted, Dtype::Bool8).check();
    }
    let (p, q) = (T::list(&[4], &[0.0, 0.0, 1.0, 1.0]), T::list(&[4], &[0.0, 1.0, 0.0, 1.0]));
    for (name, wanted) in [
        ("ElementWiseAnd", [0.0, 0.0, 0.0, 1.0]),
        ("ElementWiseOr", [0.0, 1.0, 1.0, 1.0]),
        ("ElementWiseXor", [0.0, 1.0, 1.0, 0.0]),
    ] {
        let case = Case::new(name).typed(&p, Dtype::Bool8).typed(&q, Dtype::Bool8);
        case.output_typed(T::list(&[4], &wanted), Dtype::Bool8).check();
    }
}

#[test]
fn integers_stay_integers() {
    let a = T::list(&[6], &[7.0, -7.0, 7.0, -7.0, 0.0, 5.0]);
    let b = T::list(&[6], &[2.0, 2.0, -2.0, -2.0, 3.0, 0.0]);
    let cases = [
        ("ElementWiseAdd", [9.0, -5.0, 5.0, -9.0, 3.0, 5.0]),
        ("ElementWiseMultiply", [14.0, -14.0, -14.0, 14.0, 0.0, 0.0]),
        ("ElementWiseDivide", [3.0, -3.0, -3.0, 3.0, 0.0, 0.0]),
        ("ElementWiseFloorDiv", [3.0, -4.0, -4.0, 3.0, 0.0, 0.0]),
        ("ElementWiseFmod", [1.0, -1.0, 1.0, -1.0, 0.0, 0.0]),
        ("ElementWiseMod", [1.0, 1.0, -1.0, -1.0, 0.0, 0.0]),
        ("ElementWisePower", [49.0, 49.0, 0.0, 0.0, 0.0, 1.0]),
    ];
    for (name, wanted) in cases {
        let case = Case::new(name).typed(&a, Dtype::I32).typed(&b, Dtype::I32);
        case.output_typed(T::list(&[6], &wanted), Dtype::I32).check();
    }
}

#[test]
fn unary_operations() {
    type Unary = (&'static str, Option<u64>, fn(f64) -> f64);
    let ops: [Unary; 16] = [
        ("ElementWiseAbs", Some(0), f64::abs),
        ("ElementWiseAsin", Some(1), |x| (x / 4.0).asin()),
        ("ElementWiseAtan", Some(2), f64::atan),
        ("ElementWiseCeil", Some(3), f64::ceil),
        ("ElementWiseCos", Some(4), f64::cos),
        ("ElementWiseExp", Some(5), f64::exp),
        ("ElementWiseFloor", Some(6), f64::floor),
        ("ElementWiseLog", Some(7), |x| x.abs().ln()),
        ("ElementWiseNeg", Some(8), |x| -x),
        ("ElementWiseRound", Some(11), f64::round_ties_even),
        ("ElementWiseRsqrt", Some(12), |x| 1.0 / x.abs().sqrt()),
        ("ElementWiseSign", Some(13), f64::signum),
        ("ElementWiseSin", Some(14), f64::sin),
        ("ElementWiseSquareRoot", Some(15), |x| x.abs().sqrt()),
        ("Sigmoid", None, |x| 1.0 / (1.0 + (-x).exp())),
        ("Tanh", None, f64::tanh),
    ];
    for (name, number, f) in ops {
        let mut x = T::noise(&[5, 70], 3);
        for x in &mut x.data {
            match name {
                "ElementWiseAsin" => *x /= 4.0,
                "ElementWiseLog" | "ElementWiseRsqrt" | "ElementWiseSquareRoot" => *x = x.abs() + 0.01,
                _ => {}
            }
            *x = f64::from(*x as f32);
        }
        let g = |x: f64| if name == "ElementWiseAsin" { x.asin() } else { f(x) };
        let wanted = T::of(&x.dims.clone(), |i| g(x.at(i)));
        Case::new(name).input(&x).yields(wanted.clone());
        if let Some(number) = number {
            Case::new("ElementWiseUnary").param("operation", Param::UInt(number)).input(&x).yields(wanted);
        }
    }
}

#[test]
fn neurons() {
    /// By Simpson's rule: `x/2 (1 + erf(x / sqrt 2))`.
    fn gelu(x: f64) -> f64 {
        let (n, end) = (2000, x / std::f64::consts::SQRT_2);
        let h = end / f64::from(n);
        let f = |i: i32| {
            (-(h * f64::from(i)).powi(2)).exp() * if i == 0 || i == n { 1.0 } else { 2.0 + 2.0 * f64::from(i % 2) }
        };
        let erf = (0..=n).map(f).sum::<f64>() * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI;
        x / 2.0 * (1.0 + erf)
    }
    type Neuron = (u64, &'static [(&'static str, f32)], fn(f64) -> f64);
    let neurons: [Neuron; 9] = [
        (0, &[("alpha", 0.5)], |x| if x < 0.0 { 0.5 * (x.exp() - 1.0) } else { x }),
        (1, &[], gelu),
        (2, &[("alpha", 0.25), ("beta", 0.5)], |x| (0.25 * x + 0.5).clamp(0.0, 1.0)),
        (3, &[], |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
        (4, &[], |x| x.max(0.0)),
        (5, &[("min_value", -0.5), ("max_value", 1.5)], |x| x.clamp(-0.5, 1.5)),
        (6, &[], |x| 1.0 / (1.0 + (-x).exp())),
        (7, &[], |x| x.exp().ln_1p()),
        (8, &[], f64::tanh),
    ];
    let x = T::noise(&[2, 50], 4);
    for (number, params, f) in neurons {
        let wanted = T::of(&x.dims, |i| f(x.at(i)));
        let mut case = Case::new("ElementWiseNeuron").param("operation", Param::UInt(number)).input(&x);
        for &(name, value) in params {
            case = case.param(name, Param::F32(value));
        }
        case.yields(wanted);
    }
    Case::new("Gelu").input(&x).yields(T::of(&x.dims, |i| gelu(x.at(i))));
    Case::new("Relu").input(&x).yields(T::of(&x.dims, |i| x.at(i).max(0.0)));
}

#[test]
fn select_broadcasts_all_three() {
    let condition = T::of(&[3, 1], |i| f64::from(i[0] % 2 == 0));
    let (a, b) = (T::noise(&[2, 1, 4], 5), T::noise(&[4], 6));
    let wanted = T::of(&[2, 3, 4], |i| if condition.at(i) != 0.0 { a.at(i) } else { b.at(i) });
    Case::new("ElementWiseSelect").typed(&condition, Dtype::Bool8).input(&a).input(&b).yields(wanted);
}

#[test]
fn casts_and_conversions() {
    let x = T::list(&[5], &[-2.7, -0.2, 0.0, 1.9, 100.0]);
    let toward_zero = T::list(&[5], &[-2.0, 0.0, 0.0, 1.0, 100.0]);
    Case::new("Cast").input(&x).output_typed(toward_zero.clone(), Dtype::I32).check();
    Case::new("Cast").typed(&toward_zero, Dtype::I32).output_typed(toward_zero.clone(), Dtype::F16).check();
    Case::new("Cast").input(&x).output_typed(T::list(&[5], &[1.0, 1.0, 0.0, 1.0, 1.0]), Dtype::Bool8).check();
    Case::new("Convert").input(&x).within(1e-3).output_typed(x.clone(), Dtype::F16).check();
    Case::new("Convert").typed(&toward_zero, Dtype::F16).yields(toward_zero);
}

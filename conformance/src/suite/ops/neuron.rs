//! `ElementWiseNeuron`: activations by number.

use qnn_api::Param;

use crate::suite::codec::{F16, F32, S16, Ty, U8, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

/// The error function by its series and continued fraction, to double precision.
pub(super) fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 3.0 {
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -z * z / n;
            sum += term / (2.0 * n + 1.0);
            if n > 200.0 {
                break;
            }
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let tail = (1..=60).rev().fold(0.0, |t, n| f64::from(n) / 2.0 / (z + t));
        1.0 - (-z * z).exp() / ((z + tail) * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

pub(super) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn hard_swish(x: f64) -> f64 {
    x * (x + 3.0).clamp(0.0, 6.0) / 6.0
}

pub(super) fn elu(x: f64) -> f64 {
    if x > 0.0 { x } else { x.exp_m1() }
}

type Activation = (u32, &'static str, fn(f64) -> f64);

const ALL: [Activation; 7] = [
    (0, "ELU", elu),
    (1, "GELU", gelu),
    (3, "HARD_SWISH", hard_swish),
    (4, "RELU", |x| x.max(0.0)),
    (6, "SIGMOID", sigmoid),
    (7, "SOFTPLUS", |x| x.exp().ln_1p()),
    (8, "TANH", f64::tanh),
];

pub(super) fn problems() -> Vec<Problem> {
    let mut all: Vec<Problem> = ALL.iter().map(|&a| neuron(a, F16, &[1, 5, 64])).collect();
    for number in [1, 4, 6, 8] {
        let one = ALL.iter().find(|a| a.0 == number).copied().expect("it is in the list");
        for ty in [F32, U16, U8, S16] {
            all.push(neuron(one, ty, &[1, 5, 64]));
        }
    }
    all.push(
        neuron((5, "RELU_MIN_MAX", |x| x.clamp(-0.5, 1.0)), F16, &[1, 5, 64])
            .param("min_value", Param::F32(-0.5))
            .param("max_value", Param::F32(1.0)),
    );
    all
}

/// The emulator looks 16-bit activations up in tables.
pub(super) fn tables(number: u32, ty: &Ty) -> Option<Bound> {
    let wide = ty.dtype.is_fixed_point() && ty.dtype.size_bytes() == 2;
    match number {
        1 if wide => Some(Bound::Codes(24.0)),
        6 if wide => Some(Bound::Codes(5.0)),
        7 => Some(Bound::Largest(6e-3)),
        8 if wide => Some(Bound::Codes(4.0)),
        _ => None,
    }
}

fn neuron((number, case, f): Activation, ty: Ty, dims: &[usize]) -> Problem {
    let mut problem = Problem::of("ElementWiseNeuron", case)
        .input(ty.clone(), Values::noise(61, dims, 4.0))
        .param("operation", Param::U32(number));
    if number == 0 {
        problem = problem.param("alpha", Param::F32(1.0));
    }
    let problem = problem.output(ty.clone()).answer(move |x| x[0].map(f));
    match tables(number, &ty) {
        Some(bound) => problem.htp_within(bound),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn erf_is_the_tabulated_one() {
        // Abramowitz and Stegun, table 7.1.
        for (x, y) in
            [(0.5, 0.520_499_877_813), (1.0, 0.842_700_792_950), (2.0, 0.995_322_265_019), (3.5, 0.999_999_256_902)]
        {
            assert!((erf(x) - y).abs() < 1e-11 && (erf(-x) + y).abs() < 1e-11, "{x}: {}", erf(x));
        }
    }
}

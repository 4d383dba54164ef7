//! How far an output may be from its reference, and the first element that is farther.
//!
//! *Source*: measured differences as a pair (largest difference, largest value); [`Bound::Largest`] has
//! that form. Where the suite measured more, the larger bound stands at the case.

use core::fmt;

use genie_types::{Dtype, Quant, TensorInfo};

use super::codec::decode;
use super::values::Values;

/// A bound on the difference of each element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// None at all.
    Exact,
    /// A multiple of the largest magnitude of the reference.
    Largest(f64),
    /// A number of quantisation steps of the output.
    Codes(f64),
}

/// A host computes in float32 and rounds once; the emulator computes in float16 or in codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// For the host, against the reference.
    pub host: Bound,
    /// For the emulator against the reference, and against the host.
    pub htp: Bound,
}

impl Bounds {
    /// Data movement and integers.
    pub const EXACT: Self = Self { host: Bound::Exact, htp: Bound::Exact };

    /// What is usual for outputs of that type.
    pub fn usual(dtype: Option<Dtype>) -> Self {
        match dtype {
            Some(Dtype::F32) => Self { host: Bound::Largest(1e-5), htp: Bound::Largest(2e-3) },
            // Half of a unit in the last place, and what float32 adds.
            Some(Dtype::F16) => Self { host: Bound::HALF_ULP, htp: Bound::Largest(2e-3) },
            Some(dtype) if dtype.is_fixed_point() => Self { host: Bound::Codes(0.51), htp: Bound::Codes(2.0) },
            _ => Self::EXACT,
        }
    }
}

impl Bound {
    /// Half of a float16's unit in the last place, at the largest value.
    pub const HALF_ULP: Self = Self::Largest(5e-4);

    /// The bound as a number, for an output with that reference.
    fn number(self, info: &TensorInfo, reference: &Values) -> f64 {
        match (self, &info.quant) {
            (Self::Exact, _) => 0.0,
            (Self::Largest(x), _) => x * reference.largest(),
            (Self::Codes(n), Quant::PerTensor { scale, .. }) => n * f64::from(*scale),
            (Self::Codes(_), _) => 0.0,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Largest(x) => write!(f, "{x:.0e}"),
            Self::Codes(n) => write!(f, "{n} codes"),
        }
    }
}

/// An element that is too far off.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{title}, output {output}, element {element}: host {}, emulator {}, reference {reference}; {what} {off:.3e}, tolerance {tolerance:.3e} ({bound})",
    shown(*.host), shown(*.emulator)
)]
pub struct Mismatch {
    /// Op, case and types.
    pub title: String,
    /// Which output.
    pub output: usize,
    /// Row-major.
    pub element: usize,
    /// What the host says, if it was asked.
    pub host: Option<f64>,
    /// What the emulator says, if it was asked.
    pub emulator: Option<f64>,
    /// In double precision.
    pub reference: f64,
    /// Which two are compared.
    pub what: &'static str,
    /// Their difference.
    pub off: f64,
    /// The largest that is allowed.
    pub tolerance: f64,
    /// As it stands in the table.
    pub bound: Bound,
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "not asked".to_owned(), |v| v.to_string())
}

/// One backend's answers or another's, of which the host's may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    /// The host's outputs.
    pub host: Option<&'a [Vec<u8>]>,
    /// The emulator's outputs.
    pub emulator: Option<&'a [Vec<u8>]>,
}

/// The largest difference of a problem, as a part of its tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Host against reference.
    pub host: f64,
    /// Emulator against reference.
    pub htp: f64,
}

/// Holds answers against the reference and against each other.
///
/// # Errors
/// The element that is farthest off, by its tolerance.
pub fn compare(problem: &super::Problem, answers: Answers<'_>) -> Result<Used, Box<Mismatch>> {
    let (mut used, mut worst, mut most) = (Used::default(), None, 1.0);
    for (output, (info, reference)) in problem.output_infos().zip(problem.reference()).enumerate() {
        let read =
            |all: Option<&[Vec<u8>]>| all.map(|all| decode(&all[output], &info.dims, info.dtype, &info.quant).data);
        let (host, emulator) = (read(answers.host), read(answers.emulator));
        let Bounds { host: host_bound, htp: htp_bound } = problem.bounds;
        let (host_most, htp_most) = (host_bound.number(info, &reference), htp_bound.number(info, &reference));
        for (element, &expected) in reference.data.iter().enumerate() {
            let (h, e) = (host.as_ref().map(|v| v[element]), emulator.as_ref().map(|v| v[element]));
            let mut hold = |what, a: Option<f64>, b: Option<f64>, tolerance: f64, bound| {
                let (Some(a), Some(b)) = (a, b) else { return 0.0 };
                let off = if a == b { 0.0 } else { (a - b).abs() };
                let part = part_of(off, tolerance);
                if part > most {
                    most = part;
                    let title = problem.title();
                    let reference = expected;
                    let (host, emulator) = (h, e);
                    worst = Some(Box::new(Mismatch {
                        title,
                        output,
                        element,
                        host,
                        emulator,
                        reference,
                        what,
                        off,
                        tolerance,
                        bound,
                    }));
                }
                part
            };
            used.host = used.host.max(hold("host and reference differ by", h, Some(expected), host_most, host_bound));
            used.htp = used.htp.max(hold("emulator and reference differ by", e, Some(expected), htp_most, htp_bound));
            hold("host and emulator differ by", h, e, htp_most, htp_bound);
        }
    }
    worst.map_or(Ok(used), Err)
}

/// A difference in tolerances; what is no number is as far off as can be.
fn part_of(off: f64, tolerance: f64) -> f64 {
    if off == 0.0 {
        0.0
    } else if off.is_nan() || tolerance == 0.0 {
        f64::INFINITY
    } else {
        off / tolerance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::codec::F16;
    use crate::suite::{Problem, Values};

    fn problem() -> Problem {
        let problem = Problem::of("Relu", "made up").input(F16, Values::new([3], vec![1.0, -2.0, 4.0]));
        problem.output(F16).answer(|x| x[0].map(|v| v.max(0.0)))
    }

    fn bytes(values: [f64; 3]) -> Vec<Vec<u8>> {
        vec![values.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect()]
    }

    #[test]
    fn the_farthest_element_is_named() {
        let (host, emulator) = (bytes([1.0, 0.0, 4.0]), bytes([1.0, 0.5, 3.875]));
        let answers = Answers { host: Some(&host), emulator: Some(&emulator) };
        assert_eq!(
            compare(&problem(), answers).unwrap_err().to_string(),
            "`Relu`, made up (f16), output 0, element 1: host 0, emulator 0.5, reference 0; \
             emulator and reference differ by 5.000e-1, tolerance 8.000e-3 (2e-3)"
        );
    }

    #[test]
    fn what_is_no_number_is_off_and_what_is_near_is_not() {
        let nan = bytes([1.0, f64::NAN, 4.0]);
        assert!(compare(&problem(), Answers { host: Some(&nan), emulator: None }).is_err());
        let near = bytes([1.0, 0.0, 4.0 - 1.0 / 256.0]);
        assert!(compare(&problem(), Answers { host: None, emulator: Some(&near) }).is_ok());
        assert!(compare(&problem(), Answers { host: Some(&near), emulator: None }).is_err());
        assert!(compare(&problem().exact(), Answers { host: None, emulator: Some(&near) }).is_err());
    }
}

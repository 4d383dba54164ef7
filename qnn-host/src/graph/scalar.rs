//! Arithmetic on single elements and on pairs: the operations that elementwise ops, reductions and scatters apply.

/// An operation on two elements. Comparisons and logic yield 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are QNN's")]
pub(crate) enum BinaryOp {
    Add,
    And,
    Divide,
    Equal,
    FloorDiv,
    Fmod,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Maximum,
    Minimum,
    Mod,
    Multiply,
    NotEqual,
    Or,
    Power,
    SquaredDifference,
    Subtract,
    Xor,
}

impl BinaryOp {
    /// Takes anything that compares, yields 0 or 1.
    pub(crate) fn is_comparison(self) -> bool {
        use BinaryOp::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        matches!(self, Equal | Greater | GreaterEqual | Less | LessEqual | NotEqual)
    }

    /// Takes truth values: 0 or not 0.
    pub(crate) fn is_logic(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor)
    }

    /// For profiles.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Add => "Add",
            Self::And => "And",
            Self::Divide => "Divide",
            Self::Equal => "Equal",
            Self::FloorDiv => "FloorDiv",
            Self::Fmod => "Fmod",
            Self::Greater => "Greater",
            Self::GreaterEqual => "GreaterEqual",
            Self::Less => "Less",
            Self::LessEqual => "LessEqual",
            Self::Maximum => "Maximum",
            Self::Minimum => "Minimum",
            Self::Mod => "Mod",
            Self::Multiply => "Multiply",
            Self::NotEqual => "NotEqual",
            Self::Or => "Or",
            Self::Power => "Power",
            Self::SquaredDifference => "SquaredDifference",
            Self::Subtract => "Subtract",
            Self::Xor => "Xor",
        }
    }
}

/// An operation on one element.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are QNN's")]
pub(crate) enum UnaryOp {
    Abs,
    Asin,
    Atan,
    Ceil,
    Cos,
    Exp,
    Floor,
    Log,
    Neg,
    Not,
    Reciprocal,
    /// Halves go to the even neighbour.
    Round,
    Rsqrt,
    Sign,
    Sin,
    Sqrt,
    /// `x` or `alpha * (e^x - 1)` below zero.
    Elu(f32),
    /// The form with the error function.
    Gelu,
    /// `alpha * x + beta`, cut to 0..1.
    HardSigmoid(f32, f32),
    HardSwish,
    /// Cut to an interval: all kinds of `Relu`.
    Clamp(f32, f32),
    Sigmoid,
    /// `ln(1 + e^(beta x)) / beta`; `x` itself where `beta x` is above a positive threshold.
    Softplus {
        beta: f32,
        threshold: f32,
    },
    Tanh,
}

impl UnaryOp {
    /// Whether it is defined on integers; others are converted first.
    pub(crate) fn takes_ints(self) -> bool {
        matches!(self, Self::Abs | Self::Neg | Self::Not | Self::Sign | Self::Clamp(..))
    }

    /// For profiles.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Abs => "Abs",
            Self::Asin => "Asin",
            Self::Atan => "Atan",
            Self::Ceil => "Ceil",
            Self::Cos => "Cos",
            Self::Exp => "Exp",
            Self::Floor => "Floor",
            Self::Log => "Log",
            Self::Neg => "Neg",
            Self::Not => "Not",
            Self::Reciprocal => "Reciprocal",
            Self::Round => "Round",
            Self::Rsqrt => "Rsqrt",
            Self::Sign => "Sign",
            Self::Sin => "Sin",
            Self::Sqrt => "Sqrt",
            Self::Elu(_) => "Elu",
            Self::Gelu => "Gelu",
            Self::HardSigmoid(..) => "HardSigmoid",
            Self::HardSwish => "HardSwish",
            Self::Clamp(..) => "Relu",
            Self::Sigmoid => "Sigmoid",
            Self::Softplus { .. } => "Softplus",
            Self::Tanh => "Tanh",
        }
    }

    /// On a number.
    pub(crate) fn real(self, x: f32) -> f32 {
        match self {
            Self::Abs => x.abs(),
            Self::Asin => x.asin(),
            Self::Atan => x.atan(),
            Self::Ceil => x.ceil(),
            Self::Cos => x.cos(),
            Self::Exp => x.exp(),
            Self::Floor => x.floor(),
            Self::Log => x.ln(),
            Self::Neg => -x,
            Self::Not => f32::from(x == 0.0),
            Self::Reciprocal => 1.0 / x,
            Self::Round => x.round_ties_even(),
            Self::Rsqrt => 1.0 / x.sqrt(),
            Self::Sign if x == 0.0 => 0.0,
            Self::Sign => x.signum(),
            Self::Sin => x.sin(),
            Self::Sqrt => x.sqrt(),
            Self::Elu(alpha) if x < 0.0 => alpha * x.exp_m1(),
            Self::Elu(_) => x,
            Self::Gelu => (f64::from(x) * 0.5 * erfc(-f64::from(x) * std::f64::consts::FRAC_1_SQRT_2)) as f32,
            Self::HardSigmoid(alpha, beta) => (alpha * x + beta).clamp(0.0, 1.0),
            Self::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
            Self::Clamp(low, high) => x.max(low).min(high),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Softplus { beta, threshold } if threshold > 0.0 && beta * x > threshold => x,
            Self::Softplus { beta, .. } => ((beta * x).max(0.0) + (-(beta * x).abs()).exp().ln_1p()) / beta,
            Self::Tanh => x.tanh(),
        }
    }

    /// On an integer; only for those that [`UnaryOp::takes_ints`].
    pub(crate) fn int(self, x: i32) -> i32 {
        match self {
            Self::Abs => x.wrapping_abs(),
            Self::Neg => x.wrapping_neg(),
            Self::Not => i32::from(x == 0),
            Self::Sign => x.signum(),
            Self::Clamp(low, high) => f64::from(x).max(f64::from(low)).min(f64::from(high)) as i32,
            other => unreachable!("{other:?} takes numbers; lowering converts integers"),
        }
    }
}

/// The complementary error function, to about 1e-7 relative.
///
/// *Source*: a Chebyshev fit of `ln(erfc(x) / t) + x^2` over `t = 1 / (1 + x / 2)`, as in Numerical Recipes (third
/// edition, section 6.2.2).
fn erfc(x: f64) -> f64 {
    const C: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let poly = C.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let tail = t * (poly - x * x).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

/// What becomes of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are QNN's")]
pub(crate) enum ReduceOp {
    Mean,
    Sum,
    Max,
    Min,
    Prod,
}

impl ReduceOp {
    /// For profiles.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Mean => "ReduceMean",
            Self::Sum => "ReduceSum",
            Self::Max => "ReduceMax",
            Self::Min => "ReduceMin",
            Self::Prod => "ReduceProd",
        }
    }
}

/// How an update meets what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScatterOp {
    Replace,
    Add,
    Multiply,
    Max,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erfc_has_known_values() {
        let cases =
            [(0.0, 1.0), (0.5, 0.479_500_122), (1.0, 0.157_299_207), (-1.0, 1.842_700_793), (3.0, 2.209_049_7e-5)];
        for (x, expected) in cases {
            let found = erfc(x);
            assert!((found - expected).abs() <= 3e-7 * expected, "erfc({x}) = {found}, expected {expected}");
        }
    }

    #[test]
    fn unary_operations_have_known_values() {
        let cases = [
            (UnaryOp::Gelu, 1.0, 0.841_344_7),
            (UnaryOp::Gelu, -8.0, -5.0e-15),
            (UnaryOp::HardSwish, 1.0, 4.0 / 6.0),
            (UnaryOp::Elu(2.0), -1.0, 2.0 * (std::f32::consts::E.recip() - 1.0)),
            (UnaryOp::Softplus { beta: 1.0, threshold: -1.0 }, 100.0, 100.0),
            (UnaryOp::Softplus { beta: 2.0, threshold: -1.0 }, 0.0, std::f32::consts::LN_2 / 2.0),
            (UnaryOp::Round, 2.5, 2.0),
            (UnaryOp::Sign, -3.0, -1.0),
            (UnaryOp::Clamp(0.0, 6.0), 9.0, 6.0),
            (UnaryOp::Not, 0.0, 1.0),
            (UnaryOp::HardSigmoid(0.2, 0.5), 1.0, 0.7),
        ];
        for (op, x, expected) in cases {
            let found = op.real(x);
            assert!((found - expected).abs() < 1e-6, "{op:?}({x}) = {found}, expected {expected}");
        }
        assert_eq!(UnaryOp::Clamp(0.0, f32::INFINITY).int(-4), 0);
        assert_eq!(UnaryOp::Abs.int(i32::MIN), i32::MIN);
    }
}

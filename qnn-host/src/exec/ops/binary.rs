//! Operations on pairs of elements, broadcast, and the choice between two.

use crate::graph::scalar::BinaryOp;
use crate::graph::walk::Walk;
use crate::step::{Fault, Fill};
use crate::step::{Lane32, RunContext, Src};

/// Two operands and how they are walked.
pub(crate) struct Pair {
    pub(crate) op: BinaryOp,
    pub(crate) a: Src,
    pub(crate) b: Src,
    pub(crate) walk: Walk<2>,
}

impl Pair {
    /// `out[i] = f(a[i], b[i])`.
    fn map<A: Lane32, R>(&self, cx: &RunContext<'_>, first: usize, out: &mut [R], f: impl Fn(A, A) -> R) {
        let (a, b) = (cx.read::<A>(&self.a), cx.read::<A>(&self.b));
        self.walk.runs(first, out.len(), |run| {
            let out = &mut out[run.at..run.at + run.len];
            let [i, j] = run.start.map(|s| s as usize);
            match run.step {
                [1, 1] => {
                    let (a, b) = (&a[i..i + run.len], &b[j..j + run.len]);
                    out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (&a, &b))| *o = f(a, b));
                }
                [1, 0] => {
                    let b = b[j];
                    out.iter_mut().zip(&a[i..i + run.len]).for_each(|(o, &a)| *o = f(a, b));
                }
                [0, 1] => {
                    let a = a[i];
                    out.iter_mut().zip(&b[j..j + run.len]).for_each(|(o, &b)| *o = f(a, b));
                }
                [p, q] => {
                    let (p, q) = (p as usize, q as usize);
                    out.iter_mut().enumerate().for_each(|(n, o)| *o = f(a[i + n * p], b[j + n * q]));
                }
            }
        });
    }

    /// Comparisons of any type.
    fn compare<A: Lane32 + PartialOrd>(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) {
        match self.op {
            BinaryOp::Equal => self.map(cx, first, out, |a: A, b| i32::from(a == b)),
            BinaryOp::Greater => self.map(cx, first, out, |a: A, b| i32::from(a > b)),
            BinaryOp::GreaterEqual => self.map(cx, first, out, |a: A, b| i32::from(a >= b)),
            BinaryOp::Less => self.map(cx, first, out, |a: A, b| i32::from(a < b)),
            BinaryOp::LessEqual => self.map(cx, first, out, |a: A, b| i32::from(a <= b)),
            _ => self.map(cx, first, out, |a: A, b| i32::from(a != b)),
        }
    }
}

/// `f32, f32 -> f32`.
pub(crate) struct RealBinary(pub(crate) Pair);

impl Fill for RealBinary {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let pair = &self.0;
        match pair.op {
            BinaryOp::Add => pair.map(cx, first, out, |a: f32, b| a + b),
            BinaryOp::Subtract => pair.map(cx, first, out, |a: f32, b| a - b),
            BinaryOp::Multiply => pair.map(cx, first, out, |a: f32, b| a * b),
            BinaryOp::Divide => pair.map(cx, first, out, |a: f32, b| a / b),
            BinaryOp::Maximum => pair.map(cx, first, out, f32::max),
            BinaryOp::Minimum => pair.map(cx, first, out, f32::min),
            BinaryOp::Power => pair.map(cx, first, out, f32::powf),
            BinaryOp::SquaredDifference => pair.map(cx, first, out, |a: f32, b| (a - b) * (a - b)),
            BinaryOp::FloorDiv => pair.map(cx, first, out, |a: f32, b| (a / b).floor()),
            BinaryOp::Fmod => pair.map(cx, first, out, |a: f32, b| a % b),
            BinaryOp::Mod => pair.map(cx, first, out, |a: f32, b| a - (a / b).floor() * b),
            op => unreachable!("{op:?} yields integers; lowering gave it an integer output"),
        }
        Ok(())
    }
}

/// `i32, i32 -> i32`. Sums and products wrap; division by zero gives 0.
pub(crate) struct IntBinary(pub(crate) Pair);

impl Fill for IntBinary {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let pair = &self.0;
        let guarded = |a: i32, b: i32, f: fn(i32, i32) -> i32| if b == 0 { 0 } else { f(a, b) };
        match pair.op {
            op if op.is_comparison() => pair.compare::<i32>(cx, first, out),
            BinaryOp::Add => pair.map(cx, first, out, i32::wrapping_add),
            BinaryOp::Subtract => pair.map(cx, first, out, i32::wrapping_sub),
            BinaryOp::Multiply => pair.map(cx, first, out, i32::wrapping_mul),
            BinaryOp::Divide => pair.map(cx, first, out, |a, b| guarded(a, b, i32::wrapping_div)),
            BinaryOp::Maximum => pair.map(cx, first, out, |a: i32, b| a.max(b)),
            BinaryOp::Minimum => pair.map(cx, first, out, |a: i32, b| a.min(b)),
            BinaryOp::Power => pair.map(cx, first, out, int_power),
            BinaryOp::SquaredDifference => pair.map(cx, first, out, |a: i32, b| {
                let d = a.wrapping_sub(b);
                d.wrapping_mul(d)
            }),
            BinaryOp::FloorDiv => pair.map(cx, first, out, |a, b| guarded(a, b, floor_div)),
            BinaryOp::Fmod => pair.map(cx, first, out, |a, b| guarded(a, b, i32::wrapping_rem)),
            BinaryOp::Mod => {
                pair.map(cx, first, out, |a, b| guarded(a, b, |a, b| a.wrapping_sub(floor_div(a, b).wrapping_mul(b))))
            }
            BinaryOp::And => pair.map(cx, first, out, |a: i32, b: i32| i32::from(a != 0 && b != 0)),
            BinaryOp::Or => pair.map(cx, first, out, |a: i32, b: i32| i32::from(a != 0 || b != 0)),
            _ => pair.map(cx, first, out, |a: i32, b: i32| i32::from((a != 0) != (b != 0))),
        }
        Ok(())
    }
}

fn floor_div(a: i32, b: i32) -> i32 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn int_power(base: i32, exponent: i32) -> i32 {
    match u32::try_from(exponent) {
        Ok(exponent) => base.wrapping_pow(exponent),
        Err(_) => match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        },
    }
}

/// `f32, f32 -> i32` for comparisons.
pub(crate) struct RealComparison(pub(crate) Pair);

impl Fill for RealComparison {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        self.0.compare::<f32>(cx, first, out);
        Ok(())
    }
}

/// `condition ? a : b`, all broadcast; elements are moved as they are.
pub(crate) struct Select {
    pub(crate) condition: Src,
    pub(crate) a: Src,
    pub(crate) b: Src,
    pub(crate) walk: Walk<3>,
}

impl Fill for Select {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let condition = cx.read::<i32>(&self.condition);
        let (a, b) = (cx.read::<u32>(&self.a), cx.read::<u32>(&self.b));
        self.walk.runs(first, out.len(), |run| {
            for (i, out) in out[run.at..run.at + run.len].iter_mut().enumerate() {
                let [c, x, y]: [usize; 3] = std::array::from_fn(|o| (run.start[o] + i as isize * run.step[o]) as usize);
                *out = if condition[c] != 0 { a[x] } else { b[y] };
            }
        });
        Ok(())
    }
}

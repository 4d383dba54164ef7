//! `RotaryEmbedding`: rows turned by the angles of their positions, half-split or interleaved.

use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U16};
use crate::suite::values::Values;

const HEADS: usize = 4;
const ROWS: usize = 5;
const DIM: usize = 32;
const HALF: usize = DIM / 2;

pub(super) fn problems() -> Vec<Problem> {
    vec![
        rotary("half-split", F16, false),
        rotary("half-split", F32, false),
        rotary("interleaved", F16, true),
        rotary("half-split", U16, false),
        by_ids(),
    ]
}

/// `f` of the angle at a position and a pair.
fn table(rows: usize, f: fn(f64) -> f64) -> Values {
    Values::from_fn([1, rows, HALF], move |i| f(i[1] as f64 * 100f64.powf(-(i[2] as f64) / HALF as f64)))
}

fn problem(case: &str, interleaved: bool) -> Problem {
    Problem::of("RotaryEmbedding", case)
        .param("interleaved", Param::Bool(interleaved))
        .param("rotary_embedding_dim", Param::U32(DIM as u32))
}

fn rotary(case: &str, ty: Ty, interleaved: bool) -> Problem {
    problem(case, interleaved)
        .input(ty.clone(), Values::noise(251, [1, HEADS, ROWS, DIM], 2.0))
        .input(ty.clone(), table(ROWS, f64::cos))
        .input(ty.clone(), table(ROWS, f64::sin))
        .output(ty)
        .answer(move |x| turned(&x[0], |row, pair| (x[1].at(&[0, row, pair]), x[2].at(&[0, row, pair])), interleaved))
}

fn by_ids() -> Problem {
    problem("tables and positions", false)
        .input(F16, Values::noise(252, [1, HEADS, ROWS, DIM], 2.0))
        .constant(F16, table(24, f64::cos).reshaped([24, HALF]))
        .constant(F16, table(24, f64::sin).reshaped([24, HALF]))
        .input(I32, Values::new([1, ROWS], vec![7.0, 8.0, 9.0, 20.0, 0.0]))
        .output(F16)
        .answer(|x| {
            let at = |row: usize| x[3].at(&[0, row]) as usize;
            turned(&x[0], |row, pair| (x[1].at(&[at(row), pair]), x[2].at(&[at(row), pair])), false)
        })
}

fn turned(x: &Values, angle: impl Fn(usize, usize) -> (f64, f64), interleaved: bool) -> Values {
    Values::from_fn(x.dims.clone(), |i| {
        let (pair, second) = match interleaved {
            true => (i[3] / 2, i[3] % 2 == 1),
            false => (i[3] % HALF, i[3] >= HALF),
        };
        let column = |second: bool| match interleaved {
            true => 2 * pair + usize::from(second),
            false => pair + if second { HALF } else { 0 },
        };
        let (a, b) = (x.at(&[0, i[1], i[2], column(false)]), x.at(&[0, i[1], i[2], column(true)]));
        let (cos, sin) = angle(i[2], pair);
        if second { b * cos + a * sin } else { a * cos - b * sin }
    })
}

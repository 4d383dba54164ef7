//! `Conv2d`: NHWC by HWIO, pads `[[top, bottom], [left, right]]`. 1 x 1 is how projections are often written.

use qnn_api::Param;

use super::linear::{htp_bound, pairs};
use crate::suite::Problem;
use crate::suite::codec::{F16, Fit, Ty, U16, of};
use crate::suite::values::Values;

#[derive(Clone, Copy)]
struct Shape {
    x: [usize; 4],
    w: [usize; 4],
    stride: [usize; 2],
    pads: [usize; 4],
    dilation: [usize; 2],
    group: usize,
}

const ONE: Shape =
    Shape { x: [1, 1, 5, 64], w: [1, 1, 64, 40], stride: [1, 1], pads: [0; 4], dilation: [1, 1], group: 1 };

pub(super) fn problems() -> Vec<Problem> {
    let mut all: Vec<Problem> = pairs(3).into_iter().map(|(x, w)| conv("1 x 1 projection", x, w, None, ONE)).collect();
    all.push(conv("1 x 1 with bias", F16, F16, Some(F16), ONE));
    let s32 = of(genie_types::Dtype::SFixed32).with(Fit::Product(0, 1));
    all.push(conv("1 x 1 with bias", U16, Ty::s8_by(3), Some(s32), ONE));
    let square = Shape { x: [1, 6, 7, 8], w: [3, 3, 8, 12], ..ONE };
    all.push(conv("3 x 3, padded", F16, F16, None, Shape { pads: [1, 1, 1, 1], ..square }));
    all.push(conv("3 x 3, stride 2", F16, F16, None, Shape { stride: [2, 2], ..square }));
    all.push(conv("3 x 3, dilated", F16, F16, None, Shape { dilation: [2, 2], pads: [2, 2, 2, 2], ..square }));
    all.push(conv("3 x 3, two groups", F16, F16, None, Shape { w: [3, 3, 4, 12], group: 2, ..square }));
    all
}

fn conv(case: &str, x: Ty, w: Ty, bias: Option<Ty>, shape: Shape) -> Problem {
    let pads: Vec<u32> = shape.pads.iter().map(|&p| p as u32).collect();
    let mut problem = Problem::of("Conv2d", case)
        .input(x.clone(), Values::noise(31, shape.x, 1.0))
        .constant(w.clone(), Values::noise(32, shape.w, 0.5))
        .list("stride", &shape.stride)
        .param("pad_amount", Param::U32Tensor { dims: vec![2, 2], data: pads });
    if shape.dilation != [1, 1] {
        problem = problem.list("dilation", &shape.dilation);
    }
    if shape.group != 1 {
        problem = problem.count("group", shape.group);
    }
    if let Some(bias) = bias {
        problem = problem.constant(bias, Values::noise(33, [shape.w[3]], 1.0));
    }
    let problem = problem.output(x).answer(move |x| convolved(&x[0], &x[1], x.get(2), shape));
    let usual = problem.bounds.htp;
    problem.htp_within(htp_bound(&w, usual))
}

fn convolved(x: &Values, w: &Values, bias: Option<&Values>, shape: Shape) -> Values {
    let Shape { x: [n, h, wide, _], w: [kh, kw, ci, co], stride, pads, dilation, group } = shape;
    let out = |size: usize, pad: usize, k: usize, axis: usize| {
        (size + pad - (dilation[axis] * (k - 1) + 1)) / stride[axis] + 1
    };
    let dims = [n, out(h, pads[0] + pads[1], kh, 0), out(wide, pads[2] + pads[3], kw, 1), co];
    Values::from_fn(dims, |i| {
        let first = i[3] / (co / group) * ci;
        let mut sum = bias.map_or(0.0, |b| b.data[i[3]]);
        for a in 0..kh {
            for b in 0..kw {
                let row = (i[1] * stride[0] + a * dilation[0]).checked_sub(pads[0]).filter(|&r| r < h);
                let col = (i[2] * stride[1] + b * dilation[1]).checked_sub(pads[2]).filter(|&c| c < wide);
                if let (Some(row), Some(col)) = (row, col) {
                    sum += (0..ci).map(|c| x.at(&[i[0], row, col, first + c]) * w.at(&[a, b, c, i[3]])).sum::<f64>();
                }
            }
        }
        sum
    })
}

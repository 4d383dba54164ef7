//! Softmax, norms, reductions, ranking, rotation.

use super::reference::{Case, T};
use crate::ir::{Dtype, Param};
use crate::testing::ints;

#[test]
fn softmax_along_any_axis() {
    let x = T::noise(&[3, 4, 37], 1);
    for axis in 0..3 {
        for beta in [1.0, 0.5] {
            let exp = |i: &[usize]| (x.at(i) * beta).exp();
            let sum = |i: &[usize]| {
                let mut at = i.to_vec();
                (0..x.dims[axis])
                    .map(|j| {
                        at[axis] = j;
                        exp(&at)
                    })
                    .sum::<f64>()
            };
            let case = |op| {
                Case::new(op).param("axis", Param::UInt(axis as u64)).param("beta", Param::F32(beta as f32)).input(&x)
            };
            case("Softmax").yields(T::of(&x.dims, |i| exp(i) / sum(i)));
            case("LogSoftmax").yields(T::of(&x.dims, |i| (exp(i) / sum(i)).ln()));
        }
    }
    let hidden = T::list(&[2, 3], &[-1e4, -1e4, -1e4, 0.0, -1e4, 0.0]);
    let third = 1.0 / 3.0;
    Case::new("Softmax").input(&hidden).yields(T::list(&[2, 3], &[third, third, third, 0.5, 0.0, 0.5]));
}

#[test]
fn norms() {
    let x = T::noise(&[2, 3, 65], 2);
    let (gamma, beta) = (T::noise(&[65], 3), T::noise(&[65], 4));
    let row = |i: &[usize]| (0..65).map(|j| x.at(&[i[0], i[1], j])).collect::<Vec<f64>>();
    let rms = |i: &[usize]| (row(i).iter().map(|x| x * x).sum::<f64>() / 65.0 + 1e-5).sqrt();
    let case = |op| Case::new(op).param("epsilon", Param::F32(1e-5)).param("axes", ints(&[2])).input(&x);
    case("RmsNorm").yields(T::of(&x.dims, |i| x.at(i) / rms(i)));
    case("RmsNorm").input(&gamma).yields(T::of(&x.dims, |i| x.at(i) / rms(i) * gamma.at(i)));
    let whole = T::of(&x.dims, |i| x.at(i) / rms(i) * gamma.at(i) + beta.at(i));
    case("RmsNorm").input(&gamma).input(&beta).yields(whole);
    let mean = |i: &[usize]| row(i).iter().sum::<f64>() / 65.0;
    let spread = |i: &[usize]| (row(i).iter().map(|x| (x - mean(i)).powi(2)).sum::<f64>() / 65.0 + 1e-5).sqrt();
    let whole = T::of(&x.dims, |i| (x.at(i) - mean(i)) / spread(i) * gamma.at(i) + beta.at(i));
    case("LayerNorm").input(&gamma).input(&beta).yields(whole);
    for axes in [vec![2], vec![0, 2], vec![1]] {
        let square = |i: &[usize]| {
            T::of(&x.dims, |j| if (0..3).all(|a| axes.contains(&a) || i[a] == j[a]) { x.at(j).powi(2) } else { 0.0 })
                .data
                .iter()
                .sum::<f64>()
        };
        let params: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        Case::new("L2Norm")
            .param("axes", ints(&params))
            .input(&x)
            .yields(T::of(&x.dims, |i| x.at(i) / square(i).sqrt()));
    }
}

#[test]
fn reductions_over_any_axes() {
    let x = T::noise(&[3, 4, 5], 5);
    for axes in [vec![2], vec![0], vec![0, 2], vec![1], vec![0, 1, 2]] {
        for keep in [false, true] {
            let kept: Vec<usize> = (0..3).map(|a| if axes.contains(&a) { 1 } else { x.dims[a] }).collect();
            let dims: Vec<usize> = (0..3).filter(|a| keep || !axes.contains(a)).map(|a| kept[a]).collect();
            let dims = if dims.is_empty() { vec![1] } else { dims };
            let elems = |i: &[usize]| {
                T::of(&x.dims, |j| if (0..3).all(|a| axes.contains(&a) || i[a] == j[a]) { x.at(j) } else { f64::NAN })
                    .data
                    .into_iter()
                    .filter(|x| !x.is_nan())
                    .collect::<Vec<f64>>()
            };
            let of = |f: &dyn Fn(&[f64]) -> f64| T::list(&dims, &T::of(&kept, |i| f(&elems(i))).data);
            let params: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
            let case = |op| Case::new(op).param("axes", ints(&params)).param("keep_dims", Param::Bool(keep)).input(&x);
            case("ReduceSum").yields(of(&|e| e.iter().sum()));
            case("ReduceMean").yields(of(&|e| e.iter().sum::<f64>() / e.len() as f64));
            case("ReduceMax").yields(of(&|e| e.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
            case("ReduceMin").yields(of(&|e| e.iter().copied().fold(f64::INFINITY, f64::min)));
        }
    }
    const NAN: f64 = f64::NAN;
    let odd = T::list(&[4, 3], &[NAN, 1.0, 2.0, 1.0, NAN, 2.0, 1.0, 2.0, NAN, 3.0, 1.0, 2.0]);
    for (op, of_numbers) in [("ReduceMax", 3.0), ("ReduceMin", 1.0)] {
        let case = Case::new(op).param("axes", ints(&[1])).input(&odd);
        case.yields(T::list(&[4], &[NAN, NAN, NAN, of_numbers]));
    }
    let ids = T::list(&[2, 3], &[1.0, -2.0, 5.0, 4.0, 0.0, 9.0]);
    let case = Case::new("ReduceSum").param("axes", ints(&[1])).typed(&ids, Dtype::I32);
    case.output_typed(T::list(&[2], &[4.0, 13.0]), Dtype::I32).check();
}

#[test]
fn running_sums() {
    let x = T::of(&[2, 4, 3], |i| (i[0] + 2 * i[1] + 3 * i[2]) as f64);
    for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
        let sum = |i: &[usize]| {
            let before = |j: usize| if reverse { j > i[1] } else { j < i[1] };
            (0..4).filter(|&j| before(j) || (j == i[1] && !exclusive)).map(|j| x.at(&[i[0], j, i[2]])).sum::<f64>()
        };
        let case = |dtype| {
            let case =
                Case::new("CumulativeSum").param("axis", Param::UInt(1)).param("exclusive", Param::Bool(exclusive));
            case.param("reverse", Param::Bool(reverse)).typed(&x, dtype)
        };
        case(Dtype::F32).yields(T::of(&x.dims, sum));
        case(Dtype::I32).output_typed(T::of(&x.dims, sum), Dtype::I32).check();
    }
}

#[test]
fn ranking() {
    let x = T::list(&[2, 6], &[3.0, 1.0, 4.0, 1.0, 5.0, 4.0, -1.0, -1.0, 0.0, 7.0, 2.0, 7.0]);
    let argmax = Case::new("Argmax").param("axis", Param::UInt(1)).typed(&x, Dtype::F32);
    argmax.output_typed(T::list(&[2], &[4.0, 3.0]), Dtype::I32).check();
    let top = |largest| Case::new("TopK").param("k", Param::UInt(3)).param("largest", Param::Bool(largest)).input(&x);
    top(true)
        .output(T::list(&[2, 3], &[5.0, 4.0, 4.0, 7.0, 7.0, 2.0]))
        .output_typed(T::list(&[2, 3], &[4.0, 2.0, 5.0, 3.0, 5.0, 4.0]), Dtype::U32)
        .check();
    top(false)
        .output(T::list(&[2, 3], &[1.0, 1.0, 3.0, -1.0, -1.0, 0.0]))
        .output_typed(T::list(&[2, 3], &[1.0, 3.0, 0.0, 0.0, 1.0, 2.0]), Dtype::I32)
        .check();
}

#[test]
fn rotation() {
    let x = T::noise(&[2, 3, 5, 8], 6);
    for (rotated, interleaved) in [(8, false), (8, true), (6, false), (6, true)] {
        let half = rotated / 2;
        let angle = T::noise(&[5, half], 7);
        let (cos, sin) = (
            T::of(&[1, 5, half], |i| f64::from(angle.at(&i[1..]).cos() as f32)),
            T::of(&[1, 5, half], |i| f64::from(angle.at(&i[1..]).sin() as f32)),
        );
        let wanted = T::of(&x.dims, |i| {
            let d = i[3];
            if d >= rotated {
                return x.at(i);
            }
            let (j, second) = if interleaved { (d / 2, d % 2 == 1) } else { (d % half, d >= half) };
            let (p, q) = if interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
            let at = |d| x.at(&[i[0], i[1], i[2], d]);
            let (c, s) = (cos.at(&[0, i[2], j]), sin.at(&[0, i[2], j]));
            if second { at(q) * c + at(p) * s } else { at(p) * c - at(q) * s }
        });
        let case = |cos: &T, sin: &T| {
            let case = Case::new("RotaryEmbedding").param("interleaved", Param::Bool(interleaved));
            case.param("rotary_embedding_dim", Param::UInt(rotated as u64)).input(&x).input(cos).input(sin)
        };
        case(&cos, &sin).yields(wanted.clone());
        let batched = |t: &T| T::of(&[2, 5, half], |i| t.at(&[0, i[1], i[2]]));
        case(&batched(&cos), &batched(&sin)).yields(wanted.clone());
        // The same rows from a longer table, by position.
        let positions = T::list(&[2, 5], &[6.0, 2.0, 0.0, 5.0, 1.0].repeat(2));
        let table = |t: &T| {
            T::of(&[8, half], |i| {
                positions.data.iter().position(|&p| p == i[0] as f64).map_or(9.0, |r| t.at(&[0, r, i[1]]))
            })
        };
        case(&table(&cos), &table(&sin)).typed(&positions, Dtype::I32).yields(wanted);
    }
}

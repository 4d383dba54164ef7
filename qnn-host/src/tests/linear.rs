//! Products of matrices in all forms.

use super::reference::{Case, T};
use crate::ir::{Dtype, Param};
use crate::testing::ints;

#[test]
fn fully_connected() {
    for (m, k, n) in [(1, 33, 20), (3, 64, 7), (20, 40, 130)] {
        let (x, w, b) = (T::noise(&[m, k], 1), T::noise(&[n, k], 2), T::noise(&[n], 3));
        let product = |i: &[usize]| (0..k).map(|j| x.at(&[i[0], j]) * w.at(&[i[1], j])).sum::<f64>();
        let case = || Case::new("FullyConnected").input(&x).input(&w).within(1e-5);
        case().yields(T::of(&[m, n], product));
        case().input(&b).yields(T::of(&[m, n], |i| product(i) + b.at(&i[1..])));
    }
    let x = T::noise(&[1, 4, 6], 4);
    let w = T::noise(&[5, 6], 5);
    let wanted = T::of(&[4, 5], |i| (0..6).map(|j| x.at(&[0, i[0], j]) * w.at(&[i[1], j])).sum());
    Case::new("FullyConnected").input(&x).input(&w).within(1e-5).yields(wanted.clone());
    let kept = Case::new("FullyConnected").param("keep_dims", Param::Bool(true)).input(&x).input(&w).within(1e-5);
    kept.yields(T::list(&[1, 4, 5], &wanted.data));
}

#[test]
fn mat_mul_broadcasts_and_transposes() {
    let batches: [(&[usize], &[usize], &[usize]); 5] = [
        (&[], &[], &[]),
        (&[2, 3], &[2, 3], &[2, 3]),
        (&[2, 3], &[2, 1], &[2, 3]),
        (&[4], &[2, 1], &[2, 4]),
        (&[2], &[], &[2]),
    ];
    let (m, k, n) = (3, 5, 4);
    for (batch_a, batch_b, batch) in batches {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let shape = |batch: &[usize], r: usize, c: usize, turned: bool| {
                let mut shape = batch.to_vec();
                shape.extend(if turned { [c, r] } else { [r, c] });
                shape
            };
            let (a, b) = (T::noise(&shape(batch_a, m, k, ta), 1), T::noise(&shape(batch_b, k, n, tb), 2));
            let of = |t: &T, batch: &[usize], r: usize, c: usize, turned: bool| t.at(&shape(batch, r, c, turned));
            let wanted = T::of(&[batch, &[m, n]].concat(), |i| {
                let (batch, at) = i.split_at(i.len() - 2);
                (0..k).map(|j| of(&a, batch, at[0], j, ta) * of(&b, batch, j, at[1], tb)).sum()
            });
            let case =
                Case::new("MatMul").param("transpose_in0", Param::Bool(ta)).param("transpose_in1", Param::Bool(tb));
            case.input(&a).input(&b).within(1e-5).yields(wanted);
        }
    }
}

#[test]
fn convolutions() {
    let x = T::noise(&[1, 5, 6, 4], 3);
    for (kernel, stride, pad, dilation, groups) in [
        ([1, 1], [1, 1], [0, 0, 0, 0], [1, 1], 1),
        ([3, 2], [1, 1], [1, 1, 0, 1], [1, 1], 1),
        ([2, 3], [2, 1], [0, 1, 1, 1], [2, 2], 2),
        ([1, 1], [2, 2], [0, 0, 0, 0], [1, 1], 1),
    ] {
        let (w, b) = (T::noise(&[kernel[0], kernel[1], 4 / groups, 6], 4), T::noise(&[6], 5));
        let extent =
            |a: usize, n: usize| (n + pad[2 * a] + pad[2 * a + 1] - (kernel[a] - 1) * dilation[a] - 1) / stride[a] + 1;
        let wanted = T::of(&[1, extent(0, 5), extent(1, 6), 6], |i| {
            let mut sum = b.at(&i[3..]);
            for (r, s, c) in
                (0..kernel[0]).flat_map(|r| (0..kernel[1]).flat_map(move |s| (0..4 / groups).map(move |c| (r, s, c))))
            {
                let y = (i[1] * stride[0] + r * dilation[0]).checked_sub(pad[0]).filter(|&y| y < 5);
                let z = (i[2] * stride[1] + s * dilation[1]).checked_sub(pad[2]).filter(|&z| z < 6);
                if let (Some(y), Some(z)) = (y, z) {
                    sum += x.at(&[0, y, z, i[3] / (6 / groups) * (4 / groups) + c]) * w.at(&[r, s, c, i[3]]);
                }
            }
            sum
        });
        let list = |v: [usize; 2]| ints(&v.map(|x| x as i64));
        let case = Case::new("Conv2d").param("stride", list(stride)).param("dilation", list(dilation));
        let case = case.param("pad_amount", Param::Ints(vec![2, 2], pad.map(|p| p as i64).to_vec()));
        case.param("group", Param::UInt(groups as u64)).input(&x).input(&w).input(&b).within(1e-5).yields(wanted);
    }
}

#[test]
fn half_weights_are_read_as_they_are() {
    let halves = |dims: &[usize], seed| {
        let t = T::noise(dims, seed);
        T::of(dims, |i| half::f16::from_f64(t.at(i)).to_f64())
    };
    let (x, w, b) = (T::noise(&[2, 48], 6), halves(&[10, 48], 7), halves(&[10], 8));
    let wanted = T::of(&[2, 10], |i| (0..48).map(|j| x.at(&[i[0], j]) * w.at(&[i[1], j])).sum::<f64>() + b.at(&i[1..]));
    Case::new("FullyConnected").input(&x).typed(&w, Dtype::F16).typed(&b, Dtype::F16).within(1e-5).yields(wanted);
}

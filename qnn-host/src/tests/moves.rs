//! Operations that move elements: exact.

use super::reference::{Case, T};
use crate::ir::{Dtype, Param};
use crate::testing::ints;

#[test]
fn reshape_and_friends_keep_the_order() {
    let x = T::noise(&[2, 3, 4], 1);
    for dims in [&[24][..], &[4, 6], &[1, 2, 1, 12]] {
        Case::new("Reshape").input(&x).yields(T::list(dims, &x.data));
    }
    Case::new("ExpandDims").param("axis", Param::UInt(1)).input(&x).yields(T::list(&[2, 1, 3, 4], &x.data));
    let one = T::noise(&[2, 1, 4], 1);
    Case::new("Squeeze").param("axes", ints(&[1])).input(&one).yields(T::list(&[2, 4], &one.data));
}

#[test]
fn transpose() {
    let x = T::noise(&[2, 3, 4, 5], 2);
    for perm in [[0, 2, 1, 3], [3, 2, 1, 0], [1, 0, 3, 2], [0, 1, 2, 3], [2, 3, 0, 1]] {
        let dims: Vec<usize> = perm.iter().map(|&a| x.dims[a]).collect();
        let wanted = T::of(&dims, |i| {
            let mut from = [0; 4];
            perm.iter().zip(i).for_each(|(&a, &i)| from[a] = i);
            x.at(&from)
        });
        let perm: Vec<i64> = perm.iter().map(|&a| a as i64).collect();
        Case::new("Transpose").param("perm", ints(&perm)).input(&x).yields(wanted);
    }
    // Columns of a matrix, in whole blocks and rests, some of whose rows are parts of different threads.
    for (heads, rows, cols) in [(1, 150, 133), (3, 64, 70), (2, 1, 300), (5, 300, 1)] {
        let x = T::noise(&[heads, rows, cols], 3);
        let wanted = T::of(&[heads, cols, rows], |i| x.at(&[i[0], i[2], i[1]]));
        Case::new("Transpose").param("perm", ints(&[0, 2, 1])).input(&x).yields(wanted);
    }
    let thin = T::noise(&[1, 1, 6, 5], 2);
    let turned = T::list(&[6, 1, 1, 5], &thin.data);
    Case::new("Transpose").param("perm", ints(&[2, 1, 0, 3])).input(&thin).yields(turned);
}

#[test]
fn concat_and_pack() {
    let (a, b, c) = (T::noise(&[2, 3, 4], 1), T::noise(&[2, 1, 4], 2), T::noise(&[2, 2, 4], 3));
    let wanted = T::of(&[2, 6, 4], |i| match i[1] {
        0..3 => a.at(i),
        3 => b.at(&[i[0], 0, i[2]]),
        j => c.at(&[i[0], j - 4, i[2]]),
    });
    Case::new("Concat").param("axis", Param::UInt(1)).input(&a).input(&b).input(&c).yields(wanted);
    let d = T::noise(&[2, 3, 5], 4);
    let wanted = T::of(&[2, 3, 9], |i| if i[2] < 4 { a.at(i) } else { d.at(&[i[0], i[1], i[2] - 4]) });
    Case::new("Concat").input(&a).input(&d).yields(wanted);
    let e = T::noise(&[2, 3, 4], 5);
    let wanted =
        T::of(&[2, 2, 3, 4], |i| if i[1] == 0 { a.at(&[i[0], i[2], i[3]]) } else { e.at(&[i[0], i[2], i[3]]) });
    Case::new("Pack").param("axis", Param::UInt(1)).input(&a).input(&e).yields(wanted);
}

#[test]
fn split_and_unpack() {
    let x = T::noise(&[3, 9, 2], 6);
    let part = |from: usize, n: usize| T::of(&[3, n, 2], |i| x.at(&[i[0], from + i[1], i[2]]));
    let case = Case::new("Split").param("axis", Param::UInt(1)).param("split_index", ints(&[2, 5])).input(&x);
    case.output(part(0, 2)).output(part(2, 3)).output(part(5, 4)).check();
    let case = Case::new("Split").param("axis", Param::UInt(1)).param("split_index", ints(&[3, 6])).input(&x);
    case.output(part(0, 3)).output(part(3, 3)).output(part(6, 3)).check();
    let y = T::noise(&[3, 2], 7);
    let column = |j: usize| T::of(&[3], |i| y.at(&[i[0], j]));
    Case::new("UnPack").param("axis", Param::UInt(1)).input(&y).output(column(0)).output(column(1)).check();
}

#[test]
fn strided_slice() {
    let x = T::noise(&[4, 6, 5], 8);
    let ranges = |r: &[i64]| Param::Ints(vec![3, 3], r.to_vec());
    let wanted = T::of(&[2, 3, 5], |i| x.at(&[1 + i[0], 2 * i[1], 4 - i[2]]));
    let all = ranges(&[1, 3, 1, 0, 6, 2, 4, -6, -1]);
    Case::new("StridedSlice").param("ranges", all).input(&x).yields(wanted);
    let wanted = T::of(&[4, 2, 5], |i| x.at(&[i[0], 4 + i[1], i[2]]));
    let masked = Case::new("StridedSlice").param("ranges", ranges(&[2, 3, 1, -2, 1, 1, 0, 5, 1]));
    let masked = masked.param("begin_mask", Param::UInt(1)).param("end_mask", Param::UInt(3));
    masked.input(&x).yields(wanted);
    let wanted = T::of(&[6, 5], |i| x.at(&[3, i[0], i[1]]));
    let shrunk = Case::new("StridedSlice").param("ranges", ranges(&[-1, 0, 1, 0, 6, 1, 0, 5, 1]));
    shrunk.param("shrink_axes", Param::UInt(1)).input(&x).yields(wanted);
}

#[test]
fn tile() {
    let x = T::noise(&[2, 1, 3], 9);
    let wanted = T::of(&[4, 3, 6], |i| x.at(&[i[0] % 2, 0, i[2] % 3]));
    Case::new("Tile").param("multiples", ints(&[2, 3, 2])).input(&x).yields(wanted);
}

#[test]
fn pad() {
    let x = T::noise(&[3, 4], 10);
    let amounts = Param::Ints(vec![2, 2], vec![1, 2, 2, 1]);
    let inside = |i: usize, before: usize, n: usize| i.checked_sub(before).filter(|&i| i < n);
    let mirror = |i: usize, before: usize, n: isize, edge: isize| {
        let i = i as isize - before as isize;
        (if i < 0 {
            -i - edge
        } else if i >= n {
            2 * n - 2 + edge - i
        } else {
            i
        }) as usize
    };
    let case =
        |scheme| Case::new("Pad").param("scheme", Param::UInt(scheme)).param("pad_amount", amounts.clone()).input(&x);
    let constant = T::of(&[6, 7], |i| match (inside(i[0], 1, 3), inside(i[1], 2, 4)) {
        (Some(r), Some(c)) => x.at(&[r, c]),
        _ => 1.5,
    });
    case(0).param("pad_constant_value", Param::F32(1.5)).yields(constant);
    case(1).yields(T::of(&[6, 7], |i| x.at(&[mirror(i[0], 1, 3, 1), mirror(i[1], 2, 4, 1)])));
    case(2).yields(T::of(&[6, 7], |i| x.at(&[mirror(i[0], 1, 3, 0), mirror(i[1], 2, 4, 0)])));
    case(3).yields(T::of(&[6, 7], |i| x.at(&[i[0].saturating_sub(1).min(2), i[1].saturating_sub(2).min(3)])));
}

#[test]
fn integers_and_halves_move_as_well() {
    let x = T::of(&[2, 3], |i| (i[0] * 3 + i[1]) as f64);
    let turned = T::of(&[3, 2], |i| x.at(&[i[1], i[0]]));
    for dtype in [Dtype::I32, Dtype::U32, Dtype::U8, Dtype::F16, Dtype::Bool8] {
        let only = |t: &T| match dtype {
            Dtype::Bool8 => T::of(&t.dims, |i| f64::from(t.at(i) != 0.0)),
            _ => t.clone(),
        };
        let case = Case::new("Transpose").param("perm", ints(&[1, 0])).typed(&only(&x), dtype);
        case.output_typed(only(&turned), dtype).check();
    }
}

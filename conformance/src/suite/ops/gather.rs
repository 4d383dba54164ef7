//! `Gather`, `GatherNd`, `GatherElements`: elements by index; moved, so exact.

use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, S8, Ty, U8, U16, U32};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = vec![
        rows("embedding rows", F16, I32, 0, &[1, 7]),
        rows("embedding rows", F16, U32, 0, &[1, 7]),
        rows("embedding rows", F32, I32, 0, &[1, 7]),
        rows("embedding rows", U16, I32, 0, &[1, 7]),
        rows("embedding rows", U8, I32, 0, &[5]),
        rows("embedding rows", S8, I32, 0, &[5]).htp_deviates("codes come out 128 off"),
        rows("integers", I32, I32, 0, &[6]),
        rows("on the last axis", F16, I32, 1, &[4]),
        rows("index of rank 2 on the last axis", F16, I32, 1, &[2, 3]),
    ];
    for ty in [F16, U16] {
        all.push(nd(ty.clone()));
        all.push(elements(ty));
    }
    all
}

fn rows(case: &str, ty: Ty, index: Ty, axis: usize, picks: &[usize]) -> Problem {
    let table = if ty == I32 { Values::integers(3, [20, 16], -99, 99) } else { Values::noise(3, [20, 16], 2.0) };
    let extent = table.dims[axis] as i64;
    Problem::of("Gather", case)
        .input(ty.clone(), table)
        .input(index, Values::integers(4, picks, 0, extent))
        .param("axis", Param::I32(axis as i32))
        .output(if ty.dtype.is_fixed_point() { ty.like(0) } else { ty })
        .answer(move |x| {
            let (table, index) = (&x[0], &x[1]);
            let n = index.dims.len();
            let dims = [&table.dims[..axis], &index.dims, &table.dims[axis + 1..]].concat();
            Values::from_fn(dims, |i| {
                let pick = index.at(&i[axis..axis + n]) as usize;
                table.at(&[&i[..axis], &[pick], &i[axis + n..]].concat())
            })
        })
        .exact()
}

fn nd(ty: Ty) -> Problem {
    let index = Values::from_fn([3, 2], |i| ((i[0] * 5 + i[1] * 3) % 4) as f64);
    Problem::of("GatherNd", "index rows of 2")
        .input(ty.clone(), Values::noise(5, [4, 6, 8], 2.0))
        .input(I32, index)
        .output(if ty.dtype.is_fixed_point() { ty.like(0) } else { ty })
        .answer(|x| {
            Values::from_fn([3, 8], |i| x[0].at(&[x[1].at(&[i[0], 0]) as usize, x[1].at(&[i[0], 1]) as usize, i[1]]))
        })
        .exact()
}

fn elements(ty: Ty) -> Problem {
    Problem::of("GatherElements", "on the last axis")
        .input(ty.clone(), Values::noise(6, [4, 8], 2.0))
        .input(I32, Values::integers(7, [4, 5], 0, 8))
        .count("axis", 1)
        .output(if ty.dtype.is_fixed_point() { ty.like(0) } else { ty })
        .answer(|x| Values::from_fn([4, 5], |i| x[0].at(&[i[0], x[1].at(i) as usize])))
        .exact()
}

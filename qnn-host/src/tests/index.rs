//! Gathering and scattering: exact.

use super::reference::{Case, T};
use crate::ir::{Dtype, Param};
use crate::testing::ints;

#[test]
fn gather_along_any_axis() {
    let table = T::noise(&[4, 5, 3], 1);
    let index = T::list(&[2, 2], &[3.0, 0.0, 1.0, 3.0]);
    let at = |i: &[usize]| index.at(i) as usize;
    for dtype in [Dtype::I32, Dtype::U32] {
        let wanted = T::of(&[2, 2, 5, 3], |i| table.at(&[at(&i[..2]), i[2], i[3]]));
        Case::new("Gather").param("axis", Param::Int(0)).input(&table).typed(&index, dtype).yields(wanted);
        let wanted = T::of(&[4, 2, 2, 3], |i| table.at(&[i[0], at(&i[1..3]), i[3]]));
        Case::new("Gather").param("axis", Param::Int(1)).input(&table).typed(&index, dtype).yields(wanted);
    }
    let halves = T::of(&[4, 3], |i| (i[0] * 3 + i[1]) as f64);
    let wanted = T::of(&[2, 2, 3], |i| halves.at(&[at(&i[..2]), i[2]]));
    let along = || Case::new("Gather").param("axis", Param::Int(0));
    along().typed(&halves, Dtype::F16).typed(&index, Dtype::I32).output_typed(wanted.clone(), Dtype::F16).check();
    let case = along().typed(&halves, Dtype::I32).typed(&index, Dtype::I32);
    case.output_typed(wanted, Dtype::I32).check();
}

#[test]
fn gather_elements() {
    let table = T::noise(&[3, 4], 2);
    let index = T::of(&[3, 2], |i| ((i[0] * 2 + i[1] * 3) % 4) as f64);
    let wanted = T::of(&[3, 2], |i| table.at(&[i[0], index.at(i) as usize]));
    Case::new("GatherElements").param("axis", Param::UInt(1)).input(&table).typed(&index, Dtype::I32).yields(wanted);
}

#[test]
fn gather_nd() {
    let table = T::noise(&[2, 3, 4, 2], 3);
    let index = T::list(&[2, 2], &[1.0, 2.0, 0.0, 1.0]);
    let wanted =
        T::of(&[2, 4, 2], |i| table.at(&[index.at(&[i[0], 0]) as usize, index.at(&[i[0], 1]) as usize, i[1], i[2]]));
    Case::new("GatherNd").input(&table).typed(&index, Dtype::I32).yields(wanted);
    let index = T::list(&[2, 2, 1], &[2.0, 0.0, 1.0, 1.0]);
    let wanted = T::of(&[2, 2, 4, 2], |i| table.at(&[i[0], index.at(&[i[0], i[1], 0]) as usize, i[2], i[3]]));
    let case = Case::new("GatherNd").param("batch_dims", ints(&[1])).input(&table);
    case.typed(&index, Dtype::I32).yields(wanted);
}

#[test]
fn scatter_elements() {
    let data = T::noise(&[3, 5], 4);
    let index = T::of(&[3, 2], |i| ((i[0] + 3 * i[1]) % 5) as f64);
    let updates = T::noise(&[3, 2], 5);
    for (reduction, meet) in [
        (0, (|_, new| new) as fn(f64, f64) -> f64),
        (1, |old, new| old + new),
        (2, |old, new| old * new),
        (3, f64::max),
    ] {
        let mut wanted = data.clone();
        for row in 0..3 {
            for j in 0..2 {
                let at = row * 5 + index.at(&[row, j]) as usize;
                wanted.data[at] = meet(wanted.data[at], updates.at(&[row, j]));
            }
        }
        let case =
            Case::new("ScatterElements").param("axis", Param::UInt(1)).param("reduction", Param::UInt(reduction));
        case.input(&data).typed(&index, Dtype::I32).input(&updates).yields(wanted);
    }
}

#[test]
fn scatter_nd() {
    let data = T::noise(&[4, 3, 2], 6);
    let index = T::list(&[2, 1], &[3.0, 1.0]);
    let updates = T::noise(&[2, 3, 2], 7);
    let wanted = T::of(&[4, 3, 2], |i| match i[0] {
        3 => updates.at(&[0, i[1], i[2]]),
        1 => updates.at(&[1, i[1], i[2]]),
        _ => data.at(i),
    });
    Case::new("ScatterNd").input(&data).typed(&index, Dtype::I32).input(&updates).yields(wanted);
    let index = T::list(&[1, 2], &[2.0, 1.0]);
    let updates = T::noise(&[1, 2], 8);
    let wanted = T::of(&[4, 3, 2], |i| data.at(i) + if i[..2] == [2, 1] { updates.at(&[0, i[2]]) } else { 0.0 });
    let case = Case::new("ScatterNd").param("reduction", Param::UInt(1)).input(&data);
    case.typed(&index, Dtype::I32).input(&updates).yields(wanted);
}

//! Constants of bfloat16: weights of layers, and tables of look-ups, beside activations of other floats.

use half::{bf16, f16};

use crate::bytes::Bytes;
use crate::ir::{Dtype, Param, Quant, Role, SourceGraph};
use crate::testing::{Build, Noise, bytes_of, numbers_of, run};
use crate::validate::check_graph;

const AXIS: [(&str, Param); 1] = [("axis", Param::Int(0))];

/// Rows of a table `[v, k]` by ids, and their products with the same table: an embedding and the head that is tied to it.
fn tied(values: &[f32], [v, k, m]: [u32; 3], dtype: Dtype) -> SourceGraph {
    let mut b = Build::new();
    let ids = b.input("ids", &[1, m], Dtype::I32);
    let table = Role::Static(Bytes::copy_from(&bytes_of(Dtype::Bf16, values)));
    let table = b.tensor("table", &[v, k], Dtype::Bf16, Quant::None, table);
    let rows = b.output("rows", &[1, m, k], dtype);
    let logits = b.output("logits", &[m, v], Dtype::F32);
    b.node("Gather", &AXIS, &[table, ids], &[rows]);
    b.node("FullyConnected", &[], &[rows, table], &[logits]);
    b.graph
}

#[test]
fn a_tied_table_is_looked_up_exactly_and_multiplied_with() {
    let (v, k) = (37u32, 96u32);
    let values: Vec<f32> = Noise(3).floats((v * k) as usize).iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    let row = |i: usize| &values[i * k as usize..(i + 1) * k as usize];
    // Steps of 64 rows and more may go to a unit that rounds activations to bf16: here they are the table's own rows.
    for m in [1, 3, 70] {
        let ids: Vec<i32> = (0..m).map(|i| i * 17 % v.cast_signed()).collect();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
        for (dtype, fuse) in [(Dtype::F32, true), (Dtype::F32, false), (Dtype::F16, true), (Dtype::F16, false)] {
            let graph = tied(&values, [v, k, m.cast_unsigned()], dtype);
            let found = run(&graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs");
            let (rows, logits) = (numbers_of(dtype, &found[0]), numbers_of(Dtype::F32, &found[1]));
            for (i, &id) in ids.iter().enumerate() {
                let expected = row(id as usize).iter().map(|&x| match dtype {
                    Dtype::F16 => f16::from_f32(x).to_f32(),
                    _ => x,
                });
                let expected: Vec<f32> = expected.collect();
                assert_eq!(rows[i * k as usize..(i + 1) * k as usize], expected, "{dtype:?} {fuse}: row {i} of {m}");
                for j in 0..v as usize {
                    let terms = || row(j).iter().zip(&expected).map(|(w, x)| f64::from(*w) * f64::from(*x));
                    let (exact, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                    let off = (f64::from(logits[i * v as usize + j]) - exact).abs();
                    // A rounding of f32 for each product; rows in float16 are rounded once more by such a unit, to 8 bits.
                    let sum = f64::from(k) * 2f64.powi(-24);
                    let allowed = if dtype == Dtype::F16 && m >= 64 { sum + 2f64.powi(-9) } else { sum };
                    assert!(off <= allowed * size + 1e-6, "{dtype:?} {fuse}: [{i}, {j}] of {m} is off by {off}");
                }
            }
        }
    }
}

#[test]
fn activations_are_of_other_types() {
    let mut b = Build::new();
    let (x, y) = (b.input("x", &[1, 4], Dtype::Bf16), b.output("y", &[1, 4], Dtype::Bf16));
    b.node("Relu", &[], &[x], &[y]);
    let refused = check_graph(&b.graph).expect_err("an activation of bfloat16").to_string();
    assert!(refused.contains("input 0 `x`") && refused.contains("Bf16"), "{refused}");

    // Rows of a constant of bfloat16 come out in another float type, those of any other float table do not.
    for (table, out, refused) in
        [(Dtype::Bf16, Dtype::Bf16, true), (Dtype::F16, Dtype::F32, true), (Dtype::Bf16, Dtype::F16, false)]
    {
        let mut b = Build::new();
        let ids = b.input("ids", &[3], Dtype::I32);
        let table = b.constant(&[5, 4], table, &[0.5; 20]);
        let out = b.output("out", &[3, 4], out);
        b.node("Gather", &AXIS, &[table, ids], &[out]);
        assert_eq!(check_graph(&b.graph).is_err(), refused, "{:?}", check_graph(&b.graph));
    }
}

//! New cache rows that a graph puts into blocks: one step, bit for bit what the ops make (but the bits of a NaN), and the ops where something else reads
//! between.

use proptest::prelude::*;

use super::cache_in_blocks::{self, float};
use crate::ir::{Dtype, Param, Quant, Role, TensorId};
use crate::testing::{Build, Noise, bytes_of, cases, compare, ints, labels, run};

const NUMBERS: Quant = Quant::PerTensor { scale: 1.0, offset: -128 };
const LEAST: f32 = 5.960_464_5e-8;

/// `n` new rows of `kv` heads of `blocks` blocks, in a graph of that type.
#[derive(Clone, Copy)]
struct Rows {
    kv: u32,
    n: u32,
    blocks: u32,
    dtype: Dtype,
}

/// What the ops of a layer have made of them.
struct Made {
    sizes: TensorId,
    scales: TensorId,
    exact: TensorId,
    numbers: TensorId,
    /// What the numbers stand for, `[kv, 1, n, 32 * blocks]`.
    rows: TensorId,
}

impl Rows {
    /// As `compiler/src/lower/block_cache.rs` writes it.
    fn quantised(self, b: &mut Build, x: TensorId, name: &str) -> Made {
        let Self { kv, n, blocks, dtype } = self;
        let (split, one_each) = ([kv, n, blocks, 32], [kv, n, blocks, 1]);
        let (row, of_rows) = ([kv, 1, n, 32 * blocks], [kv, 1, n, blocks]);
        let x = b.op("Reshape", &[], &[x], &split, dtype);
        let sizes = b.op("ElementWiseAbs", &[], &[x], &split, dtype);
        let axes = [("axes", ints(&[3])), ("keep_dims", Param::Bool(true))];
        let largest = b.op("ReduceMax", &axes, &[sizes], &one_each, dtype);
        let divisor = b.constant(&[1], dtype, &[127.0]);
        let exact_scales = b.op("ElementWiseDivide", &[], &[largest, divisor], &one_each, dtype);
        let least = b.constant(&[1], dtype, &[LEAST]);
        let mut scales = b.op("ElementWiseMaximum", &[], &[exact_scales, least], &one_each, dtype);
        if dtype != Dtype::F16 {
            scales = b.op("Convert", &[], &[scales], &one_each, Dtype::F16);
        }
        let out = b.output(&format!("{name}_scales"), &of_rows, Dtype::F16);
        b.node("Reshape", &[], &[scales], &[out]);
        let mut scales = out;
        if dtype != Dtype::F16 {
            scales = b.op("Convert", &[], &[scales], &of_rows, dtype);
        }
        let scales = b.op("Reshape", &[], &[scales], &one_each, dtype);
        let exact = b.op("ElementWiseDivide", &[], &[x, scales], &split, dtype);
        let whole = b.tensor(&format!("{name}_whole"), &split, Dtype::UFixed8, NUMBERS, Role::Native);
        b.node("Convert", &[], &[exact], &[whole]);
        let numbers = b.tensor(&format!("{name}_numbers"), &row, Dtype::UFixed8, NUMBERS, Role::Output);
        b.node("Reshape", &[], &[whole], &[numbers]);
        let float = b.op("Convert", &[], &[numbers], &row, dtype);
        let float = b.op("Reshape", &[], &[float], &split, dtype);
        let product = b.op("ElementWiseMultiply", &[], &[float, scales], &split, dtype);
        let rows = b.op("Reshape", &[], &[product], &row, dtype);
        Made { sizes, scales, exact, numbers, rows }
    }

    fn n_elems(self) -> usize {
        (self.kv * self.n * self.blocks * 32) as usize
    }

    fn input(self, b: &mut Build) -> TensorId {
        b.input("x", &[1, self.kv, self.n, self.blocks * 32], self.dtype)
    }
}

/// Numbers of any size below 10^`exponent`, some of them odd. None is NaN, which has many bits: so 10^`exponent` is finite.
fn numbers(rows: Rows, seed: u64, exponent: i32) -> Vec<u8> {
    const ODD: [f32; 7] =
        [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE / 64.0, 65_504.0 * 127.0];
    let mut noise = Noise(seed);
    let mut number = |_| match noise.bits() % 200 {
        0 => ODD[noise.bits() as usize % ODD.len()],
        // Whole blocks of zeros as well.
        _ if noise.0 >> 40 & 3 == 0 && exponent > 20 => 0.0,
        _ => noise.unit() * 10f32.powi(exponent),
    };
    bytes_of(rows.dtype, &(0..rows.n_elems()).map(&mut number).collect::<Vec<f32>>())
}

/// One and three threads, fused, must write the bytes that the ops do.
fn check_bits(b: &Build, inputs: &[Vec<u8>]) {
    let plain = run(&b.graph, false, 1, inputs).expect("runs unfused");
    for threads in [1, 3] {
        let fused = run(&b.graph, true, threads, inputs).expect("runs fused");
        for ((id, plain), fused) in b.graph.outputs().zip(&plain).zip(&fused) {
            let name = &b.graph.tensor(id).name;
            assert!(plain == fused, "`{name}` differs, {threads} threads");
        }
    }
}

fn n_fused(b: &Build) -> usize {
    labels(&b.graph).iter().filter(|label| **label == "QuantiseBlocks").count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn rows_into_blocks_are_one_step_and_have_the_bits_of_the_ops(
        (kv, n, blocks) in (1u32..5, 1u32..40, 1u32..5), dtype in float(), exponent in -12i32..39, seed in any::<u64>()
    ) {
        let shape = Rows { kv, n, blocks, dtype };
        let mut b = Build::new();
        let x = shape.input(&mut b);
        let made = shape.quantised(&mut b, x, "k");
        let out = b.output("rows", &[kv, 1, n, 32 * blocks], Dtype::F32);
        b.node("Convert", &[], &[made.rows], &[out]);
        prop_assert_eq!(labels(&b.graph), ["Load", "QuantiseBlocks", "Store"]);
        check_bits(&b, &[numbers(shape, seed, exponent)]);
    }

    #[test]
    fn a_layer_that_attends_to_nothing_has_them_as_well(
        (kv, n, blocks) in (1u32..5, 1u32..9, 1u32..5), dtype in float(), seed in any::<u64>()
    ) {
        let shape = Rows { kv, n, blocks, dtype };
        let mut b = Build::new();
        let x = shape.input(&mut b);
        shape.quantised(&mut b, x, "k");
        prop_assert_eq!(labels(&b.graph), ["Load", "QuantiseBlocks"]);
        check_bits(&b, &[numbers(shape, seed, 0)]);
    }

    #[test]
    fn attention_reads_the_rows_of_the_one_step(
        (kv, g, n, past) in (1u32..4, 1u32..4, 1u32..9, 1u32..40), blocks in 1u32..4, dtype in float(), seed in any::<u64>()
    ) {
        let shape = Rows { kv, n, blocks, dtype };
        let (mut b, m, hd) = (Build::new(), past + n, 32 * blocks);
        let q = b.input("q", &[kv, g, n, hd], Dtype::F32);
        let [k, v] = ["k", "v"].map(|name| {
            let x = b.input(name, &[1, kv, n, hd], dtype);
            let new = shape.quantised(&mut b, x, name);
            let old = cache_in_blocks::past_rows(&mut b, name, [kv, past, blocks], dtype, -128);
            b.op("Concat", &[("axis", Param::UInt(2))], &[old, new.rows], &[kv, 1, m, hd], dtype)
        });
        let flag = [("transpose_in1", Param::Bool(true))];
        let scores = b.op("MatMul", &flag, &[q, k], &[kv, g, n, m], dtype);
        let p = b.op("Softmax", &[], &[scores], &[kv, g, n, m], dtype);
        let out = b.output("out", &[kv, g, n, hd], Dtype::F32);
        b.node("MatMul", &[], &[p, v], &[out]);
        let steps = labels(&b.graph);
        let allowed = ["Load", "QuantiseBlocks", "Attention", "Store"];
        prop_assert!(steps.iter().all(|step| allowed.contains(step)), "{steps:?}");
        prop_assert_eq!(n_fused(&b), 2);
        let inputs = cache_in_blocks::noise(&b.graph, seed);
        compare(&b.graph, &inputs, 1e-5);
        // Numbers and scales are the ops' bit for bit, whatever attention's sums.
        let [plain, fused] = [false, true].map(|fuse| run(&b.graph, fuse, 2, &inputs).expect("runs"));
        for ((id, plain), fused) in b.graph.outputs().zip(&plain).zip(&fused) {
            let name = &b.graph.tensor(id).name;
            prop_assert!(name == "out" || plain == fused, "`{}` differs", name);
        }
    }
}

#[test]
fn a_row_that_is_not_a_number_stays_so_in_the_cache() {
    for dtype in [Dtype::F16, Dtype::F32] {
        let shape = Rows { kv: 2, n: 3, blocks: 2, dtype };
        let mut b = Build::new();
        let x = shape.input(&mut b);
        shape.quantised(&mut b, x, "k");
        assert_eq!(n_fused(&b), 1);
        let at = b.graph.outputs().position(|id| b.graph.tensor(id).name == "k_scales").expect("it has scales");
        // The second block of head 1's row 2.
        let mut numbers = vec![0.5; shape.n_elems()];
        numbers[(3 + 2) * 64 + 40] = f32::NAN;
        for (threads, fuse) in [(1, true), (3, true), (1, false), (3, false)] {
            let found = run(&b.graph, fuse, threads, &[bytes_of(dtype, &numbers)]).expect("runs");
            let scales = found[at].as_chunks().0.iter().map(|&half| half::f16::from_ne_bytes(half).is_nan());
            let expected: Vec<bool> = (0..2 * 3 * 2).map(|block| block == (3 + 2) * 2 + 1).collect();
            assert_eq!(scales.collect::<Vec<bool>>(), expected, "{dtype:?}, {threads} threads, fused: {fuse}");
        }
    }
}

#[test]
fn what_something_else_reads_stays() {
    let shape = Rows { kv: 2, n: 3, blocks: 2, dtype: Dtype::F32 };
    let split = [2, 3, 2, 32];
    type Look = fn(&mut Build, &Made);
    let looks: [(&str, usize, Look); 5] = [
        ("nothing", 1, |_, _| {}),
        ("sizes", 0, |b, made| {
            let out = b.output("seen", &[2, 3, 2, 32], Dtype::F32);
            b.node("Sigmoid", &[], &[made.sizes], &[out]);
        }),
        ("scales", 0, |b, made| {
            let out = b.output("seen", &[2, 3, 2, 1], Dtype::F32);
            b.node("Sigmoid", &[], &[made.scales], &[out]);
        }),
        ("exact quotients", 0, |b, made| {
            let out = b.output("seen", &[2, 3, 2, 32], Dtype::F32);
            b.node("Sigmoid", &[], &[made.exact], &[out]);
        }),
        ("numbers", 0, |b, made| {
            let out = b.output("seen", &[2, 1, 3, 64], Dtype::F32);
            b.node("Convert", &[], &[made.numbers], &[out]);
        }),
    ];
    for (who, expected, look) in looks {
        let mut b = Build::new();
        let x = shape.input(&mut b);
        let made = shape.quantised(&mut b, x, "k");
        let out = b.output("rows", &split, Dtype::F32);
        b.node("Reshape", &[], &[made.rows], &[out]);
        look(&mut b, &made);
        assert_eq!(n_fused(&b), expected, "{who}: {:?}", labels(&b.graph));
        check_bits(&b, &[numbers(shape, 3, 0)]);
    }
}

#[test]
fn an_output_between_stays() {
    let shape = Rows { kv: 2, n: 3, blocks: 2, dtype: Dtype::F32 };
    for which in ["sizes", "exact"] {
        let mut b = Build::new();
        let x = shape.input(&mut b);
        let made = shape.quantised(&mut b, x, "k");
        let seen = if which == "sizes" { made.sizes } else { made.exact };
        b.graph.tensors[seen.0 as usize].role = Role::Output;
        assert_eq!(n_fused(&b), 0, "{which}: {:?}", labels(&b.graph));
        check_bits(&b, &[numbers(shape, 4, 0)]);
    }
}

#[test]
fn what_is_nearly_the_same_stays() {
    // Each changes one thing of the graph, after which the one step would compute something else.
    type Change = fn(&mut Build);
    let changes: [(&str, Change); 6] = [
        ("another divisor for each block", |b| {
            let constant = b.graph.tensors.iter().position(|t| matches!(t.role, Role::Static(_))).expect("a constant");
            let tensor = &mut b.graph.tensors[constant];
            tensor.dims = vec![2, 1, 1, 1];
            tensor.role = Role::Static(crate::bytes::Bytes::copy_from(&bytes_of(Dtype::F32, &[127.0, 64.0])));
        }),
        ("the smaller of the scales", |b| rename(b, "ElementWiseMaximum", "ElementWiseMinimum")),
        ("the smallest size", |b| rename(b, "ReduceMax", "ReduceMin")),
        ("sizes that are none", |b| rename(b, "ElementWiseAbs", "ElementWiseNeg")),
        ("a sum with the scales", |b| rename(b, "ElementWiseMultiply", "ElementWiseAdd")),
        ("numbers of another step", |b| {
            for tensor in b.graph.tensors.iter_mut().filter(|t| t.dtype == Dtype::UFixed8) {
                tensor.quant = Quant::PerTensor { scale: 0.5, offset: -128 };
            }
        }),
    ];
    let shape = Rows { kv: 2, n: 3, blocks: 2, dtype: Dtype::F32 };
    for (what, change) in changes {
        let mut b = Build::new();
        let x = shape.input(&mut b);
        let made = shape.quantised(&mut b, x, "k");
        let out = b.output("rows", &[2, 3, 2, 32], Dtype::F32);
        b.node("Reshape", &[], &[made.rows], &[out]);
        change(&mut b);
        assert_eq!(n_fused(&b), 0, "{what}: {:?}", labels(&b.graph));
        check_bits(&b, &[numbers(shape, 5, 0)]);
    }
}

fn rename(b: &mut Build, from: &str, to: &str) {
    b.graph.nodes.iter_mut().filter(|node| node.op == from).for_each(|node| node.op = to.to_owned());
}

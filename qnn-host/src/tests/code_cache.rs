//! Keys and values cached as codes of 8 bits: read in place by attention, in every form that a graph can give them.

use proptest::prelude::*;

use crate::ir::{Dtype, Param, Quant, Role, SourceGraph, TensorId};
use crate::testing::{Build, Noise, bytes_of, cases, compare, ints, labels};

#[derive(Clone, Copy, Debug)]
struct Case {
    kv: u32,
    group: u32,
    n: u32,
    /// Columns of the past; with `scatter`, of everything.
    past: u32,
    hd: u32,
    /// New rows are scattered into the past, else joined behind it.
    scatter: bool,
    /// They are joined as codes, and all of them turned into numbers, rather than turned into numbers first.
    as_codes: bool,
    /// The past has an extent less than the graph wants.
    flat: bool,
    /// Of keys and of values.
    grids: [(f32, i32); 2],
}

/// The past and new ones of one kind, and the graph's parts that make one tensor of them.
struct Cache<'a> {
    b: &'a mut Build,
    case: Case,
    name: &'static str,
    /// Where columns lie, counted from the start of four extents.
    axis: usize,
    quant: Quant,
}

impl Cache<'_> {
    fn dims(&self, len: u32) -> Vec<u32> {
        let Case { kv, hd, .. } = self.case;
        if self.axis == 3 { vec![kv, 1, hd, len] } else { vec![kv, 1, len, hd] }
    }

    fn codes(&mut self, suffix: &str, dims: &[u32], role: Role) -> TensorId {
        self.b.tensor(&format!("{}_{suffix}", self.name), dims, Dtype::UFixed8, self.quant.clone(), role)
    }

    fn joined(mut self, columns: Option<TensorId>) -> TensorId {
        let Case { n, past, scatter, as_codes, flat, .. } = self.case;
        let (new_dims, past_dims) = (self.dims(n), self.dims(past));
        let all_dims = if scatter { past_dims.clone() } else { self.dims(past + n) };
        let mut flat_dims = past_dims.clone();
        flat_dims.remove(1);
        let mut old = self.codes("past", if flat { &flat_dims } else { &past_dims }, Role::Input);
        if flat {
            let given = std::mem::replace(&mut old, self.codes("shaped", &past_dims, Role::Native));
            self.b.node("Reshape", &[], &[given], &[old]);
        }
        let rows = self.b.input(&format!("{}_rows", self.name), &new_dims, Dtype::F32);
        let mut new = self.codes("new", &new_dims, Role::Output);
        self.b.node("Quantize", &[], &[rows], &[new]);
        if !as_codes {
            old = self.b.op("Dequantize", &[], &[old], &past_dims, Dtype::F32);
            new = self.b.op("Dequantize", &[], &[new], &new_dims, Dtype::F32);
        }
        let all = match as_codes {
            true => self.codes("all", &all_dims, Role::Native),
            false => self.b.native(&all_dims, Dtype::F32),
        };
        let axis = ("axis", Param::UInt(self.axis as u64));
        match columns {
            Some(columns) => {
                let line: Vec<u32> = (0..4).map(|a| if a == self.axis { n } else { 1 }).collect();
                let multiples: Vec<i64> = new_dims.iter().zip(&line).map(|(w, l)| i64::from(w / l)).collect();
                let index = self.b.op("Reshape", &[], &[columns], &line, Dtype::I32);
                let tile = [("multiples", ints(&multiples))];
                let index = self.b.op("Tile", &tile, &[index], &new_dims, Dtype::I32);
                self.b.node("ScatterElements", &[axis], &[old, index, new], &[all]);
            }
            None => self.b.node("Concat", &[axis], &[old, new], &[all]),
        }
        if as_codes { self.b.op("Dequantize", &[], &[all], &all_dims, Dtype::F32) } else { all }
    }
}

fn graph(case: Case) -> SourceGraph {
    let Case { kv, group, n, past, hd, scatter, grids, .. } = case;
    let m = if scatter { past } else { past + n };
    let mut b = Build::new();
    let q = b.input("q", &[kv, group, n, hd], Dtype::F32);
    let mask = b.input("mask", &[1, 1, n, m], Dtype::F32);
    let columns = scatter.then(|| {
        let at = b.input("cache_index", &[1], Dtype::I32);
        let count: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let count = b.constant(&[n], Dtype::I32, &count);
        b.op("ElementWiseAdd", &[], &[at, count], &[n], Dtype::I32)
    });
    let [k, v] = [("key", 3), ("value", 2)].map(|(name, axis)| {
        let (scale, offset) = grids[axis % 2];
        Cache { b: &mut b, case, name, axis, quant: Quant::PerTensor { scale, offset } }.joined(columns)
    });
    let dims = [kv, group, n, m];
    let scores = b.op("MatMul", &[], &[q, k], &dims, Dtype::F32);
    let scores = b.op("ElementWiseAdd", &[], &[scores, mask], &dims, Dtype::F32);
    let p = b.op("Softmax", &[], &[scores], &dims, Dtype::F32);
    let out = b.output("out", &[kv, group, n, hd], Dtype::F32);
    b.node("MatMul", &[], &[p, v], &[out]);
    b.graph
}

/// The first `n_past` columns are filled; rows see those, and new ones up to themselves.
fn inputs(graph: &SourceGraph, case: Case, n_past: u32, seed: u64) -> Vec<Vec<u8>> {
    let mut noise = Noise(seed);
    let new_at = if case.scatter { n_past } else { case.past };
    let of = |id| {
        let tensor = graph.tensor(id);
        let m = *tensor.dims.last().unwrap_or(&1);
        let visible = |i: u32| i % m < n_past || (new_at..=new_at + i / m).contains(&(i % m));
        let values: Vec<f32> = match (tensor.name.as_str(), tensor.dtype) {
            ("cache_index", _) => vec![n_past as f32],
            ("mask", _) => (0..tensor.n_elems() as u32).map(|i| if visible(i) { 0.0 } else { -1000.0 }).collect(),
            (_, Dtype::UFixed8) => (0..tensor.n_elems()).map(|_| (noise.bits() % 256) as f32).collect(),
            _ => noise.floats(tensor.n_elems()),
        };
        bytes_of(tensor.dtype, &values)
    };
    graph.inputs().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn the_past_is_read_where_it_is(
        (kv, group, n, room, hd) in (1u32..4, 1u32..4, 1u32..14, 1u32..80, 1u32..40),
        (scatter, as_codes, flat) in any::<(bool, bool, bool)>(),
        scales in [0.002f32..0.01, 0.002f32..0.01],
        offsets in [-255i32..=0, -255i32..=0],
        seed in any::<u64>(),
    ) {
        let past = if scatter { n + room } else { room };
        let grids = [0, 1].map(|i| (scales[i], offsets[i]));
        let case = Case { kv, group, n, past, hd, scatter, as_codes, flat, grids };
        let graph = graph(case);
        let labels = labels(&graph);
        prop_assert!(labels.contains(&"Attention"), "{labels:?}");
        for gone in ["Concat", "ScatterElements", "Softmax", "MatMul"] {
            prop_assert!(!labels.contains(&gone), "{gone} is gone: {labels:?}");
        }
        // Queries, new rows and the index are loaded, and new rows rounded; the past is not.
        let count = |label| labels.iter().filter(|l| **l == label).count();
        prop_assert_eq!((count("Load"), count("Convert")), (3 + usize::from(scatter), 2), "{:?}", labels);
        let n_past = seed as u32 % (room + 1);
        compare(&graph, &inputs(&graph, case, n_past, seed), 2e-5);
    }
}

#[test]
fn joined_codes_of_another_grid_are_rounded_for_real() {
    let case = Case {
        kv: 2,
        group: 2,
        n: 3,
        past: 40,
        hd: 8,
        scatter: false,
        as_codes: true,
        flat: false,
        grids: [(0.01, -128), (0.005, -100)],
    };
    let mut graph = graph(case);
    let all = graph.tensors.iter_mut().find(|t| t.name == "key_all").expect("keys are joined");
    all.quant = Quant::PerTensor { scale: 0.04, offset: -128 };
    assert!(labels(&graph).contains(&"Concat"));
    compare(&graph, &inputs(&graph, case, 30, 7), 2e-5);
}

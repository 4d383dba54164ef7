//! Caches updated on the device: by `PDKVCacheUpdate` and by scatters whose places the graph computes from the six control
//! numbers; in place and not, compared with the rule byte by byte.

use proptest::prelude::*;

use crate::exec::Executable;
use crate::graph::ExecError;
use crate::ir::{Dtype, Param, Quant, SourceGraph, TensorId};
use crate::ops::kv_update;
use crate::pool::{Pool, PoolOptions};
use crate::prepare::PrepareOptions;
use crate::step::{Arena, ClientBuffer};
use crate::testing::{Build, Noise, bytes_of, cases, ints, labels};

/// Extents: heads, elements a row, rows of a cache, rows of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    heads: u32,
    dim: u32,
    rows: u32,
    new: u32,
}

/// How the graph updates its caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Op,
    /// Keys `[.., rows, dim]` as the values.
    OpByRow,
    /// `ScatterElements` of both.
    Elements,
    /// `ScatterNd` of the values.
    Nd,
}

struct Case {
    b: Build,
    s: Shape,
    dtype: Dtype,
}

impl Case {
    fn quant(&self) -> Quant {
        match self.dtype {
            Dtype::UFixed8 => Quant::PerTensor { scale: 0.02, offset: -128 },
            Dtype::SFixed8 => Quant::PerTensor { scale: 0.03, offset: 0 },
            _ => Quant::None,
        }
    }

    fn native(&mut self, dims: &[u32]) -> TensorId {
        let (name, quant) = (format!("t{}", self.b.graph.tensors.len()), self.quant());
        self.b.tensor(&name, dims, self.dtype, quant, crate::ir::Role::Native)
    }

    fn port(&mut self, name: &str, dims: &[u32], role: crate::ir::Role) -> TensorId {
        let quant = self.quant();
        self.b.tensor(name, dims, self.dtype, quant, role)
    }

    fn i32s(&mut self, values: &[u32]) -> TensorId {
        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        self.b.constant(&[values.len() as u32], Dtype::I32, &values)
    }

    fn int(&mut self, op: &str, inputs: &[TensorId], n: u32) -> TensorId {
        self.b.op(op, &[], inputs, &[n], Dtype::I32)
    }

    fn ctrl(&mut self, ctrl: TensorId, i: i64) -> TensorId {
        let params = [("ranges", Param::Ints(vec![1, 3], vec![i, i + 1, 1]))];
        self.b.op("StridedSlice", &params, &[ctrl], &[1], Dtype::I32)
    }

    /// Part of a tensor along one axis of four.
    fn rows(&mut self, from: TensorId, axis: usize, begin: u32) -> TensorId {
        let mut dims = self.b.graph.tensor(from).dims.clone();
        let mut ranges: Vec<i64> = dims.iter().flat_map(|&d| [0, i64::from(d), 1]).collect();
        ranges[axis * 3] = begin.into();
        dims[axis] -= begin;
        let out = self.native(&dims);
        self.b.node("StridedSlice", &[("ranges", Param::Ints(vec![4, 3], ranges))], &[from], &[out]);
        out
    }

    /// One cache updated at `index` `[n]` by scatters.
    fn scatter(
        &mut self,
        how: How,
        index: TensorId,
        n: u32,
        past: [TensorId; 2],
        new: [TensorId; 2],
        out: [TensorId; 2],
    ) {
        let Shape { heads, dim, .. } = self.s;
        let i = Dtype::I32;
        let line = self.b.op("Reshape", &[], &[index], &[1, 1, 1, n], i);
        let tile = [("multiples", ints(&[1, heads.into(), dim.into(), 1]))];
        let places = self.b.op("Tile", &tile, &[line], &[1, heads, dim, n], i);
        self.b.node("ScatterElements", &[("axis", Param::UInt(3))], &[past[0], places, new[0]], &[out[0]]);
        if how == How::Nd {
            let front: Vec<f32> = (0..heads * n).flat_map(|j| [0.0, (j / n) as f32]).collect();
            let front = self.b.constant(&[1, heads, n, 2], i, &front);
            let line = self.b.op("Reshape", &[], &[index], &[1, 1, n, 1], i);
            let line =
                self.b.op("Tile", &[("multiples", ints(&[1, heads.into(), 1, 1]))], &[line], &[1, heads, n, 1], i);
            let places = self.b.op("Concat", &[("axis", Param::UInt(3))], &[front, line], &[1, heads, n, 3], i);
            self.b.node("ScatterNd", &[], &[past[1], places, new[1]], &[out[1]]);
        } else {
            let line = self.b.op("Reshape", &[], &[index], &[1, 1, n, 1], i);
            let tile = [("multiples", ints(&[1, heads.into(), 1, dim.into()]))];
            let places = self.b.op("Tile", &tile, &[line], &[1, heads, n, dim], i);
            self.b.node("ScatterElements", &[("axis", Param::UInt(2))], &[past[1], places, new[1]], &[out[1]]);
        }
    }
}

/// Both caches updated from `fusion_ctrl`, and the old keys of the first read after that. With scatters the last row of a
/// cache takes what is not meant for it.
fn graph(s: Shape, dtype: Dtype, how: How) -> SourceGraph {
    use crate::ir::Role::{Input, Output};
    let mut c = Case { b: Build::new(), s, dtype };
    let Shape { heads, dim, rows, new } = s;
    let by_row = how == How::OpByRow;
    let keys = |n: u32| if by_row { [1, heads, n, dim] } else { [1, heads, dim, n] };
    let values = |n: u32| [1, heads, n, dim];
    let ctrl = c.b.input("fusion_ctrl", &[6], Dtype::I32);
    let mut pasts = Vec::new();
    for slot in ["prefill", "decode"] {
        let k = c.port(&format!("past_key_{slot}_0"), &keys(rows), Input);
        pasts.push([k, c.port(&format!("past_value_{slot}_0"), &values(rows), Input)]);
    }
    let news = [c.port("present_key_0", &keys(new), Input), c.port("present_value_0", &values(new), Input)];
    let mut outs = Vec::new();
    for slot in ["prefill", "decode"] {
        let k = c.port(&format!("updated_past_key_{slot}_0"), &keys(rows), Output);
        outs.push([k, c.port(&format!("updated_past_value_{slot}_0"), &values(rows), Output)]);
    }
    let [on_0, on_1, m, past_0, past_1] = [0, 1, 2, 4, 5].map(|i| c.ctrl(ctrl, i));
    let last = c.i32s(&[new - 1]);
    if matches!(how, How::Op | How::OpByRow) {
        let (one, first) = (c.i32s(&[1]), c.int("ElementWiseSubtract", &[last, m], 1));
        for (slot, rule) in [[past_0, first, m, on_0], [past_1, last, one, on_1]].into_iter().enumerate() {
            let ([k, v], [nk, nv]) = (pasts[slot], news);
            let inputs = [&[ctrl, k, v, nk, nv][..], &rule].concat();
            c.b.node(kv_update::NAME, &[], &inputs, &outs[slot]);
        }
    } else {
        let iota: Vec<u32> = (0..new).collect();
        let (iota, trash, zero) = (c.i32s(&iota), c.i32s(&[rows - 1]), c.i32s(&[0]));
        let trashes = c.i32s(&vec![rows - 1; new as usize]);
        let count = c.int("ElementWiseMultiply", &[m, on_0], 1);
        let first = c.int("ElementWiseSubtract", &[last, count], 1);
        let shift = c.int("ElementWiseSubtract", &[past_0, first], 1);
        let to = c.int("ElementWiseAdd", &[iota, shift], new);
        let low = c.b.op("ElementWiseGreaterEqual", &[], &[iota, first], &[new], Dtype::Bool8);
        let high = c.b.op("ElementWiseLess", &[], &[iota, last], &[new], Dtype::Bool8);
        let is_ours = c.b.op("ElementWiseAnd", &[], &[low, high], &[new], Dtype::Bool8);
        let prefill = c.int("ElementWiseSelect", &[is_ours, to, trashes], new);
        let on = c.b.op("ElementWiseGreater", &[], &[on_1, zero], &[1], Dtype::Bool8);
        let decode = c.int("ElementWiseSelect", &[on, past_1, trash], 1);
        c.scatter(how, prefill, new, pasts[0], news, outs[0]);
        let one = [c.rows(news[0], 3, new - 1), c.rows(news[1], 2, new - 1)];
        c.scatter(how, decode, 1, pasts[1], one, outs[1]);
    }
    let axis = if by_row { 2 } else { 3 };
    let seen = c.port("seen", &keys(rows + new), Output);
    c.b.node("Concat", &[("axis", Param::UInt(axis))], &[pasts[0][0], news[0]], &[seen]);
    c.b.graph
}

/// Caches and new rows: keys and values of prefill, of decode, new keys and values.
fn contents(s: Shape, dtype: Dtype, seed: u64) -> Vec<Vec<u8>> {
    let mut noise = Noise(seed);
    let n = |rows: u32| (s.heads * s.dim * rows) as usize;
    [s.rows, s.rows, s.rows, s.rows, s.new, s.new]
        .map(|rows| match dtype {
            Dtype::F16 | Dtype::F32 => bytes_of(dtype, &noise.floats(n(rows))),
            _ => (0..n(rows)).map(|_| noise.bits() as u8).collect(),
        })
        .into()
}

/// The six control numbers: prefill rows and where they go, if any; where the decoded row goes, if any.
fn control(prefill: Option<(u32, u32)>, decode: Option<u32>) -> Vec<u8> {
    let (m, to) = prefill.unwrap_or((1, 0));
    let numbers = [prefill.is_some().into(), decode.is_some().into(), m, 0, to, decode.unwrap_or(0)];
    numbers.iter().flat_map(|v: &u32| v.to_ne_bytes()).collect()
}

/// What the rule says: `n` rows of `new` from `from` put into `past` at `to`.
fn put(past: &mut [u8], new: &[u8], (rows, new_rows): (usize, usize), row_bytes: usize, [to, from, n]: [u32; 3]) {
    let blocks = past.chunks_exact_mut(rows * row_bytes).zip(new.chunks_exact(new_rows * row_bytes));
    for (past, new) in blocks {
        for j in 0..n as usize {
            let (at, of) = ((to as usize + j) * row_bytes, (from as usize + j) * row_bytes);
            past[at..at + row_bytes].copy_from_slice(&new[of..of + row_bytes]);
        }
    }
}

/// The caches after the step.
fn expected(
    s: Shape,
    dtype: Dtype,
    how: How,
    all: &[Vec<u8>],
    prefill: Option<(u32, u32)>,
    decode: Option<u32>,
) -> Vec<Vec<u8>> {
    let mut caches: Vec<Vec<u8>> = all[..4].to_vec();
    let (rows, size) = ((s.rows as usize, s.new as usize), dtype.size_bytes());
    for (i, cache) in caches.iter_mut().enumerate() {
        let is_key = i % 2 == 0;
        let row_bytes = if is_key && how != How::OpByRow { size } else { s.dim as usize * size };
        let rule = match i / 2 {
            0 => prefill.map(|(m, to)| [to, s.new - 1 - m, m]),
            _ => decode.map(|to| [to, s.new - 1, 1]),
        };
        if let Some(rule) = rule {
            put(cache, &all[4 + i % 2], rows, row_bytes, rule);
        }
    }
    caches
}

/// Runs with the caches that `aliased` names updated in place; the four caches and what was seen of the past.
fn run(
    graph: &SourceGraph,
    fuse: bool,
    threads: usize,
    ctrl: &[u8],
    all: &[Vec<u8>],
    aliased: [bool; 4],
) -> Result<Vec<Vec<u8>>, ExecError> {
    let executable = Executable::prepare(graph, &PrepareOptions { fuse, ..PrepareOptions::default() })?;
    let pool = Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start");
    let mut memory = all.to_vec();
    let mut outputs: Vec<Vec<u8>> = graph.outputs().map(|id| vec![0xCD; graph.tensor(id).size_bytes()]).collect();
    let mut inputs = vec![ClientBuffer::reading(ctrl)];
    inputs.extend(memory.iter_mut().map(|bytes| ClientBuffer::writing(bytes)));
    let mut out: Vec<ClientBuffer> = outputs.iter_mut().map(|bytes| ClientBuffer::writing(bytes)).collect();
    for i in (0..4).filter(|&i| aliased[i]) {
        assert!(executable.updates().contains(&(i + 1, i)), "{:?}", executable.updates());
        out[i] = inputs[i + 1];
    }
    // SAFETY: buffers of this function that nothing else touches meanwhile; an output that is an input's is one of `updates`.
    unsafe { executable.run_at(&pool, &mut Arena::new(), &inputs, &out, None) }?;
    for i in (0..4).filter(|&i| aliased[i]) {
        outputs[i] = std::mem::take(&mut memory[i]);
    }
    Ok(outputs)
}

/// Without the row that takes what is not meant for a cache.
fn without_trash(s: Shape, how: How, caches: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if matches!(how, How::Op | How::OpByRow) {
        return caches.to_vec();
    }
    let mut kept = Vec::new();
    for (i, cache) in caches.iter().enumerate() {
        let (size, mut cache) = (cache.len() / (s.heads * s.dim * s.rows) as usize, cache.clone());
        let row_bytes = if i % 2 == 0 { size } else { s.dim as usize * size };
        cache.chunks_exact_mut(s.rows as usize * row_bytes).for_each(|block| {
            let last = block.len() - row_bytes;
            block[last..].fill(0);
        });
        kept.push(cache);
    }
    kept
}

const HOWS: [How; 4] = [How::Op, How::OpByRow, How::Elements, How::Nd];
const TYPES: [Dtype; 6] = [Dtype::F32, Dtype::F16, Dtype::UFixed8, Dtype::SFixed8, Dtype::U8, Dtype::I8];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn all_updates_follow_the_rule_in_place_or_not(
        (heads, dim, new, room) in (1u32..4, 1u32..20, 2u32..12, 2u32..60),
        (how, dtype) in (0usize..4, 0usize..6),
        (on_0, on_1, m, to_0, to_1) in any::<(bool, bool, u32, u32, u32)>(),
        aliased in any::<[bool; 4]>(),
        (threads, seed) in (1usize..4, any::<u64>()),
    ) {
        let (how, dtype) = (HOWS[how], TYPES[dtype]);
        let s = Shape { heads, dim, rows: new + room, new };
        let m = 1 + m % (new - 1);
        // The last row is the scatters' for what they do not keep.
        let prefill = on_0.then_some((m, to_0 % (s.rows - m)));
        let decode = on_1.then_some(to_1 % (s.rows - 1));
        let (graph, all) = (graph(s, dtype, how), contents(s, dtype, seed));
        let wanted = expected(s, dtype, how, &all, prefill, decode);
        let ctrl = control(prefill, decode);
        let plain = run(&graph, false, threads, &ctrl, &all, [false; 4]).expect("runs");
        let found = run(&graph, true, threads, &ctrl, &all, aliased).expect("runs");
        prop_assert_eq!(without_trash(s, how, &found[..4]), without_trash(s, how, &wanted));
        prop_assert_eq!(without_trash(s, how, &plain[..4]), without_trash(s, how, &wanted));
        // What read the past saw it as it was.
        prop_assert_eq!(&found[4], &plain[4]);
    }
}

const SMALL: Shape = Shape { heads: 2, dim: 4, rows: 10, new: 4 };

#[test]
fn updates_of_an_input_go_last_and_straight_to_the_client() {
    for (how, step) in
        [(How::Op, "PDKVCacheUpdate+Store"), (How::Elements, "ScatterElements+Store"), (How::Nd, "ScatterNd+Store")]
    {
        let labels = labels(&graph(SMALL, Dtype::F16, how));
        assert_eq!(labels.iter().filter(|l| l.ends_with("+Store")).count(), 4, "{labels:?}");
        assert_eq!(labels.last(), Some(&step), "{labels:?}");
    }
}

#[test]
fn disabled_updates_keep_the_past_in_every_buffer() {
    for dtype in TYPES {
        let (graph, all) = (graph(SMALL, dtype, How::Op), contents(SMALL, dtype, 3));
        for aliased in [[false; 4], [true; 4], [true, false, true, false]] {
            let found = run(&graph, true, 2, &control(None, None), &all, aliased).expect("runs");
            assert_eq!(found[..4], all[..4], "{dtype:?} {aliased:?}");
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_an_error_and_change_nothing() {
    let (graph, all) = (graph(SMALL, Dtype::F32, How::Op), contents(SMALL, Dtype::F32, 4));
    for (prefill, decode, index, limit) in [
        (Some((3, 8)), None, 10, 10),
        (None, Some(10), 10, 10),
        (Some((5, 0)), None, -2, 4),
        (Some((3, u32::MAX)), None, -1, 10),
    ] {
        let error =
            run(&graph, true, 2, &control(prefill, decode), &all, [true; 4]).expect_err("must fail").to_string();
        assert!(error.contains(&format!("index {index} is out of range 0..{limit}")), "{error}");
        let error =
            run(&graph, false, 1, &control(prefill, decode), &all, [false; 4]).expect_err("must fail").to_string();
        assert!(error.contains(&format!("index {index} is out of range 0..{limit}")), "{error}");
    }
}

#[test]
fn an_input_with_two_updates_is_updated_in_place_by_one_only() {
    let mut b = Build::new();
    let past = b.input("past", &[1, 2, 6, 3], Dtype::F32);
    let new = b.input("new", &[1, 2, 2, 3], Dtype::F32);
    for (name, first) in [("a", 0.0), ("b", 3.0)] {
        let places: Vec<f32> = (0..12).map(|i| first + (i / 3 % 2) as f32).collect();
        let index = b.constant(&[1, 2, 2, 3], Dtype::I32, &places);
        let out = b.output(name, &[1, 2, 6, 3], Dtype::F32);
        b.node("ScatterElements", &[("axis", Param::UInt(2))], &[past, index, new], &[out]);
    }
    let executable = Executable::prepare(&b.graph, &PrepareOptions::default()).expect("prepares");
    assert_eq!(executable.updates(), [(0, 0)]);
}

#[test]
fn an_update_that_others_read_is_stored_as_before() {
    let mut b = Build::new();
    let past = b.input("past", &[6, 3], Dtype::F32);
    let new = b.input("new", &[1, 3], Dtype::F32);
    let index = b.constant(&[1, 1], Dtype::I32, &[4.0]);
    let updated = b.output("updated", &[6, 3], Dtype::F32);
    b.node("ScatterNd", &[], &[past, index, new], &[updated]);
    let out = b.output("out", &[6, 3], Dtype::F32);
    b.node("Relu", &[], &[updated], &[out]);
    let executable = Executable::prepare(&b.graph, &PrepareOptions::default()).expect("prepares");
    assert_eq!(executable.updates(), []);
}

#[test]
fn keys_and_values_may_have_a_scale_each() {
    let mut graph = graph(SMALL, Dtype::UFixed8, How::Op);
    for tensor in graph.tensors.iter_mut().filter(|t| t.name.contains("value")) {
        tensor.quant = Quant::PerTensor { scale: 0.5, offset: -128 };
    }
    let node = graph.nodes.iter().find(|n| n.op == kv_update::NAME).expect("an update");
    crate::validate::check_node(&graph, node).expect("it is taken");
}

#[test]
fn operands_that_contradict_each_other_are_refused() {
    let refused = |change: fn(&mut SourceGraph)| {
        let mut graph = graph(SMALL, Dtype::UFixed8, How::Op);
        change(&mut graph);
        let node = graph.nodes.iter().find(|n| n.op == kv_update::NAME).expect("an update");
        crate::validate::check_node(&graph, node).expect_err("must be refused").to_string()
    };
    let encoding = refused(|g| {
        let i = g.tensors.iter().position(|t| t.name == "present_key_0").expect("there");
        g.tensors[i].quant = Quant::PerTensor { scale: 0.5, offset: -128 };
    });
    assert!(encoding.contains("`present_key_0`: expected UFixed8 in the encoding of the cache"), "{encoding}");
    let updated = refused(|g| {
        let i = g.tensors.iter().position(|t| t.name.starts_with("updated_past_value")).expect("there");
        g.tensors[i].quant = Quant::PerTensor { scale: 0.5, offset: -128 };
    });
    assert!(updated.contains("expected UFixed8 in the encoding of the cache"), "{updated}");
    let rows = refused(|g| {
        let i = g.tensors.iter().position(|t| t.name == "present_key_0").expect("there");
        g.tensors[i].dims[3] = 3;
    });
    assert!(rows.contains("expected keys whose new rows are 4 of 10"), "{rows}");
    let heads = refused(|g| {
        let i = g.tensors.iter().position(|t| t.name == "present_value_0").expect("there");
        g.tensors[i].dims[1] = 3;
    });
    assert!(heads.contains("expected rows that fit [1, 2, 10, 4]"), "{heads}");
}

//! What graphs are fed as positions: numbers that libGenie 1.21 fed, right ones where it is wrong, and what is refused.

use engine::{
    Binding, Engine, EngineConfig, ExecuteError, Executor, Grid, Policy, PositionKind, RopeConfig, RopeScaling, SeqId,
    TokenModel,
};
use genie_types::{Dtype, GraphInfo, TensorInfo, TokenId, YarnScaling};
use nsp_graph::{BinaryGraphs, ModelLayout, Options, analyze};

const CL: usize = 32;

/// Keeps what every execution was fed under names that begin with the prefix of a position input.
struct Recorder {
    graphs: Vec<GraphInfo>,
    fed: Vec<Vec<(String, Vec<u8>)>>,
}

impl Executor for Recorder {
    fn execute<'io>(
        &mut self,
        _: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        let mut step = Vec::new();
        for binding in io {
            match binding {
                Binding::Input(i, bytes) => {
                    let name = &self.graphs[graph].inputs[i].name;
                    if name.contains("position_ids") {
                        step.push((name.clone(), bytes.to_vec()));
                    }
                }
                Binding::Output(_, bytes) | Binding::InPlace(_, _, bytes) => bytes.fill(0),
            }
        }
        self.fed.push(step);
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Form {
    scatter: bool,
    inputs: fn(usize) -> Vec<TensorInfo>,
}

fn ints(name: &str, dims: &[usize]) -> TensorInfo {
    TensorInfo::new(name, dims, Dtype::I32)
}

fn rows(prefix: &str, ar: usize, dim: usize) -> [TensorInfo; 2] {
    ["cos", "sin"].map(|end| TensorInfo::new(format!("{prefix}position_ids_{end}"), [1, 1, ar, dim], Dtype::F32))
}

const ABSOLUTE: fn(usize) -> Vec<TensorInfo> = |ar| vec![ints("position_ids", &[1, ar])];
const ALIBI: fn(usize) -> Vec<TensorInfo> = |ar| vec![ints("position_ids", &[1, 1, ar, CL])];
const ROPE: fn(usize) -> Vec<TensorInfo> = |ar| rows("", ar, 2).to_vec();
const EIGHT: fn(usize) -> Vec<TensorInfo> = |ar| rows("", ar, 8).to_vec();
const TWO: fn(usize) -> Vec<TensorInfo> = |ar| [rows("", ar, 2), rows("swa_", ar, 1)].concat();

/// A model of one layer for AR 1 and 8.
fn layout(form: Form) -> (ModelLayout, Recorder) {
    let graph = |ar: usize| {
        let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
        let past = if form.scatter { CL } else { CL - ar };
        let mut g = GraphInfo { name: format!("ar{ar}_cl{CL}_1_of_1"), ..GraphInfo::default() };
        g.inputs = vec![ints("input_ids", &[1, ar]), t("attention_mask", &[1, 1, ar, CL], Dtype::F32)];
        g.inputs.extend((form.inputs)(ar));
        if form.scatter {
            g.inputs.push(ints("cache_index", &[1]));
        }
        g.inputs.push(t("past_key_0_in", &[1, 1, 4, past], Dtype::F32));
        g.inputs.push(t("past_value_0_in", &[1, 1, past, 4], Dtype::F32));
        g.outputs = vec![
            t("past_key_0_out", &[1, 1, 4, ar], Dtype::F32),
            t("past_value_0_out", &[1, 1, ar, 4], Dtype::F32),
            t("logits", &[1, ar, 10], Dtype::F32),
        ];
        g
    };
    let graphs = vec![graph(1), graph(8)];
    let layout = analyze(&[BinaryGraphs { source: "m.bin".into(), graphs: graphs.clone() }], &Options::default());
    (layout.unwrap(), Recorder { graphs, fed: Vec::new() })
}

fn open(form: Form, config: EngineConfig) -> Result<Engine<Recorder>, String> {
    let (layout, recorder) = layout(form);
    Engine::with_executor(layout, recorder, &config).map_err(|e| e.to_string())
}

fn concat(inputs: fn(usize) -> Vec<TensorInfo>) -> Form {
    Form { scatter: false, inputs }
}

fn config() -> EngineConfig {
    EngineConfig::new(["m.bin"])
}

fn run(engine: &mut Engine<Recorder>, n: usize) {
    engine.process(&vec![TokenId(1); n]).unwrap();
}

/// Numbers of an input in the executions so far.
fn fed(engine: &Engine<Recorder>, name: &str) -> Vec<Vec<i32>> {
    let of = |step: &Vec<(String, Vec<u8>)>| {
        let (_, bytes) = step.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no `{name}`"));
        bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    };
    engine.executor().fed.iter().map(of).collect()
}

fn floats(engine: &Engine<Recorder>, name: &str) -> Vec<Vec<f32>> {
    fed(engine, name)
        .into_iter()
        .map(|step| step.into_iter().map(|x| f32::from_bits(x.cast_unsigned())).collect())
        .collect()
}

#[test]
fn absolute_positions_count_on_and_padding_is_zero() {
    for positions in [None, Some(PositionKind::Absolute)] {
        let mut engine = open(concat(ABSOLUTE), EngineConfig { positions, ..config() }).unwrap();
        run(&mut engine, 12);
        run(&mut engine, 1);
        let want: [&[i32]; 3] = [&[0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 0, 0, 0, 0], &[12]];
        assert_eq!(fed(&engine, "position_ids"), want);
    }
}

/// A row of distances: pairs of a first column and the values from there on; the rest is CL.
fn row(spans: &[(usize, &[i32])]) -> Vec<i32> {
    let mut row = vec![CL as i32; CL];
    for (at, values) in spans {
        row[*at..at + values.len()].copy_from_slice(values);
    }
    row
}

#[test]
fn distances_stand_where_the_mask_has_their_keys() {
    for scatter in [false, true] {
        let mut engine = open(Form { scatter, inputs: ALIBI }, config()).unwrap();
        run(&mut engine, 12);
        run(&mut engine, 1);
        let found = fed(&engine, "position_ids");
        let new = |ar: usize, n_past: usize| if scatter { n_past } else { CL - ar };
        let second: Vec<i32> = [
            row(&[(0, &[8, 7, 6, 5, 4, 3, 2, 1]), (new(8, 8), &[0])]),
            row(&[(0, &[9, 8, 7, 6, 5, 4, 3, 2]), (new(8, 8), &[1, 0])]),
            row(&[(0, &[10, 9, 8, 7, 6, 5, 4, 3]), (new(8, 8), &[2, 1, 0])]),
            row(&[(0, &[11, 10, 9, 8, 7, 6, 5, 4]), (new(8, 8), &[3, 2, 1, 0])]),
            row(&[]),
            row(&[]),
            row(&[]),
            row(&[]),
        ]
        .concat();
        assert_eq!(found[1], second, "scatter {scatter}");
        assert_eq!(found[0][..2 * CL], [row(&[(new(8, 0), &[0])]), row(&[(new(8, 0), &[1, 0])])].concat());
        assert_eq!(found[2], row(&[(0, &[12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]), (new(1, 12), &[0])]));
    }
}

/// The recorded rows of a concat cache, with libGenie's two errors: new columns right behind the past, the past of a chunk of n
/// tokens n - 1 too far away.
#[test]
fn policy_genie_feeds_the_distances_that_libgenie_fed() {
    let config = EngineConfig { policy: Policy::Genie, positions: Some(PositionKind::Alibi), ..config() };
    let mut engine = open(concat(ALIBI), config).unwrap();
    run(&mut engine, 12);
    run(&mut engine, 1);
    let found = fed(&engine, "position_ids");
    let first: Vec<i32> = (0..8).flat_map(|r| row(&[(0, &(0..=r).rev().collect::<Vec<_>>())])).collect();
    assert_eq!(found[0], first);
    let second: Vec<i32> = [
        row(&[(0, &[11, 10, 9, 8, 7, 6, 5, 4, 0])]),
        row(&[(0, &[12, 11, 10, 9, 8, 7, 6, 5, 1, 0])]),
        row(&[(0, &[13, 12, 11, 10, 9, 8, 7, 6, 2, 1, 0])]),
        row(&[(0, &[14, 13, 12, 11, 10, 9, 8, 7, 3, 2, 1, 0])]),
        row(&[]),
        row(&[]),
        row(&[]),
        row(&[]),
    ]
    .concat();
    assert_eq!(found[1], second);
    assert_eq!(found[2], row(&[(0, &[12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0])]));
}

#[test]
fn distances_follow_keys_that_move() {
    let mut engine = open(concat(ALIBI), config()).unwrap();
    run(&mut engine, 6);
    // Tokens 1 and 2 go, and those behind them close up: nothing in their keys has to turn.
    assert_eq!(engine.shift_out(SeqId(0), 1, 2).unwrap(), 4);
    run(&mut engine, 1);
    let mut seen: Vec<i32> = fed(&engine, "position_ids")[1].iter().copied().filter(|d| *d != CL as i32).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

#[test]
fn type_none_leaves_position_inputs_at_zero() {
    for (form, name) in [(ROPE, "position_ids_cos"), (ABSOLUTE, "position_ids"), (ALIBI, "position_ids")] {
        let mut engine = open(concat(form), EngineConfig { positions: Some(PositionKind::None), ..config() }).unwrap();
        run(&mut engine, 9);
        assert!(fed(&engine, name).iter().flatten().all(|x| *x == 0), "{name}");
    }
}

#[test]
fn tables_are_filled_by_their_prefix_and_with_their_amplitude() {
    let yarn = YarnScaling {
        factor: 4.0,
        original_max_position: 8.0,
        dim: 4,
        extrapolation_factor: 1.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
    };
    let config = EngineConfig {
        rope: Some(RopeConfig::new(2, 1e4).with_scaling(RopeScaling::Yarn(yarn))),
        prefixed_ropes: vec![("swa_".into(), RopeConfig::new(1, 100.0))],
        ..config()
    };
    let mut engine = open(concat(TWO), config).unwrap();
    run(&mut engine, 2);
    let amplitude = 0.1 * 4f64.ln() + 1.0;
    assert_eq!(floats(&engine, "position_ids_cos")[0][..2], [amplitude as f32; 2], "position 0");
    assert_eq!(floats(&engine, "position_ids_cos")[0][4..6], [amplitude as f32; 2], "padding");
    assert_eq!(floats(&engine, "position_ids_sin")[0][..2], [0.0; 2]);
    let second = floats(&engine, "swa_position_ids_sin")[0][1];
    assert_eq!(second, 1f64.sin() as f32, "the other table turns by its own angles, without an amplitude");
    // Which layers turn how is not known, so keys cannot move.
    let error = engine.shift_out(SeqId(0), 0, 1).unwrap_err().to_string();
    assert!(error.contains("RoPE"), "{error}");
}

#[test]
fn longrope_goes_by_the_size_of_the_context() {
    let rope = |size: usize| {
        let scaling = genie_types::LongRopeScaling {
            factor: 1.0,
            original_max_position: 16.0,
            short_factor: vec![1.0, 1.0],
            long_factor: vec![2.0, 2.0],
        };
        let rope = RopeConfig::new(2, 1e4).with_scaling(RopeScaling::LongRope(scaling));
        let config = EngineConfig { rope: Some(rope), context_size: Some(size), ..config() };
        let mut engine = open(concat(ROPE), config).unwrap();
        run(&mut engine, 2);
        floats(&engine, "position_ids_sin")[0][2]
    };
    assert_eq!(rope(16), 1f64.sin() as f32, "as long as in training");
    assert_eq!(rope(17), 0.5f64.sin() as f32);
}

#[test]
fn configs_that_do_not_fit_the_graphs_are_refused_by_name() {
    let kind = |kind| EngineConfig { positions: Some(kind), ..config() };
    let with = |rope, prefixed: &[(&str, usize)]| EngineConfig {
        rope,
        prefixed_ropes: prefixed.iter().map(|(p, dim)| ((*p).to_owned(), RopeConfig::new(*dim, 1e4))).collect(),
        ..config()
    };
    let plain = || Some(RopeConfig::new(2, 1e4));
    type Inputs = fn(usize) -> Vec<TensorInfo>;
    let cases: Vec<(Inputs, EngineConfig, &str)> = vec![
        (
            ALIBI,
            kind(PositionKind::Absolute),
            "`position_ids` of graph `ar1_cl32_1_of_1` has shape [1, 1, 1, 32], but positional encoding `absolute` fills [1, AR]",
        ),
        (
            ABSOLUTE,
            kind(PositionKind::Alibi),
            "`position_ids` of graph `ar1_cl32_1_of_1` has shape [1, 1], but positional encoding `alibi` fills [1, 1, AR, CL]",
        ),
        (
            ROPE,
            EngineConfig { rope: plain(), ..kind(PositionKind::Absolute) },
            "positional encoding `absolute` is configured, but no graph takes `position_ids`",
        ),
        (
            TWO,
            with(plain(), &[]),
            "the graphs take `swa_position_ids_cos` and `swa_position_ids_sin` of width 1, but no rotary positions are configured for `prefix` swa_; add `positional-encoding` with `rope-dim` 1 and `prefix` swa_",
        ),
        (
            TWO,
            with(plain(), &[("swa_", 2)]),
            "`swa_position_ids_cos` of graph `ar1_cl32_1_of_1` is 1 wide, but `rope-dim` is 2",
        ),
        (
            ROPE,
            with(plain(), &[("swa_", 2)]),
            "positional encoding `rope` is configured, but no graph takes `swa_position_ids_cos`",
        ),
    ];
    for (form, config, want) in cases {
        assert_eq!(open(concat(form), config).err().as_deref(), Some(want));
    }
}

fn mrope(interleaved: bool, sections: &[usize]) -> EngineConfig {
    let scaling = RopeScaling::Mrope { interleaved, sections: sections.into() };
    EngineConfig { rope: Some(RopeConfig::new(8, 1e4).with_scaling(scaling)), ..config() }
}

/// Positions of a text with images, written down as Qwen's `get_rope_index` computes them: text, image, text, image, text.
fn positions_of(parts: &[Result<usize, Grid>]) -> Vec<[usize; 3]> {
    let (mut out, mut next) = (Vec::new(), 0);
    for part in parts {
        match *part {
            Ok(n) => (0..n).for_each(|i| out.push([next + i; 3])),
            Err(Grid { frames, rows, columns }) => {
                for t in 0..frames {
                    for h in 0..rows {
                        (0..columns).for_each(|w| out.push([next + t, next + h, next + w]));
                    }
                }
            }
        }
        next = out.iter().flatten().max().map_or(0, |max| max + 1);
    }
    out
}

/// The rows of cosines and sines that were fed, one for each real token.
fn tables(engine: &Engine<Recorder>, widths: &[usize]) -> Vec<[Vec<f32>; 2]> {
    let mut out = Vec::new();
    for (step, n) in engine.executor().fed.iter().zip(widths) {
        let numbers = |name: &str| -> Vec<f32> {
            let (_, bytes) = step.iter().find(|(found, _)| found == name).unwrap();
            bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
        };
        let (cos, sin) = (numbers("position_ids_cos"), numbers("position_ids_sin"));
        out.extend((0..*n).map(|row| [&cos, &sin].map(|table| table[row * 8..][..8].to_vec())));
    }
    out
}

#[test]
fn images_have_positions_by_frame_row_and_column() {
    // The axis of each of eight angles, as the two models share them out.
    let cases = [(false, [2, 3, 3], [0, 0, 1, 1, 1, 2, 2, 2]), (true, [4, 2, 2], [0, 1, 2, 0, 1, 2, 0, 0])];
    let image = Grid { frames: 1, rows: 2, columns: 3 };
    let video = Grid { frames: 2, rows: 2, columns: 1 };
    let expected = positions_of(&[Ok(3), Err(image), Ok(2), Err(video), Ok(9)]);
    for (interleaved, sections, axes) in cases {
        let mut engine = open(concat(EIGHT), mrope(interleaved, &sections)).unwrap();
        run(&mut engine, 2);
        engine.place_grid(3, image).unwrap();
        engine.place_grid(11, video).unwrap();
        // The image begins within a step and ends within another; the rest one by one.
        run(&mut engine, 13);
        (0..9).for_each(|_| run(&mut engine, 1));
        let widths = [[2, 8, 5].as_slice(), &[1; 9]].concat();
        let found = tables(&engine, &widths);
        assert_eq!(found.len(), expected.len());
        for (place, ([cos, sin], positions)) in found.iter().zip(&expected).enumerate() {
            for (j, axis) in axes.iter().enumerate() {
                let angle = positions[*axis] as f64 * 1e4f64.powf(-(j as f64) / 8.0);
                let off = (f64::from(cos[j]) - angle.cos()).abs() + (f64::from(sin[j]) - angle.sin()).abs();
                assert!(off < 1e-6, "interleaved {interleaved}, place {place}, angle {j}: off by {off}");
            }
        }
    }
}

#[test]
fn text_alone_has_the_usual_positions_where_tokens_have_three() {
    let plain = EngineConfig { rope: Some(RopeConfig::new(8, 1e4)), ..config() };
    let mut fed = Vec::new();
    for config in [plain, mrope(false, &[2, 3, 3]), mrope(true, &[4, 2, 2])] {
        let mut engine = open(concat(EIGHT), config).unwrap();
        run(&mut engine, 11);
        run(&mut engine, 1);
        fed.push(engine.executor().fed.clone());
    }
    assert!(fed[0] == fed[1] && fed[0] == fed[2]);
}

#[test]
fn placed_images_end_with_their_tokens_and_what_would_lose_them_is_refused() {
    let grid = Grid { frames: 1, rows: 2, columns: 2 };
    let mut engine = open(concat(EIGHT), mrope(false, &[2, 3, 3])).unwrap();
    engine.place_grid(1, grid).unwrap();
    run(&mut engine, 8);
    for refused in [
        engine.shift(SeqId(0), 0..8, 1).map(drop),
        engine.shift_out(SeqId(0), 0, 2).map(drop),
        engine.divide(SeqId(0), 0..8, 2),
        engine.share(SeqId(0), SeqId(1), 0..8),
        engine.copy(SeqId(0), SeqId(1), 0..8),
        engine.snapshot().map(drop),
        engine.place_grid(4, grid),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("in a dialog with placed images") || refused.contains("a place from 8 on"),
            "{refused}"
        );
    }
    // Behind the image it is still there, before it no longer.
    engine.rewind(6).unwrap();
    run(&mut engine, 1);
    assert_eq!(tables(&engine, &[8, 1])[8][0][0], 4f64.cos() as f32, "6 less the 2 that the image saves");
    engine.rewind(1).unwrap();
    run(&mut engine, 6);
    assert_eq!(tables(&engine, &[8, 1, 6])[14][0][0], 6f64.cos() as f32);
    // There is no file here to take the model's mark from; the images are no reason any more.
    let refused = engine.snapshot().map(drop).unwrap_err().to_string();
    assert!(!refused.contains("placed images"), "{refused}");

    let mut plain = open(concat(ROPE), EngineConfig { rope: Some(RopeConfig::new(2, 1e4)), ..config() }).unwrap();
    let refused = plain.place_grid(0, grid).unwrap_err().to_string();
    assert!(refused.contains("placing an image by frame, row and column"), "{refused}");
}

//! What libGenie 1.21 was recorded feeding as positions, code by code: `dialogs/rope.json` and `dialogs/positions.json` of the
//! recordings. Each config goes through the dialog's own reading; an executor keeps the bytes.

use std::path::Path;

use conformance::golden;
use dialog::DialogConfig;
use engine::{Binding, Engine, ExecuteError, Executor, Policy, TokenModel};
use genie_types::{Dtype, GraphInfo, Quant, TensorInfo, TokenId};
use nsp_graph::{BinaryGraphs, Options, analyze};
use serde_json::{Value, json};

/// A graph's name, and names and bytes of its inputs.
type Execution = (String, Vec<(String, Vec<u8>)>);

/// Keeps what every execution was fed, by the name of the input.
struct Recorder {
    graphs: Vec<GraphInfo>,
    fed: Vec<Execution>,
}

impl Executor for Recorder {
    fn execute<'io>(
        &mut self,
        _: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        let info = &self.graphs[graph];
        let mut fed = Vec::new();
        for binding in io {
            match binding {
                Binding::Input(i, bytes) => fed.push((info.inputs[i].name.clone(), bytes.to_vec())),
                Binding::Output(_, bytes) | Binding::InPlace(_, _, bytes) => bytes.fill(0),
            }
        }
        self.fed.push((info.name.clone(), fed));
        Ok(())
    }
}

impl Recorder {
    fn bytes(&self, step: usize, name: &str) -> &[u8] {
        let found = self.fed[step].1.iter().find(|(n, _)| n == name);
        &found.unwrap_or_else(|| panic!("no input `{name}`")).1
    }
}

/// One layer, AR 1 and 8.
fn graph(ar: usize, cl: usize, positions: Vec<TensorInfo>) -> GraphInfo {
    let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
    let mut g = GraphInfo { name: format!("ar{ar}_cl{cl}_1_of_1"), ..GraphInfo::default() };
    g.inputs = vec![t("input_ids", &[1, ar], Dtype::I32), t("attention_mask", &[1, 1, ar, cl], Dtype::F16)];
    g.inputs.extend(positions);
    g.inputs.push(t("past_key_0_in", &[1, 1, 32, cl - ar], Dtype::F16));
    g.inputs.push(t("past_value_0_in", &[1, 1, cl - ar, 32], Dtype::F16));
    g.outputs = vec![
        t("past_key_0_out", &[1, 1, 32, ar], Dtype::F16),
        t("past_value_0_out", &[1, 1, ar, 32], Dtype::F16),
        t("logits", &[1, ar, 512], Dtype::F16),
    ];
    g
}

fn open(encoding: &Value, size: u64, graphs: Vec<GraphInfo>) -> Engine<Recorder> {
    let document = json!({"dialog": {
        "version": 1, "type": "basic",
        "context": {"version": 1, "size": size, "n-vocab": 512, "bos-token": 256, "eos-token": 257},
        "sampler": {"version": 1, "seed": 1},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1, "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {
                "version": 1, "use-mmap": true, "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false,
                "cpu-mask": "0xe0", "kv-dim": 32
            }},
            "model": {"version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": ["model.bin"]},
                "positional-encoding": encoding}
        }
    }});
    let config =
        DialogConfig::from_json(&document.to_string(), "/bundle").unwrap_or_else(|e| panic!("{encoding}: {e}"));
    let layout = analyze(&[BinaryGraphs { source: "m.bin".into(), graphs: graphs.clone() }], &Options::default());
    let recorder = Recorder { graphs, fed: Vec::new() };
    let mut engine = Engine::with_executor(layout.unwrap(), recorder, config.engine()).unwrap();
    engine.set_policy(Policy::Genie);
    engine
}

fn recordings(name: &str) -> Vec<Value> {
    let file = golden::folder().join(Path::new("dialogs").join(name));
    golden::json(&file)["cases"].as_array().expect("a list of cases").clone()
}

fn ids(list: &Value) -> Vec<TokenId> {
    list.as_array().expect("a list").iter().map(|x| TokenId(x.as_u64().expect("an id") as u32)).collect()
}

#[test]
#[ignore = "needs the recordings of libGenie: GENIE_GOLDEN_DIR"]
fn every_recorded_code_of_every_rotary_table() {
    let cases = recordings("rope.json");
    assert!(cases.len() >= 13);
    for case in cases {
        let (name, encoding) = (&case["name"], &case["positional_encoding"]);
        let size = case["context_size"].as_u64().unwrap();
        let dim = encoding["rope-dim"].as_u64().unwrap() as usize;
        let rows = |ar: usize| {
            let quant = Quant::PerTensor { scale: 4.0 / 65535.0, offset: -32768 };
            ["cos", "sin"].map(|end| {
                TensorInfo::new(format!("position_ids_{end}"), [1, 1, ar, dim], Dtype::UFixed16)
                    .with_quant(quant.clone())
            })
        };
        let cl = size.max(128) as usize;
        let mut engine = open(encoding, size, [1, 8].map(|ar| graph(ar, cl, rows(ar).to_vec())).into());
        let positions: Vec<usize> = ids(&case["positions"]).iter().map(|x| x.0 as usize).collect();
        let last = positions.iter().max().unwrap() + 1;
        for (i, _) in (0..last).enumerate() {
            engine.process(&[TokenId(i as u32)]).unwrap();
        }
        for end in ["cos", "sin"] {
            for (position, codes) in positions.iter().zip(case[end].as_array().unwrap()) {
                let bytes = engine.executor().bytes(*position, &format!("position_ids_{end}"));
                let found: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b).into()).collect();
                let want: Vec<u64> = codes.as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).collect();
                assert_eq!(found, want, "{name}, {end} of position {position}");
            }
        }
    }
}

#[test]
#[ignore = "needs the recordings of libGenie: GENIE_GOLDEN_DIR"]
fn every_recorded_position_and_distance() {
    let cases = recordings("positions.json");
    assert!(cases.len() >= 2);
    for case in cases {
        let name = &case["name"];
        let cl = 128;
        let alibi = case["positional_encoding"]["type"] == "alibi";
        let input = |ar: usize| {
            let dims = if alibi { vec![1, 1, ar, cl] } else { vec![1, ar] };
            vec![TensorInfo::new("position_ids", dims, Dtype::I32)]
        };
        let graphs = [1, 8].map(|ar| graph(ar, cl, input(ar))).into();
        let mut engine = open(&case["positional_encoding"], cl as u64, graphs);
        engine.process(&ids(&case["prompt_with_bos"])).unwrap();
        let executions = case["executions"].as_array().unwrap();
        for step in &executions[engine.executor().fed.len()..] {
            engine.process(&ids(&step["ids"])[..1]).unwrap();
        }
        for (i, step) in executions.iter().enumerate() {
            let (graph, _) = &engine.executor().fed[i];
            assert!(step["graph"].as_str().unwrap().ends_with(graph.as_str()), "{name}, execution {i}: {graph}");
            let bytes = engine.executor().bytes(i, "position_ids");
            let found: Vec<i64> = bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect();
            let rows = step["position_ids"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
            let want: Vec<i64> = rows.map(|x| x.as_i64().unwrap()).collect();
            assert_eq!(found, want, "{name}, execution {i}");
        }
    }
}

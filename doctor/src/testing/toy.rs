//! A toy model of one quantised layer: graphs and a config. Unit tests use it as plain data, integration tests on disk
//! (`tests/common` includes this file).

use genie_types::{Dtype, GraphInfo, Quant, TensorInfo};
use serde_json::{Value, json};

/// Width of a head.
pub const HEAD_DIM: usize = 8;

/// A tensor with scale and offset.
pub fn fixed(name: &str, dims: &[usize], dtype: Dtype, scale: f32, offset: i32) -> TensorInfo {
    TensorInfo::new(name, dims, dtype).with_quant(Quant::PerTensor { scale, offset })
}

/// A whole model of one layer for AR-n CL-m, with logits of that width.
pub fn graph(n: usize, m: usize, vocab: usize) -> GraphInfo {
    let kv = |name: &str, dims: &[usize]| fixed(name, dims, Dtype::UFixed8, 0.5, -128);
    let rope = |name: &str| fixed(name, &[1, 1, n, HEAD_DIM / 2], Dtype::UFixed16, 2.0 / 65535.0, -32768);
    GraphInfo {
        name: format!("ar{n}_cl{m}_1_of_1"),
        inputs: vec![
            TensorInfo::new("input_ids", [1, n], Dtype::I32),
            fixed("attention_mask", &[1, 1, n, m], Dtype::UFixed16, 0.001, -65535),
            rope("position_ids_cos"),
            rope("position_ids_sin"),
            kv("past_key_0_in", &[2, 1, HEAD_DIM, m - n]),
            kv("past_value_0_in", &[2, 1, m - n, HEAD_DIM]),
        ],
        outputs: vec![
            kv("past_key_0_out", &[2, 1, HEAD_DIM, n]),
            kv("past_value_0_out", &[2, 1, n, HEAD_DIM]),
            fixed("logits", &[1, n, vocab], Dtype::UFixed16, 0.01, -32768),
        ],
    }
}

/// The two splits of that model: the layer, then the LM head; tensor `hidden` of that dtype lies between.
pub fn splits(n: usize, m: usize, vocab: usize, hidden: Dtype) -> (GraphInfo, GraphInfo) {
    let hidden = TensorInfo::new("hidden", [1, n, 16], hidden);
    let mut decoder = graph(n, m, vocab);
    let logits = decoder.outputs.pop().expect("logits come last");
    decoder.name = format!("ar{n}_cl{m}_1_of_2");
    decoder.outputs.push(hidden.clone());
    let head = GraphInfo { name: format!("ar{n}_cl{m}_2_of_2"), inputs: vec![hidden], outputs: vec![logits] };
    (decoder, head)
}

/// A config for the model with these binaries and special tokens.
pub fn config(binaries: &[&str], vocab: usize, bos: u32, eos: u32) -> Value {
    json!({"dialog": {
        "version": 1, "type": "basic",
        "context": {"version": 1, "size": 64, "n-vocab": vocab, "bos-token": bos, "eos-token": eos},
        "sampler": {"version": 1, "temp": 0.8},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1, "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {
                "version": 1, "use-mmap": true, "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false,
                "cpu-mask": "0xe0", "kv-dim": HEAD_DIM, "allow-async-init": false,
            }},
            "model": {
                "version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": binaries},
                "positional-encoding": {"type": "rope", "rope-dim": HEAD_DIM / 2, "rope-theta": 10000},
            },
        },
    }})
}

/// Sets the value at a pointer of a config, or removes the key with `null`.
pub fn set(document: &mut Value, pointer: &str, value: Value) {
    let (block, key) = pointer.rsplit_once('/').expect("a pointer");
    let block = document.pointer_mut(block).and_then(Value::as_object_mut).expect("a block");
    match value {
        Value::Null => drop(block.remove(key)),
        value => drop(block.insert(key.to_owned(), value)),
    }
}

/// A tensor of a graph, by name.
pub fn tensor<'g>(graph: &'g mut GraphInfo, name: &str) -> Option<&'g mut TensorInfo> {
    graph.inputs.iter_mut().chain(&mut graph.outputs).find(|t| t.name == name)
}

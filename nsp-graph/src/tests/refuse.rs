//! What is refused, and with which words.

use genie_types::{DataFormat, Dtype, Quant, TensorInfo};

use super::fixture::{Model, Part::*, drop_tensor, graph_mut, in_blocks, tensor};
use crate::*;

const AR1: &str = "ar1_cl128_1_of_1";
const AR32: &str = "ar32_cl128_1_of_1";

type Bend = fn(&mut Vec<BinaryGraphs>);

fn check(model: &Model, cases: &[(&str, Bend)]) {
    let mut wrong = Vec::new();
    for (want, bend) in cases {
        let mut bundle = model.bundle(&[(1, 128), (32, 128)]);
        bend(&mut bundle);
        let found = analyze(&bundle, &Options::default()).map_or_else(|e| e.to_string(), |_| "accepted".into());
        if found != *want {
            wrong.push(format!("expected {want}\n   found {found}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn whole_models() {
    check(
        &Model::default(),
        &[
            ("the bundle holds no graph to run (binaries: none)", |b| b.clear()),
            ("the bundle holds no graph to run (binaries: part1.bin)", |b| b[0].graphs.clear()),
            ("graph `ar32_cl128_1_of_1` of `part1.bin` lists tensor `input_ids` twice", |b| {
                let g = graph_mut(b, AR32);
                g.inputs.push(g.inputs[0].clone());
            }),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin` is the last split but has no output `logits` (near names: `logit`)",
                |b| tensor(b, AR32, "logits").name = "logit".into(),
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin` is the first split but has neither `input_ids` nor `inputs_embeds` (near names: `ids`)",
                |b| tensor(b, AR32, "input_ids").name = "ids".into(),
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: cache group `past_` has no attention mask `attention_mask` (near names: `attention_msk`)",
                |b| tensor(b, AR1, "attention_mask").name = "attention_msk".into(),
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin` has no input `position_ids_sin`, but has its partner (near names: `position_id_sin`)",
                |b| tensor(b, AR1, "position_ids_sin").name = "position_id_sin".into(),
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: nothing fills input `rope_cos`: it is neither a name of the contract nor an output of an earlier split",
                |b| {
                    tensor(b, AR1, "position_ids_cos").name = "rope_cos".into();
                    tensor(b, AR1, "position_ids_sin").name = "rope_sin".into();
                },
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: nothing fills input `cache_indx`: it is neither a name of the contract nor an output of an earlier split (near names: `cache_index`)",
                |b| graph_mut(b, AR1).inputs.push(TensorInfo::new("cache_indx", [1], Dtype::I32)),
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `input_ids` has shape [32, 1], expected [1, 1] (AR), with or without more leading 1s",
                |b| tensor(b, AR32, "input_ids").dims = vec![32, 1],
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `attention_mask` has shape [1, 1, 16, 128], expected [1, 32, 128] (AR, CL), with or without more leading 1s",
                |b| tensor(b, AR32, "attention_mask").dims[2] = 16,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `attention_mask` has shape [2, 1, 32, 128], expected [1, 32, 128] (AR, CL), with or without more leading 1s",
                |b| tensor(b, AR32, "attention_mask").dims[0] = 2,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `attention_mask` has shape [], expected [1, AR, CL]",
                |b| tensor(b, AR32, "attention_mask").dims.clear(),
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `logits` has shape [1, 1, 512], expected [1, 32, any] (AR, vocab), with or without more leading 1s",
                |b| tensor(b, AR32, "logits").dims[1] = 1,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `logits` is 500 wide, but 512 wide in `ar1_cl128_1_of_1`",
                |b| tensor(b, AR32, "logits").dims[2] = 500,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `position_ids_cos` is 8 wide, but 16 wide in `ar1_cl128_1_of_1`",
                |b| tensor(b, AR32, "position_ids_cos").dims[3] = 8,
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `position_ids_sin` has shape [1, 1, 1, 8], expected rope_dim 16, as `position_ids_cos` has",
                |b| {
                    tensor(b, AR1, "position_ids_sin").dims[3] = 8;
                    tensor(b, AR32, "position_ids_sin").dims[3] = 8;
                },
            ),
            ("graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `input_ids` is float16, expected int32", |b| {
                tensor(b, AR1, "input_ids").dtype = Dtype::F16
            }),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `attention_mask` is int32, expected float16, float32, ufixed8, ufixed16, uint8 or uint16",
                |b| tensor(b, AR1, "attention_mask").dtype = Dtype::I32,
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `position_ids_cos` is ufixed16 but has no per-tensor scale and offset",
                |b| tensor(b, AR1, "position_ids_cos").dtype = Dtype::UFixed16,
            ),
            ("graph `ar1_cl128_1_of_1` of `part1.bin`: AR-129 is wider than its context CL-128", |b| {
                tensor(b, AR1, "input_ids").dims[1] = 129
            }),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin` has the same AR and CL (AR-32 CL-128) as `ar32_cl128_1_of_1` of the same split",
                |b| {
                    let twin = graph_mut(b, AR32).clone();
                    b.push(BinaryGraphs { source: "part1.bin".into(), graphs: vec![twin] });
                },
            ),
        ],
    );
}

#[test]
fn caches() {
    check(
        &Model::default(),
        &[
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin` has cache tensor `past_key_0_in` but not its partner `past_key_0_out` (near names: `past_key_1_out`, `past_key_1_in`)",
                |b| {
                    drop_tensor(b, AR1, "past_key_0_out");
                    drop_tensor(b, AR1, "past_value_0_out");
                },
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin` has cache tensor `past_value_1_out` but not its partner `past_key_1_out` (near names: `past_key_0_out`, `past_key_1_in`, `past_key_0_in`)",
                |b| drop_tensor(b, AR1, "past_key_1_out"),
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin` has cache tensor `past_key_0_out` but not its partner `past_key_0_in` (near names: `past_key_1_in`, `past_key_1_out`)",
                |b| drop_tensor(b, AR32, "past_key_0_in"),
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `past_key_0_in` has 97 past rows, expected 96 (CL - AR, concat form) or 128 (CL, scatter form)",
                |b| tensor(b, AR32, "past_key_0_in").dims[3] = 97,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `past_value_1_in` is in scatter form, while cache group `past_` is in concat form elsewhere",
                |b| tensor(b, AR32, "past_value_1_in").dims[2] = 128,
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: cache group `past_` has a past of CL rows (scatter form) but no index input `cache_index`",
                |b| tensor(b, AR1, "past_key_0_in").dims[3] = 128,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `past_key_0_out` has shape [2, 1, 32, 31], expected [heads, 1, head_dim, AR = 32]",
                |b| tensor(b, AR32, "past_key_0_out").dims[3] = 31,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `past_value_0_out` has shape [2, 3, 32, 32], expected [heads, 1, seq, head_dim]",
                |b| tensor(b, AR32, "past_value_0_out").dims[1] = 3,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `past_value_0_in` has shape [4, 1, 96, 32], expected 2 heads of 32 elements, as `past_value_0_out` has",
                |b| tensor(b, AR32, "past_value_0_in").dims[0] = 4,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin`: cache tensor `past_value_0_out` is 4 heads of 32 elements, float16, but 2 heads of 32 elements, float16 in `ar1_cl128_1_of_1`",
                |b| {
                    tensor(b, AR32, "past_value_0_in").dims[0] = 4;
                    tensor(b, AR32, "past_value_0_out").dims[0] = 4;
                },
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: `past_value_0_in` is float16 but `past_value_0_out` is float32; rows are copied from one to the other, so both must be the same",
                |b| tensor(b, AR1, "past_value_0_out").dtype = Dtype::F32,
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: `past_value_0_in` is float16 in hardware tiles but `past_value_0_out` is float16; rows are copied from one to the other, so both must be the same",
                |b| tensor(b, AR1, "past_value_0_in").format = DataFormat::HmxWeight,
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `past_value_0_out` is int32, expected float16, float32, ufixed8, ufixed16, sfixed8 or sfixed16",
                |b| tensor(b, AR1, "past_value_0_out").dtype = Dtype::I32,
            ),
            (
                "graph `ar32_cl128_1_of_1` of `part1.bin` lacks cache tensor `past_key_1_out`, which `ar1_cl128_1_of_1` of the same split has",
                |b| {
                    ["past_key_1_in", "past_key_1_out", "past_value_1_in", "past_value_1_out"]
                        .iter()
                        .for_each(|n| drop_tensor(b, AR32, n))
                },
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: cache group `layer1_past_` has no attention mask `layer1_past_attention_mask` (near names: `attention_mask`)",
                |b| {
                    for t in ["key_1_in", "key_1_out", "value_1_in", "value_1_out"] {
                        tensor(b, AR1, &format!("past_{t}")).name = format!("layer1_past_{t}");
                    }
                },
            ),
        ],
    );
    let quantised = Model { quantised: true, ..Model::default() };
    check(
        &quantised,
        &[
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: `past_key_0_in` is ufixed8 with scale 0.2 and offset -128 but `past_key_0_out` is ufixed8 with scale 0.1 and offset -128; rows are copied from one to the other, so both must be the same",
                |b| tensor(b, AR1, "past_key_0_in").quant = Quant::PerTensor { scale: 0.2, offset: -128 },
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `past_key_0_out` is ufixed8 but has no per-tensor scale and offset",
                |b| tensor(b, AR1, "past_key_0_out").quant = Quant::None,
            ),
            (
                "graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `past_key_0_out` is ufixed8 but has no per-tensor scale and offset",
                |b| tensor(b, AR1, "past_key_0_out").quant = Quant::PerTensor { scale: 0.1, offset: -300 },
            ),
        ],
    );
    check(
        &Model { scatter: true, ..Model::default() },
        &[(
            "graph `ar32_cl128_1_of_1` of `part1.bin`: tensor `cache_index` has shape [2], expected [1, 32] (AR, or 1), with or without more leading 1s",
            |b| tensor(b, AR32, "cache_index").dims = vec![2],
        )],
    );
}

#[test]
fn chains() {
    let model = Model { parts: &[Lut, Layers(1), Layers(1), Head], ..Model::default() };
    check(
        &model,
        &[
            (
                "graph `ar1_cl128_1_of_5` of `part1.bin` says it is one of 5 splits, but `ar1_cl128_2_of_4` says 4",
                |b| {
                    let mut odd = graph_mut(b, "ar1_cl128_1_of_4").clone();
                    odd.name = "ar1_cl128_1_of_5".into();
                    b[0].graphs = vec![odd];
                    b.rotate_left(1);
                },
            ),
            (
                "split 3 of 4 is missing; the graphs found are ar1_cl128_1_of_4, ar32_cl128_1_of_4, ar1_cl128_2_of_4, ar32_cl128_2_of_4, ar1_cl128_4_of_4, ar32_cl128_4_of_4",
                |b| {
                    b.remove(2);
                },
            ),
            (
                "graph `head` of `part4.bin` has no `_i_of_k` in its name, while `ar1_cl128_1_of_4` has; splits are ordered by it",
                |b| graph_mut(b, "ar1_cl128_4_of_4").name = "head".into(),
            ),
            (
                "graph `ar32_cl128_2_of_4` of `part2.bin` is LUT, but `ar1_cl128_2_of_4` of the same split is DECODER",
                |b| {
                    let g = graph_mut(b, "ar32_cl128_2_of_4");
                    g.inputs = vec![TensorInfo::new("input_ids", [1, 32], Dtype::I32)];
                    g.outputs.retain(|t| t.name == "hidden_1");
                },
            ),
            ("split 3 has no graph for ar32_cl128; it has ar1_cl128, and `ar32_cl128_1_of_4` needs it", |b| {
                b[2].graphs.pop();
            }),
            ("split 4 has no graph for ar1_cl128; it has ar32_cl128, and `ar1_cl128_1_of_4` needs it", |b| {
                b[3].graphs.remove(0);
            }),
            (
                "graph `ar1_cl128_1_of_4` of `part2.bin` is the first split but has neither `input_ids` nor `inputs_embeds`",
                |b| {
                    b.remove(0);
                    b[0].graphs.iter_mut().for_each(|g| g.name = g.name.replace("_2_", "_1_"));
                    let twins: Vec<_> = b[0]
                        .graphs
                        .iter()
                        .cloned()
                        .map(|mut g| {
                            g.name = g.name.replace("_1_", "_2_");
                            g
                        })
                        .collect();
                    b.push(BinaryGraphs { source: "twins.bin".into(), graphs: twins });
                },
            ),
            (
                "graph `ar1_cl128_2_of_4` of `part2.bin` has output `logits` but is split 2 of 4; only the last one may",
                |b| tensor(b, "ar1_cl128_2_of_4", "hidden_1").name = "logits".into(),
            ),
            (
                "graph `ar1_cl128_3_of_4` of `part3.bin`: nothing fills input `hidden_1`: it is neither a name of the contract nor an output of an earlier split (near names: `hidden1`, `hidden_0`)",
                |b| {
                    tensor(b, "ar1_cl128_2_of_4", "hidden_1").name = "hidden1".into();
                    tensor(b, "ar32_cl128_2_of_4", "hidden_1").name = "hidden1".into();
                },
            ),
            (
                "graph `ar32_cl128_3_of_4` of `part3.bin`: nothing fills input `hidden_1`: it is neither a name of the contract nor an output of an earlier split (near names: `hidden1`)",
                |b| tensor(b, "ar32_cl128_2_of_4", "hidden_1").name = "hidden1".into(),
            ),
            (
                "graph `ar1_cl128_2_of_4` of `part2.bin`: input `hidden_2` is an output of `ar1_cl128_3_of_4`, which runs later; splits are ordered by graph name",
                |b| tensor(b, "ar1_cl128_2_of_4", "hidden_0").name = "hidden_2".into(),
            ),
            (
                "graph `ar32_cl128_2_of_4` of `part2.bin`: input `hidden_0` is float16 [1, 32, 64], but `ar32_cl128_1_of_4` writes float16 [1, 32, 128]",
                |b| tensor(b, "ar32_cl128_2_of_4", "hidden_0").dims[2] = 64,
            ),
            (
                "graph `ar32_cl128_4_of_4` of `part4.bin`: input `hidden_2` is float32 [1, 32, 128], but `ar32_cl128_3_of_4` writes float16 [1, 32, 128]",
                |b| tensor(b, "ar32_cl128_4_of_4", "hidden_2").dtype = Dtype::F32,
            ),
            (
                "cache tensor `past_key_0_out` is in graph `ar1_cl128_3_of_4` of `part3.bin` and also in `ar1_cl128_2_of_4` of another split",
                |b| {
                    b[2].graphs.iter_mut().flat_map(|g| g.inputs.iter_mut().chain(&mut g.outputs)).for_each(|t| {
                        if t.name.starts_with("past_") {
                            t.name = t.name.replace("_1_", "_0_");
                        }
                    })
                },
            ),
            (
                "cannot tell what graph `ar1_cl128_1_of_4` of `part1.bin` is for: no token input, no cache tensor, no logits, no image (inputs: `ids`)",
                |b| tensor(b, "ar1_cl128_1_of_4", "input_ids").name = "ids".into(),
            ),
        ],
    );
}

#[test]
fn options_are_checked() {
    let bundle = Model::default().bundle(&[(1, 128), (32, 128)]);
    let group = |prefix: &str| GroupOptions { prefix: prefix.into(), mask: None, index: None };
    let groups = |names: &[&str]| Options {
        groups: names.iter().map(|n| group(n)).collect(),
        select: None,
        ..Options::default()
    };
    let select = |names: &[&str]| Options {
        groups: vec![],
        select: Some(names.iter().map(|n| (*n).to_owned()).collect()),
        ..Options::default()
    };
    let cases = [
        (groups(&["past_", "past_"]), "cache group `past_` is configured twice"),
        (
            groups(&["cache_"]),
            "graph `ar1_cl128_1_of_1` of `part1.bin`: tensor `past_key_0_in` has cache prefix `past_`, but the configured groups are `cache_`",
        ),
        (
            select(&["ar1_cl128_1_of_2"]),
            "selected graph `ar1_cl128_1_of_2` is in no binary of the bundle (near names: `ar1_cl128_1_of_1`, `ar32_cl128_1_of_1`)",
        ),
        (select(&[]), "the bundle holds no graph to run (binaries: part1.bin)"),
    ];
    for (options, want) in cases {
        assert_eq!(analyze(&bundle, &options).unwrap_err().to_string(), want);
    }
}

#[test]
fn a_graph_without_cache_must_be_full_context() {
    let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
    let graph = genie_types::GraphInfo {
        name: "whole".into(),
        inputs: vec![t("input_ids", &[1, 16], Dtype::I32), t("attention_mask", &[1, 16, 64], Dtype::F16)],
        outputs: vec![t("logits", &[1, 16, 100], Dtype::F32)],
    };
    let bundle = [BinaryGraphs { source: "m.bin".into(), graphs: vec![graph] }];
    let err = analyze(&bundle, &Options::default()).unwrap_err();
    assert_eq!(
        err.to_string(),
        "graph `whole` of `m.bin` has no cache tensors, so it must see its whole context at once (AR == CL), but is AR-16 CL-64"
    );
}

#[test]
fn garbage_gets_an_error_and_no_panic() {
    // Every tensor of every graph, bent in every way: whatever the answer, it is an answer.
    let model = Model { parts: &[First(1), Layers(1), Head], quantised: true, ..Model::default() };
    let good = model.bundle(&[(1, 128), (32, 128)]);
    let mut refused = 0;
    for b in 0..good.len() {
        for g in 0..good[b].graphs.len() {
            let n_inputs = good[b].graphs[g].inputs.len();
            for i in 0..n_inputs + good[b].graphs[g].outputs.len() {
                for bend in 0..9 {
                    let mut bundle = good.clone();
                    let graph = &mut bundle[b].graphs[g];
                    let t = if i < n_inputs { &mut graph.inputs[i] } else { &mut graph.outputs[i - n_inputs] };
                    match bend {
                        0 => t.dims.clear(),
                        1 => t.dims.iter_mut().for_each(|n| *n = 0),
                        2 => t.dims.iter_mut().for_each(|n| *n = usize::MAX >> 20),
                        3 => t.dims.push(7),
                        4 => t.name.clear(),
                        5 => t.quant = Quant::Other(9),
                        6 => t.dtype = Dtype::Bool8,
                        7 => t.name = "past_key_0_out".into(),
                        _ => t.dims = vec![3; 9],
                    }
                    refused += usize::from(analyze(&bundle, &Options::default()).is_err());
                }
            }
        }
    }
    assert!(refused > 300, "{refused}");
}

/// Caches in blocks: scales that lack a partner or do not fit their rows.
#[test]
fn caches_in_blocks() {
    let error = |bend: Bend| {
        let mut bundle = Model::default().bundle(&[(1, 128), (32, 128)]);
        in_blocks(&mut bundle);
        bend(&mut bundle);
        analyze(&bundle, &Options::default()).unwrap_err().to_string()
    };
    let cases: [(&[&str], Bend); 5] = [
        (&["past_key_scale_1_in"], |b| drop_tensor(b, AR1, "past_key_scale_1_in")),
        (&["past_value_scale_0_out"], |b| drop_tensor(b, AR32, "past_value_scale_0_out")),
        (&["past_key_scale_0_out", "2 heads of 1 scales", "`past_key_0_out`"], |b| {
            tensor(b, AR1, "past_key_scale_0_out").dims[3] = 2;
        }),
        (&["past_value_scale_0_out", "float16 or float32"], |b| {
            tensor(b, AR1, "past_value_scale_0_out").dtype = Dtype::UFixed8;
        }),
        (&["past_key_0_out", "ufixed8 or sfixed8 beside scales"], |b| {
            let t = tensor(b, AR1, "past_key_0_out");
            (t.dtype, t.quant) = (Dtype::F16, Quant::None);
        }),
    ];
    for (words, bend) in cases {
        let found = error(bend);
        assert!(words.iter().all(|word| found.contains(word)), "{words:?} in {found}");
    }
}

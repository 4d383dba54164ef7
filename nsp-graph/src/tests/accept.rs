//! What is accepted, and what it means.

use genie_types::{Dtype, KvForm, KvKind, KvTensor, TensorInfo};

use super::fixture::{Model, Part, drop_tensor, graph_mut, tensor};
use crate::*;

use Part::*;

struct Case {
    name: &'static str,
    model: Model,
    variants: &'static [(usize, usize)],
    kinds: &'static [GraphKind],
    form: KvForm,
    kv: &'static [usize],
    wires: usize,
}

#[test]
fn bundles_of_the_contract() {
    use GraphKind::*;
    let plain = || Case {
        name: "mono",
        model: Model::default(),
        variants: &[(1, 128), (32, 128)],
        kinds: &[Default],
        form: KvForm::Concat,
        kv: &[4],
        wires: 0,
    };
    let split = |parts: &'static [Part], kinds: &'static [GraphKind], kv: &'static [usize]| Case {
        name: "split",
        model: Model { parts, ..Model::default() },
        kinds,
        kv,
        wires: parts.len() - 1,
        ..plain()
    };
    let cases = [
        plain(),
        Case { name: "rank 3", model: Model { rank3: true, ..Model::default() }, ..plain() },
        Case { name: "scatter", model: Model { scatter: true, ..Model::default() }, form: KvForm::Scatter, ..plain() },
        Case { name: "heads apart", model: Model { per_head: true, ..Model::default() }, kv: &[8], ..plain() },
        Case { name: "embeddings", model: Model { embeds: true, ..Model::default() }, ..plain() },
        Case { name: "w8a16", model: Model { quantised: true, ..Model::default() }, ..plain() },
        Case { name: "many", variants: &[(1, 128), (8, 128), (32, 128), (1, 256), (8, 256), (32, 256)], ..plain() },
        Case { name: "differing AR sets", variants: &[(8, 128), (1, 256), (32, 256)], ..plain() },
        Case { name: "full context beside", variants: &[(1, 128), (128, 128)], ..plain() },
        Case { name: "full context only", variants: &[(64, 64)], ..plain() },
        split(&[First(2), Head], &[Decoder, LmHead], &[4, 0]),
        split(&[Part::Lut, Layers(2), Head], &[Lut, Decoder, LmHead], &[0, 4, 0]),
        split(&[Part::Lut, Layers(1), Last(1)], &[Lut, Decoder, Decoder], &[0, 2, 2]),
        split(&[First(1), Layers(1), Head], &[Decoder, Decoder, LmHead], &[2, 2, 0]),
        Case {
            name: "split, full context",
            variants: &[(64, 64)],
            ..split(&[First(2), Head], &[Decoder, LmHead], &[4, 0])
        },
        Case {
            name: "split, with and without past",
            variants: &[(1, 64), (64, 64)],
            ..split(&[First(2), Head], &[Decoder, LmHead], &[4, 0])
        },
    ];
    for case in cases {
        let layout = case.model.layout(case.variants).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let specs: Vec<_> = layout.variants.iter().map(|v| (v.ar().get(), v.cl().get())).collect();
        let mut want = case.variants.to_vec();
        want.sort_by_key(|&(ar, cl)| (cl, ar));
        assert_eq!(specs, want, "{}", case.name);
        let kinds: Vec<_> = layout.splits.iter().map(|s| s.kind).collect();
        assert_eq!(kinds, case.kinds, "{}", case.name);
        assert_eq!(layout.groups.len(), 1, "{}", case.name);
        assert_eq!(layout.groups[0].form, case.form, "{}", case.name);
        let kv: Vec<_> = layout.splits.iter().map(|s| s.kv.len()).collect();
        assert_eq!(kv, case.kv, "{}", case.name);
        assert_eq!(layout.wires.len(), case.wires, "{}", case.name);
        assert_eq!(layout.vocab_size, 512, "{}", case.name);
        let tables: Vec<_> = layout.rope_tables.iter().map(|t| (t.prefix.as_str(), t.dim)).collect();
        assert_eq!(tables, [("", 16)], "{}", case.name);
        assert_eq!(layout.n_layers(), 2, "{}", case.name);
        assert!(layout.notes.is_empty(), "{}: {:?}", case.name, layout.notes);
        check_roles(&layout, case.name);
    }
}

/// Roles run parallel to the tensors, and name the tensors they should.
fn check_roles(layout: &ModelLayout, name: &str) {
    for split in &layout.splits {
        for (v, spec) in layout.variants.iter().enumerate() {
            let graph = split.graph(v);
            assert_eq!(graph.ar, spec.ar(), "{name}");
            assert_eq!(graph.inputs.len(), graph.info.inputs.len(), "{name}");
            assert_eq!(graph.outputs.len(), graph.info.outputs.len(), "{name}");
            for (role, t) in graph.inputs.iter().zip(&graph.info.inputs) {
                let want = match role {
                    InputRole::Ids => "input_ids".into(),
                    InputRole::Embeds => "inputs_embeds".into(),
                    InputRole::Features => "target_hidden_states".into(),
                    InputRole::Mask(g) => layout.groups[*g].mask.clone(),
                    InputRole::Cos(table) => format!("{}position_ids_cos", layout.rope_tables[*table].prefix),
                    InputRole::Sin(table) => format!("{}position_ids_sin", layout.rope_tables[*table].prefix),
                    InputRole::Positions | InputRole::Distances => "position_ids".into(),
                    InputRole::CacheIndex(g) => layout.groups[*g].index.clone(),
                    InputRole::Alpha(alpha) => layout.alphas[*alpha].clone(),
                    InputRole::Anchor(layer) => format!("anchor_buffer_{}_in", layer.0),
                    InputRole::Past(kv) => kv_name(layout, &split.kv[kv.0].tensor, "in"),
                    InputRole::Weight(weight) => layout.weights[*weight].info.name.clone(),
                    InputRole::Wire(w) => {
                        let wire = &layout.wires[w.0];
                        assert!(wire.producer < split.index && wire.consumers.contains(&split.index), "{name}");
                        wire.name.clone()
                    }
                };
                assert_eq!(t.name, want, "{name}");
            }
            for (role, t) in graph.outputs.iter().zip(&graph.info.outputs) {
                let want = match role {
                    OutputRole::Logits => "logits".into(),
                    OutputRole::New(kv) => kv_name(layout, &split.kv[kv.0].tensor, "out"),
                    OutputRole::Wire(w) => layout.wires[w.0].name.clone(),
                    OutputRole::Features => "last_hidden_states".into(),
                    OutputRole::Anchor(layer) => format!("anchor_buffer_{}_out", layer.0),
                    OutputRole::Extra => continue,
                };
                assert_eq!(t.name, want, "{name}");
            }
        }
    }
}

fn kv_name(layout: &ModelLayout, t: &KvTensor, end: &str) -> String {
    let kind = t.kind.name();
    let head = t.head.map_or(String::new(), |h| format!("_h{h}"));
    format!("{}{kind}_{}{head}_{end}", layout.groups[t.group].prefix, t.layer)
}

#[test]
fn cache_geometry() {
    let model = Model { quantised: true, per_head: true, parts: &[First(1), Layers(1), Head], ..Model::default() };
    let layout = model.layout(&[(1, 128), (32, 128)]).unwrap();
    let kv = &layout.splits[1].kv;
    let order: Vec<_> = kv.iter().map(|t| (t.tensor.layer.0, t.tensor.head, t.tensor.kind)).collect();
    let (k, v) = (KvKind::Key, KvKind::Value);
    assert_eq!(order, [(1, Some(0), k), (1, Some(0), v), (1, Some(1), k), (1, Some(1), v)]);
    assert_eq!(
        (kv[0].tensor.n_heads, kv[0].tensor.head_dim, kv[0].dtype, kv[0].tensor.pad_element()),
        (1, 32, Dtype::UFixed8, ([128, 0, 0, 0], 1))
    );
    let float = Model::default().layout(&[(1, 128)]).unwrap();
    assert_eq!((float.splits[0].kv[0].tensor.n_heads, float.splits[0].kv[0].tensor.pad_element()), (2, ([0; 4], 2)));
    assert!(!float.native_kv);
}

#[test]
fn splits_are_ordered_by_name_not_by_file() {
    let model = Model { parts: &[Lut, Layers(2), Head], ..Model::default() };
    let mut bundle = model.bundle(&[(1, 128), (32, 128)]);
    bundle.reverse();
    bundle[1].graphs.reverse();
    let layout = analyze(&bundle, &Options::default()).unwrap();
    let kinds: Vec<_> = layout.splits.iter().map(|s| s.kind).collect();
    assert_eq!(kinds, [GraphKind::Lut, GraphKind::Decoder, GraphKind::LmHead]);
    assert_eq!(layout.splits[1].graph(1).graph.0, 0, "the wider graph came first in its binary");
    assert_eq!((layout.splits[0].graphs[0].binary, layout.splits[2].graphs[0].binary), (2, 0));
    assert_eq!(layout.wires[0].name, "hidden_0");
    check_roles(&layout, "reversed");
}

#[test]
fn one_file_may_hold_all_splits() {
    let model = Model { parts: &[First(2), Head], ..Model::default() };
    let graphs = model.bundle(&[(1, 128)]).into_iter().flat_map(|b| b.graphs).collect();
    let layout = analyze(&[BinaryGraphs { source: "all.bin".into(), graphs }], &Options::default()).unwrap();
    assert_eq!(layout.splits.len(), 2);
}

#[test]
fn free_names_do_for_one_split_and_for_one_file_a_split() {
    let mut bundle = Model::default().bundle(&[(1, 128), (32, 128)]);
    graph_mut(&mut bundle, "ar1_cl128_1_of_1").name = "decode".into();
    graph_mut(&mut bundle, "ar32_cl128_1_of_1").name = "prefill".into();
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.variants.len(), 2);
    assert_eq!(layout.splits[0].graph(1).info.name, "prefill");

    let mut bundle = Model { parts: &[First(2), Head], ..Model::default() }.bundle(&[(1, 128)]);
    graph_mut(&mut bundle, "ar1_cl128_1_of_2").name = "a_decoder".into();
    graph_mut(&mut bundle, "ar1_cl128_2_of_2").name = "b_head".into();
    bundle.reverse();
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.splits[0].kind, GraphKind::Decoder, "ordered by graph name");
    assert_eq!(layout.splits[1].graphs[0].cl, None, "no tensor and no name says it");
}

#[test]
fn a_head_without_context_gets_it_from_its_name_and_may_serve_others() {
    let model = Model { parts: &[First(2), Head], ..Model::default() };
    let layout = model.layout(&[(1, 128), (1, 256)]).unwrap();
    assert_eq!(layout.splits[1].by_variant, [0, 1], "each to its own");

    let mut bundle = model.bundle(&[(1, 128), (1, 256)]);
    bundle[1].graphs.pop();
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.splits[1].by_variant, [0, 0]);
    let notes: Vec<String> = layout.note_lines().collect();
    assert_eq!(notes, ["graph `ar1_cl128_2_of_2` also serves ar1_cl256, which has none of its own"]);
}

#[test]
fn shapes_win_over_names() {
    let mut bundle = Model::default().bundle(&[(32, 128)]);
    graph_mut(&mut bundle, "ar32_cl128_1_of_1").name = "ar64_cl512_1_of_1".into();
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.variants[0].to_string(), "ar32_cl128");
    let notes: Vec<String> = layout.note_lines().collect();
    assert_eq!(notes, ["graph `ar64_cl512_1_of_1` is AR-32 CL-128 by its tensors, whatever its name says"]);
}

#[test]
fn groups_by_prefix() {
    let mut bundle = Model { scatter: true, ..Model::default() }.bundle(&[(1, 128), (32, 128)]);
    for graph in bundle.iter_mut().flat_map(|b| &mut b.graphs) {
        for t in graph.inputs.iter_mut().chain(&mut graph.outputs) {
            if t.name.starts_with("past_") && t.name.contains("_1_") {
                t.name = t.name.replace("past_", "swa_");
                t.dims.iter_mut().for_each(|n| *n = if *n == 128 { 64 } else { *n });
            }
        }
        let mut mask = graph.input("attention_mask").unwrap().clone();
        mask.name = "swa_attention_mask".into();
        *mask.dims.last_mut().unwrap() = 64;
        graph.inputs.push(mask);
        graph.inputs.push(TensorInfo::new("swa_cache_index", [1], Dtype::I32));
    }
    let layout = analyze(&bundle, &Options::default()).unwrap();
    let groups: Vec<_> = layout.groups.iter().map(|g| (g.prefix.as_str(), g.mask.as_str(), g.index.as_str())).collect();
    assert_eq!(groups, [("past_", "attention_mask", "cache_index"), ("swa_", "swa_attention_mask", "swa_cache_index")]);
    assert_eq!(layout.splits[0].kv.iter().map(|t| t.tensor.group).collect::<Vec<_>>(), [0, 0, 1, 1]);
    check_roles(&layout, "groups");

    let group = |prefix: &str, mask: Option<&str>| GroupOptions {
        prefix: prefix.into(),
        mask: mask.map(str::to_owned),
        index: None,
    };
    for graph in bundle.iter_mut().flat_map(|b| &mut b.graphs) {
        graph.inputs.iter_mut().find(|t| t.name == "swa_attention_mask").unwrap().name = "window".into();
    }
    let options = Options {
        groups: vec![group("past_", None), group("swa_", Some("window"))],
        select: None,
        ..Options::default()
    };
    let layout = analyze(&bundle, &options).unwrap();
    assert_eq!(layout.groups[1].mask, "window");
}

/// The same bundle with other position inputs in every graph.
fn with_positions(change: impl Fn(&mut genie_types::GraphInfo, usize)) -> Vec<BinaryGraphs> {
    let mut bundle = Model::default().bundle(&[(1, 128), (32, 128)]);
    for graph in bundle.iter_mut().flat_map(|b| &mut b.graphs) {
        let ar = graph.input("input_ids").unwrap().n_elems();
        change(graph, ar);
    }
    bundle
}

#[test]
fn a_model_may_take_several_rotary_tables() {
    let bundle = with_positions(|graph, ar| {
        for name in ["swa_position_ids_cos", "swa_position_ids_sin"] {
            graph.inputs.push(TensorInfo::new(name, [1, 1, ar, 8], Dtype::F16));
        }
    });
    let layout = analyze(&bundle, &Options::default()).unwrap();
    let tables: Vec<_> = layout.rope_tables.iter().map(|t| (t.prefix.as_str(), t.dim)).collect();
    assert_eq!(tables, [("", 16), ("swa_", 8)]);
    check_roles(&layout, "two tables");

    let half = with_positions(|graph, ar| {
        graph.inputs.push(TensorInfo::new("swa_position_ids_cos", [1, 1, ar, 8], Dtype::F16));
    });
    let error = analyze(&half, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("`swa_position_ids_sin`") && error.contains("partner"), "{error}");
}

#[test]
fn position_ids_are_positions_or_distances_by_their_shape() {
    for (rank4, role) in [(false, InputRole::Positions), (true, InputRole::Distances)] {
        let bundle = with_positions(|graph, ar| {
            graph.inputs.retain(|t| !t.name.starts_with("position_ids"));
            let dims = if rank4 { vec![1, 1, ar, 128] } else { vec![1, ar] };
            graph.inputs.push(TensorInfo::new("position_ids", dims, Dtype::I32));
        });
        let layout = analyze(&bundle, &Options::default()).unwrap();
        assert!(layout.splits[0].graphs.iter().all(|g| g.input(role).is_some()), "{role:?}");
        assert_eq!(layout.rope_tables, []);
        check_roles(&layout, "positions");
    }
    let float = with_positions(|graph, ar| {
        graph.inputs.push(TensorInfo::new("position_ids", [1, 1, ar, 128], Dtype::F16));
    });
    let error = analyze(&float, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("`position_ids`") && error.contains("int32"), "{error}");
}

#[test]
fn hardware_tiles_are_noticed() {
    let mut bundle = Model::default().bundle(&[(1, 128)]);
    for graph in bundle.iter_mut().flat_map(|b| &mut b.graphs) {
        for t in graph.inputs.iter_mut().chain(&mut graph.outputs).filter(|t| t.name.starts_with("past_")) {
            t.format = genie_types::DataFormat::HmxWeight;
        }
    }
    assert!(analyze(&bundle, &Options::default()).unwrap().native_kv);
}

#[test]
fn a_selection_leaves_the_rest_out() {
    let bundle = Model::default().bundle(&[(1, 128), (32, 128)]);
    let select = Some(vec!["ar1_cl128_1_of_1".to_owned()]);
    let layout = analyze(&bundle, &Options { select, ..Options::default() }).unwrap();
    assert_eq!(layout.variants.len(), 1);
    assert_eq!(layout.splits[0].graphs[0].graph.0, 0);
}

#[test]
fn embeddings_made_by_a_lut_are_a_wire() {
    let mut bundle = Model { parts: &[Lut, Layers(2), Head], ..Model::default() }.bundle(&[(1, 128)]);
    tensor(&mut bundle, "ar1_cl128_1_of_3", "hidden_0").name = "inputs_embeds".into();
    tensor(&mut bundle, "ar1_cl128_2_of_3", "hidden_0").name = "inputs_embeds".into();
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.input, ModelInput::Ids);
    assert_eq!(layout.wires[0].name, "inputs_embeds");
    assert_eq!(
        Model { embeds: true, ..Model::default() }.layout(&[(1, 128)]).unwrap().input,
        ModelInput::Embeds { width: 128 }
    );
}

#[test]
fn a_head_may_take_its_weight_as_an_input() {
    let model = Model { parts: &[Part::First(2), Part::Head], ..Model::default() };
    let mut bundle = model.bundle(&[(1, 128), (32, 128)]);
    let weight = || TensorInfo::new("lm_head_weight", [512, 128], Dtype::F16);
    bundle[1].graphs.iter_mut().for_each(|graph| graph.inputs.push(weight()));
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.weights, [crate::WeightInput { info: weight(), binary: 1 }]);
    assert!(layout.splits[1].graphs.iter().all(|g| g.inputs == [InputRole::Wire(WireIdx(0)), InputRole::Weight(0)]));
    assert_eq!(layout.wires.len(), 1);

    // One that a split outputs is a tensor between splits.
    let mut wired = bundle.clone();
    wired[0].graphs.iter_mut().for_each(|graph| graph.outputs.push(weight()));
    let layout = analyze(&wired, &Options::default()).unwrap();
    assert_eq!((layout.weights.len(), layout.wires.len()), (0, 2));

    let refused = |change: &dyn Fn(&mut TensorInfo)| {
        let mut bundle = bundle.clone();
        change(bundle[1].graphs[1].inputs.last_mut().unwrap());
        analyze(&bundle, &Options::default()).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|t| t.dims = vec![64, 128]),
        "graph `ar32_cl128_2_of_2` of `part2.bin`: tensor `lm_head_weight` has shape [64, 128], expected an extent of 512, as \
         the logits have"
    );
    assert!(refused(&|t| t.dims = vec![128, 512]).contains("`lm_head_weight`"));
    assert!(refused(&|t| t.name = "lm_head".into()).contains("`lm_head`"), "any other name is unknown");
}

#[test]
fn an_image_encoder_stands_aside() {
    let mut bundle = Model::default().bundle(&[(1, 128)]);
    bundle.push(BinaryGraphs {
        source: "vision.bin".into(),
        graphs: vec![genie_types::GraphInfo {
            name: "vision".into(),
            inputs: vec![TensorInfo::new("pixel_values", [1, 3, 224, 224], Dtype::F16)],
            outputs: vec![TensorInfo::new("image_features", [1, 256, 128], Dtype::F16)],
        }],
    });
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.splits.len(), 1);
    assert_eq!(layout.image_encoders.len(), 1);
    assert_eq!(layout.notes, [Note::ImageEncoder { graph: "vision".into() }]);
}

#[test]
fn a_model_without_cache_sees_its_whole_context() {
    let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
    let graph = genie_types::GraphInfo {
        name: "whole".into(),
        inputs: vec![t("input_ids", &[1, 16], Dtype::I32)],
        outputs: vec![t("logits", &[1, 16, 100], Dtype::F32)],
    };
    let bundle = [BinaryGraphs { source: "m.bin".into(), graphs: vec![graph] }];
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert!(layout.variants[0].is_full_context());
    assert_eq!(layout.rope_tables, []);
}

#[test]
fn graphs_of_which_only_cache_rows_come_out() {
    let model = Model::default();
    let mut bundle = model.bundle(&[(1, 128), (32, 128)]);
    drop_tensor(&mut bundle, "ar32_cl128_1_of_1", "logits");
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!((layout.splits[0].kind, &layout.gives_logits[..]), (GraphKind::Default, &[true, false][..]));
    assert_eq!(layout.splits[0].graphs[1].kind, GraphKind::DecoderPrefill);

    // Free names, as libGenie allows them.
    for (graph, name) in bundle[0].graphs.iter_mut().zip(["decode", "prefill"]) {
        graph.name = name.into();
    }
    assert_eq!(analyze(&bundle, &Options::default()).unwrap().gives_logits, [true, false]);

    // The last layer's past is of no use there.
    let mut bundle = Model { parts: &[First(2), Head], ..Model::default() }.bundle(&[(1, 128), (32, 128)]);
    drop_tensor(&mut bundle, "ar32_cl128_1_of_2", "hidden_0");
    drop_tensor(&mut bundle, "ar32_cl128_1_of_2", "past_key_1_in");
    drop_tensor(&mut bundle, "ar32_cl128_1_of_2", "past_value_1_in");
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!((layout.splits[0].kind, &layout.gives_logits[..]), (GraphKind::Decoder, &[true, false][..]));
    bundle[1].graphs.remove(1);
    assert_eq!(analyze(&bundle, &Options::default()).unwrap().gives_logits, [true, false], "with no wide head at all");

    let mut silent = model.bundle(&[(1, 128), (32, 128)]);
    drop_tensor(&mut silent, "ar32_cl128_1_of_1", "logits");
    drop_tensor(&mut silent, "ar1_cl128_1_of_1", "logits");
    let error = analyze(&silent, &Options::default()).unwrap_err();
    assert!(matches!(error, LayoutError::NoLogits { .. }), "{error}");
}

#[test]
fn a_head_narrower_than_its_steps() {
    let model = Model { parts: &[First(2), Head], ..Model::default() };
    let mut bundle = model.bundle(&[(1, 128), (8, 128), (32, 128)]);
    bundle[1].graphs.retain(|g| !g.name.starts_with("ar32"));
    let layout = analyze(&bundle, &Options::default()).unwrap();
    assert_eq!(layout.splits[1].by_variant, [0, 1, 1], "the widest that is narrower");
    assert_eq!(layout.gives_logits, [true; 3]);
    assert!(matches!(&layout.notes[..], [Note::NarrowHead { graph, .. }] if graph == "ar8_cl128_2_of_2"));

    tensor(&mut bundle, "ar8_cl128_2_of_2", "hidden_0").dims = vec![1, 8, 127];
    let error = analyze(&bundle, &Options::default()).unwrap_err();
    assert!(matches!(error, LayoutError::WireDiffers { .. }), "{error}");

    // A head alone is wider than the step: there is none.
    let mut bundle = model.bundle(&[(1, 128), (8, 128)]);
    bundle[1].graphs.retain(|g| g.name.starts_with("ar8"));
    let error = analyze(&bundle, &Options::default()).unwrap_err();
    assert!(matches!(error, LayoutError::VariantMissing { .. }), "{error}");
}

#[test]
fn an_index_for_each_row() {
    let model = Model { scatter: true, ..Model::default() };
    let mut bundle = model.bundle(&[(1, 128), (32, 128)]);
    tensor(&mut bundle, "ar32_cl128_1_of_1", "cache_index").dims = vec![32];
    assert!(analyze(&bundle, &Options::default()).is_ok());
    tensor(&mut bundle, "ar32_cl128_1_of_1", "cache_index").dims = vec![31];
    let error = analyze(&bundle, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("has shape [31], expected [1, 32] (AR, or 1)"), "{error}");
}

#[test]
fn keys_lie_by_row_where_their_extents_say_so() {
    use genie_types::{KvKind, KvLayout};
    // Heads are 32 wide: beside AR-32 the new rows do not tell, and the past does; with CL-64 the past does not either, and AR-1 does.
    for variants in [[(1, 128), (32, 128)].as_slice(), &[(32, 128)], &[(32, 64), (1, 64)], &[(8, 64), (32, 32)]] {
        for by_row in [false, true] {
            let mut bundle = Model::default().bundle(variants);
            if by_row {
                super::fixture::keys_by_row(&mut bundle);
            }
            let layout = analyze(&bundle, &Options::default()).unwrap();
            let kv = || layout.splits[0].kv.iter().map(|t| &t.tensor);
            assert!(kv().all(|t| t.head_dim == 32));
            let keys = if by_row { KvLayout::HeadSeqDim } else { KvLayout::HeadDimSeq };
            let expected = |kind| if kind == KvKind::Key { keys } else { KvLayout::HeadSeqDim };
            assert!(kv().all(|t| t.layout == expected(t.kind)), "{variants:?}, by row: {by_row}");
        }
    }
    // One graph otherwise than the others.
    let mut bundle = Model::default().bundle(&[(1, 128), (8, 128)]);
    super::fixture::keys_by_row(&mut bundle);
    tensor(&mut bundle, "ar8_cl128_1_of_1", "past_key_0_out").dims.swap(2, 3);
    let error = analyze(&bundle, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("`past_key_0_out`") && error.contains("[heads, 1, AR = 8, head_dim]"), "{error}");
}

#[test]
fn caches_in_blocks_have_keys_by_row_and_scales() {
    use genie_types::{KvKind, KvLayout};
    let mut bundle = Model::default().bundle(&[(1, 128), (32, 128)]);
    super::fixture::in_blocks(&mut bundle);
    let layout = analyze(&bundle, &Options::default()).unwrap();
    let kv = &layout.splits[0].kv;
    let kinds: Vec<_> = kv.iter().map(|t| (t.tensor.layer.0, t.tensor.kind)).collect();
    assert_eq!(kinds, (0..2).flat_map(|layer| KvKind::ALL.map(|kind| (layer, kind))).collect::<Vec<_>>());
    assert!(kv.iter().all(|t| t.tensor.layout == KvLayout::HeadSeqDim));
    let widths: Vec<_> = kv[..4].iter().map(|t| (t.tensor.head_dim, t.tensor.pad_element().0[0])).collect();
    assert_eq!(widths, [(32, 128), (32, 128), (1, 0), (1, 0)]);
}

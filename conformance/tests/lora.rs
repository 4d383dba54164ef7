//! LoRA adapters on the embedded backend, at run time and merged, against the model in double precision with weights that this test
//! adds the adapters to by itself (`common/merged_by_hand.rs`).

use std::path::{Path, PathBuf};

use compiler::testmodel::{TestAdapter, TestModel};
use compiler::{
    AdapterSource, CONFIG_FILE, CompileOptions, Family, Precision, Silent, Splits, Weights, compile, dequantize,
};
use conformance::backends;
use dialog::DialogConfig;
use engine::{
    Binding, Engine, EngineConfig, ExecuteError, Executor, LoraAdapter, LoraConfig, LoraGroup, LoraModel, ModelHash,
    TokenModel,
};
use genie_types::{Dtype, GraphInfo, TensorInfo, TokenId};
use nsp_graph::{BinaryGraphs, Options, analyze};

use crate::merged_by_hand::merged;
use crate::reference::Reference;

const TOLERANCE: f64 = 1e-4;

/// A model with two adapters, in a folder of its own.
struct Place {
    folder: tempfile::TempDir,
    model: TestModel,
    adapters: Vec<TestAdapter>,
}

impl Place {
    fn new(model: TestModel, adapters: Vec<TestAdapter>) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap(), model, adapters };
        place.model.write(&place.at("model")).unwrap();
        for (i, adapter) in place.adapters.iter().enumerate() {
            adapter.write(&place.model, &place.adapter(i)).unwrap();
        }
        place
    }

    fn at(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    fn adapter(&self, i: usize) -> PathBuf {
        self.at(&format!("adapter{i}"))
    }

    /// Compiles in float32 for three widths and two contexts.
    fn compile(&self, to: &str, change: impl FnOnce(&mut CompileOptions)) -> Engine {
        let mut options = CompileOptions {
            ars: vec![1, 4, 16],
            cls: vec![24, 48],
            precision: Precision::F32,
            ..CompileOptions::new(self.at("model"), self.at(to))
        };
        change(&mut options);
        let backend = backends::linked();
        compile(&options, &backend, &mut Silent).unwrap();
        let config = DialogConfig::from_file(self.at(to).join(CONFIG_FILE)).unwrap();
        let mut engine = config.engine().clone();
        // Rows go from one bundle to another below; which ones fit is this test's to say.
        engine.model_hash = Some(ModelHash::default());
        Engine::open(&engine, &backend).unwrap()
    }

    fn with_adapters(&self, to: &str, change: impl FnOnce(&mut CompileOptions)) -> Engine {
        self.compile(to, |options| {
            options.lora = (0..self.adapters.len()).map(|i| AdapterSource::new(self.adapter(i))).collect();
            change(options);
        })
    }

    /// Every row of logits of the model with adapters of those strengths, in double precision.
    fn expected(&self, strengths: &[f64], tokens: &[TokenId]) -> Vec<Vec<f64>> {
        let to = self.at("by_hand");
        let adapters = self.adapters.iter().enumerate().map(|(i, a)| (self.adapter(i), a.scaling() * strengths[i]));
        merged(&self.at("model"), &adapters.collect::<Vec<_>>(), &to);
        let tokens: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        Reference::open(&to).logits(&tokens)
    }
}

fn tokens(n: u32) -> Vec<TokenId> {
    (0..n).map(|i| TokenId((i * 37 + 11) % 250)).collect()
}

/// Largest difference, relative to the largest logit.
fn off(found: &[f32], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    found.iter().zip(expected).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / largest
}

/// A prompt in chunks of several widths, then token by token.
fn check(what: &str, engine: &mut Engine, tokens: &[TokenId], expected: &[Vec<f64>], tolerance: f64) {
    engine.reset().unwrap();
    let mut at = 0;
    for end in [18, 19, 20, 23, tokens.len()] {
        let found = off(engine.process(&tokens[at..end]).unwrap(), &expected[end - 1]);
        assert!(found <= tolerance, "{what}, tokens {at}..{end}: off by {found:e}");
        at = end;
    }
}

/// All strengths of two adapters against the merged model, from one bundle.
fn check_switching(what: &str, place: &Place, engine: &mut Engine, tolerance: f64) {
    let tokens = tokens(30);
    type Case<'a> = (&'a [(&'a str, Option<f32>)], [f64; 2]);
    let cases: [Case<'_>; 6] = [
        (&[], [0.0, 0.0]),
        (&[("adapter0", None)], [1.0, 0.0]),
        (&[("adapter1", Some(0.5))], [0.0, 0.5]),
        (&[("adapter0", Some(-0.25)), ("adapter1", Some(0.75))], [-0.25, 0.75]),
        (&[("adapter0", Some(0.0))], [0.0, 0.0]),
        (&[("adapter1", Some(1.0))], [0.0, 1.0]),
    ];
    let base = place.expected(&[0.0, 0.0], &tokens);
    for (wanted, strengths) in cases {
        engine.apply_lora(wanted).unwrap();
        let expected = place.expected(&strengths, &tokens);
        if strengths != [0.0, 0.0] {
            let last: Vec<f32> = base[29].iter().map(|x| *x as f32).collect();
            assert!(off(&last, &expected[29]) > 0.01, "{what}: the adapters change something");
        }
        check(&format!("{what}, {wanted:?}"), engine, &tokens, &expected, tolerance);
    }
}

fn two(model: &TestModel) -> Vec<TestAdapter> {
    let first = TestAdapter::tiny(model);
    let second = TestAdapter { rank: 3, alpha: 5.0, by_root: true, seed: 9, ..first.clone() };
    vec![first, second]
}

#[test]
fn adapters_at_run_time_are_the_merged_model_in_every_family() {
    for (i, &family) in Family::ALL.iter().enumerate() {
        let model = TestModel { seed: 3 + i as u64, ..TestModel::tiny(family) };
        let place = Place::new(model.clone(), two(&model));
        let splits = if i % 2 == 0 { Splits::Mono } else { Splits::LutDecoderLmhead };
        let mut engine = place.with_adapters("bundle", |o| o.splits = splits);
        check_switching(&family.to_string(), &place, &mut engine, TOLERANCE);
    }
}

#[test]
fn adapters_of_some_projections_only_and_of_different_ones() {
    let model = TestModel { layers: 3, kv_heads: 1, attention_bias: true, ..TestModel::tiny(Family::Llama) };
    let first = TestAdapter { targets: vec!["q_proj", "v_proj", "down_proj"], ..TestAdapter::tiny(&model) };
    let second = TestAdapter { rank: 7, targets: vec!["v_proj", "up_proj"], seed: 4, ..first.clone() };
    let place = Place::new(model, vec![first, second]);
    for (name, splits, layers) in [("a", Splits::DecoderLmhead, Some(2)), ("b", Splits::LutDecoderLmhead, Some(1))] {
        let mut engine = place.with_adapters(name, |o| (o.splits, o.layers_per_split) = (splits, layers));
        check_switching(name, &place, &mut engine, TOLERANCE);
    }
}

#[test]
fn adapters_added_to_the_weights_are_the_same_model() {
    for family in [Family::Llama, Family::Phi3, Family::Granite] {
        let model = TestModel::tiny(family);
        let place = Place::new(model.clone(), two(&model));
        let (tokens, both) =
            (tokens(30), |o: &mut CompileOptions| o.lora_merge = vec![place.adapter(0), place.adapter(1)]);
        let mut engine = place.compile("merged", both);
        check("merged", &mut engine, &tokens, &place.expected(&[1.0, 1.0], &tokens), TOLERANCE);
        assert!(engine.lora_adapters().is_empty());
    }
}

#[test]
fn quantised_weights_keep_their_adapters_in_float() {
    for weights in [Weights::W8, Weights::W4] {
        let model = TestModel::tiny(Family::Llama);
        let mut place = Place::new(model.clone(), two(&model));
        let mut engine = place.with_adapters("bundle", |o| o.weights = Some(weights));
        // The reference is the rounded model: from here on `model` is that one.
        let rounded = place.at("rounded");
        dequantize(&place.at("model"), Precision::F32, weights, &rounded).unwrap();
        let first = place.at("model");
        std::fs::rename(&first, place.at("unrounded")).unwrap();
        std::fs::rename(&rounded, &first).unwrap();
        place.model.tied = false;
        check_switching(&weights.to_string(), &place, &mut engine, TOLERANCE);
    }
}

/// Weights in blocks are multiplied with activations of 8 bits, which is an error of its own: `quantised.rs` derives 0.0055 of a
/// block's root mean square for each of the `4 L + 1` roundings on the way; a single logit may be 14 deviations off, twice over.
#[test]
fn weights_in_blocks_keep_their_adapters_in_float() {
    for weights in [Weights::Q8_0, Weights::Q4_0] {
        let model = TestModel { hidden: 128, ffn: 192, ..TestModel::tiny(Family::Llama) };
        let place = Place::new(model.clone(), two(&model));
        let mut engine = place.with_adapters("bundle", |o| o.weights = Some(weights));
        let rounded = place.at("rounded");
        dequantize(&place.at("model"), Precision::F32, weights, &rounded).unwrap();
        std::fs::rename(place.at("model"), place.at("unrounded")).unwrap();
        std::fs::rename(&rounded, place.at("model")).unwrap();
        let tokens = tokens(30);
        let base = place.expected(&[0.0, 0.0], &tokens);
        type Case<'a> = (&'a [(&'a str, Option<f32>)], [f64; 2]);
        let cases: [Case<'_>; 4] = [
            (&[("adapter0", None)], [1.0, 0.0]),
            (&[("adapter1", Some(0.5))], [0.0, 0.5]),
            (&[("adapter0", Some(-0.25)), ("adapter1", Some(0.75))], [-0.25, 0.75]),
            (&[], [0.0, 0.0]),
        ];
        for (wanted, strengths) in cases {
            engine.apply_lora(wanted).unwrap();
            engine.reset().unwrap();
            let expected = place.expected(&strengths, &tokens);
            let (mut errors, mut logits, mut changes) = (Vec::new(), Vec::new(), Vec::new());
            for (at, row) in expected.iter().enumerate() {
                let found = engine.process(&tokens[at..=at]).unwrap();
                errors.extend(found.iter().zip(row).map(|(a, b)| f64::from(*a) - b));
                changes.extend(row.iter().zip(&base[at]).map(|(a, b)| a - b));
                logits.extend_from_slice(row);
            }
            let rms = |list: &[f64]| (list.iter().map(|x| x * x).sum::<f64>() / list.len() as f64).sqrt();
            let sigma = 0.0055 * ((4 * place.model.layers + 1) as f64).sqrt() * rms(&logits);
            let worst = errors.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            println!("{weights} {wanted:?}: off by {:.2} sigma, worst {:.2}", rms(&errors) / sigma, worst / sigma);
            assert!(rms(&errors) <= 2.0 * sigma && worst <= 14.0 * sigma, "{weights} {wanted:?}");
            if strengths != [0.0, 0.0] {
                assert!(rms(&changes) > 8.0 * sigma, "{weights} {wanted:?}: what the adapters change is seen");
            }
        }
    }
}

/// Rows that one adapter made stay when another is applied: the same as taking them over from the first one's merged model.
#[test]
fn two_adapters_in_one_dialog_one_after_the_other() {
    let model = TestModel::tiny(Family::Qwen3);
    let place = Place::new(model.clone(), two(&model));
    let tokens = tokens(30);
    let mut engine = place.with_adapters("bundle", |_| {});
    let (mut first, mut second) = (
        place.compile("first", |o| o.lora_merge = vec![place.adapter(0)]),
        place.compile("second", |o| o.lora_merge = vec![place.adapter(1)]),
    );
    engine.apply_lora(&[("adapter0", None)]).unwrap();
    engine.process(&tokens[..17]).unwrap();
    let switch = engine.apply_lora(&[("adapter1", None)]).unwrap();
    assert_eq!(switch.n_kept, 17);
    first.process(&tokens[..17]).unwrap();
    second.restore_snapshot(&first.snapshot().unwrap()).unwrap();
    for end in 18..tokens.len() {
        let found = engine.process(&tokens[end - 1..end]).unwrap().to_vec();
        let expected: Vec<f64> = second.process(&tokens[end - 1..end]).unwrap().iter().map(|x| f64::from(*x)).collect();
        assert!(off(&found, &expected) <= TOLERANCE, "token {end}");
    }
    // The second one's own rows are others.
    second.reset().unwrap();
    let own: Vec<f64> = second.process(&tokens[..29]).unwrap().iter().map(|x| f64::from(*x)).collect();
    let mixed = engine.process(&tokens[29..]).unwrap().to_vec();
    assert!(off(&mixed, &own) > 0.001);
}

#[test]
fn strength_zero_is_the_model() {
    let model = TestModel::tiny(Family::Llama);
    let place = Place::new(model.clone(), two(&model));
    let tokens = tokens(20);
    let mut plain = place.compile("plain", |_| {});
    let mut engine = place.with_adapters("bundle", |_| {});
    let expected: Vec<f64> = plain.process(&tokens).unwrap().iter().map(|x| f64::from(*x)).collect();
    // Sums in another order: projections with adapters are not fused with what follows them.
    assert!(off(engine.process(&tokens).unwrap(), &expected) < 2e-6);
    engine.apply_lora(&[("adapter0", Some(0.0)), ("adapter1", Some(0.0))]).unwrap();
    engine.reset().unwrap();
    assert!(off(engine.process(&tokens).unwrap(), &expected) < 2e-6);
}

#[test]
fn strengths_are_remembered_and_wrong_names_refused() {
    let model = TestModel::tiny(Family::Llama);
    let place = Place::new(model.clone(), two(&model));
    let mut engine = place.with_adapters("bundle", |_| {});
    assert_eq!(engine.lora_alphas(), ["lora_alpha_adapter0", "lora_alpha_adapter1"]);
    assert_eq!(engine.lora_label(), "");
    engine.set_lora_strength("lora_alpha_adapter1", 0.25).unwrap();
    assert_eq!(engine.lora_label(), "", "it is not applied");
    engine.apply_lora(&[("adapter1", None)]).unwrap();
    assert_eq!(engine.lora_label(), "adapter1:0.25");
    engine.set_lora_strength("lora_alpha_adapter1", 2.0).unwrap();
    engine.set_lora_strength("lora_alpha_adapter0", 3.0).unwrap();
    assert_eq!(engine.lora_label(), "adapter1:2");
    let refusals = [
        (
            engine.apply_lora(&[("poet", None)]).unwrap_err().to_string(),
            "no LoRA adapter `poet`: the bundle has `adapter0`, `adapter1`",
        ),
        (
            engine.set_lora_strength("alpha", 1.0).unwrap_err().to_string(),
            "no graph has the LoRA strength `alpha`: there are `lora_alpha_adapter0`, `lora_alpha_adapter1`",
        ),
        (
            engine.apply_lora(&[("adapter0", Some(f32::NAN))]).unwrap_err().to_string(),
            "LoRA strength of `adapter0`: expected a finite number, found NaN",
        ),
        (
            engine.apply_lora(&[("adapter0", None), ("adapter0", None)]).unwrap_err().to_string(),
            "LoRA adapters `adapter0` and `adapter0` cannot be applied at once: they use the same input or the same sections",
        ),
    ];
    for (found, expected) in refusals {
        assert_eq!(found, expected);
    }
    assert_eq!(engine.lora_label(), "adapter1:2", "what is refused changes nothing");
    engine.apply_lora(&[("adapter0", None)]).unwrap();
    assert_eq!(engine.lora_label(), "adapter0:3");
    engine.apply_lora(&[]).unwrap();
    assert_eq!(engine.lora_label(), "");
    let missing = Path::new("nowhere");
    let mut options = CompileOptions::new(place.at("model"), place.at("other"));
    options.lora = vec![AdapterSource::new(missing)];
    let error = compile(&options, &backends::linked(), &mut Silent).unwrap_err().to_string();
    assert!(error.starts_with("`nowhere` has no adapter_config.json"), "{error}");
}

/// Keeps the sections that it is given.
#[derive(Default)]
struct Sections(Vec<(usize, String)>);

impl Executor for Sections {
    fn execute<'io>(
        &mut self,
        _: usize,
        _: usize,
        _: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        Ok(())
    }

    fn apply_sections(&mut self, binary: usize, section: &[u8]) -> Result<(), ExecuteError> {
        self.0.push((binary, String::from_utf8(section.to_vec()).unwrap()));
        Ok(())
    }
}

/// A graph without a cache, and its head in another binary.
fn two_binaries() -> Vec<BinaryGraphs> {
    let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
    let decoder = GraphInfo {
        name: "ar1_cl8_1_of_2".into(),
        inputs: vec![
            t("input_ids", &[1, 1], Dtype::I32),
            t("attention_mask", &[1, 1, 1, 8], Dtype::F32),
            t("past_key_0_in", &[1, 1, 4, 7], Dtype::F32),
            t("past_value_0_in", &[1, 1, 7, 4], Dtype::F32),
        ],
        outputs: vec![
            t("past_key_0_out", &[1, 1, 4, 1], Dtype::F32),
            t("past_value_0_out", &[1, 1, 1, 4], Dtype::F32),
            t("hidden", &[1, 1, 4], Dtype::F32),
        ],
    };
    let head = GraphInfo {
        name: "ar1_cl8_2_of_2".into(),
        inputs: vec![t("hidden", &[1, 1, 4], Dtype::F32)],
        outputs: vec![t("logits", &[1, 1, 16], Dtype::F32)],
    };
    let binary = |source: &str, graph| BinaryGraphs { source: source.into(), graphs: vec![graph] };
    vec![binary("decoder.bin", decoder), binary("head.bin", head)]
}

#[test]
fn sections_of_groups_and_adapters_are_handed_over_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let files = |name: &str| -> Vec<PathBuf> {
        let file = |i: usize| {
            let path = folder.path().join(format!("{name}{i}"));
            std::fs::write(&path, format!("{name}{i}")).unwrap();
            path
        };
        (0..2).map(file).collect()
    };
    let adapter = |name: &str| LoraAdapter { name: name.into(), alphas: Vec::new(), bin_sections: files(name) };
    let mut config = EngineConfig::new(["decoder.bin"]);
    config.lora = LoraConfig {
        adapters: vec![
            adapter("a"),
            adapter("b"),
            adapter("c"),
            LoraAdapter { bin_sections: files("d")[..1].to_vec(), ..adapter("d") },
        ],
        groups: vec![LoraGroup {
            name: "g".into(),
            members: vec!["a".into(), "b".into()],
            quant_bin_sections: files("g"),
        }],
        alphas: Vec::new(),
    };
    let layout = analyze(&two_binaries(), &Options::default()).unwrap();
    let mut engine = Engine::with_executor(layout, Sections::default(), &config).unwrap();
    let given = |engine: &mut Engine<Sections>| std::mem::take(&mut engine.executor_mut().0);
    let of = |names: &[&str]| -> Vec<(usize, String)> {
        names.iter().flat_map(|name| (0..2).map(move |i| (i, format!("{name}{i}")))).collect()
    };
    engine.apply_lora(&[("a", None)]).unwrap();
    assert_eq!((given(&mut engine), engine.lora_label()), (of(&["g", "a"]), "a".into()));
    engine.apply_lora(&[("b", None)]).unwrap();
    assert_eq!(given(&mut engine), of(&["b"]), "the group's own are there already");
    engine.apply_lora(&[("c", None)]).unwrap();
    engine.apply_lora(&[("a", None)]).unwrap();
    assert_eq!(given(&mut engine), of(&["c", "g", "a"]));
    type Case<'a> = (&'a [(&'a str, Option<f32>)], &'a str);
    let cases: [Case<'_>; 4] = [
        (&[], "LoRA adapter `a` has replaced parts of the context binaries"),
        (&[("a", None), ("b", None)], "LoRA adapters `a` and `b` cannot be applied at once"),
        (&[("b", Some(0.5))], "LoRA adapter `b` has no strength"),
        (&[("d", None)], "LoRA adapter `d` has 1 section files, expected one for each of the 2 context binaries"),
    ];
    for (wanted, expected) in cases {
        let error = engine.apply_lora(wanted).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!((given(&mut engine), engine.lora_label()), (Vec::new(), "a".into()), "{expected}");
    }
}

#[test]
fn sections_that_the_backend_does_not_take_are_refused_by_name() {
    let model = TestModel::tiny(Family::Llama);
    let place = Place::new(model, Vec::new());
    drop(place.compile("bundle", |_| {}));
    let config = DialogConfig::from_file(place.at("bundle").join(CONFIG_FILE)).unwrap();
    let section = place.at("section.bin");
    std::fs::write(&section, "section").unwrap();
    let mut engine = config.engine().clone();
    engine.lora.adapters = vec![LoraAdapter { name: "poet".into(), alphas: Vec::new(), bin_sections: vec![section] }];
    for (on_demand, reason) in [(false, "apply a binary section"), (true, "loaded on demand")] {
        engine.dynamic_load = on_demand;
        let mut engine = Engine::open(&engine, &backends::linked()).unwrap();
        let error = engine.apply_lora(&[("poet", None)]).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.to_string().contains("section.bin` of LoRA adapter `poet` cannot be applied"), "{error}");
        assert!(cause.contains(reason), "{cause}");
        engine.process(&[TokenId(3)]).unwrap();
    }
}

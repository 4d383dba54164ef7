//! LoRA adapters compiled for a Hexagon chip and switched on Qualcomm's emulator, against the merged model in double precision.

use compiler::testmodel::{TestAdapter, TestModel};
use compiler::{AdapterSource, CONFIG_FILE, CompileOptions, Family, HtpOptions, Silent, Splits, compile};
use conformance::backends;
use conformance::compiled::TARGET;
use dialog::DialogConfig;
use engine::{Engine, LoraAdapter, LoraModel, TokenModel};
use genie_types::TokenId;
use qnn_api::BackendOptions;

use crate::merged_by_hand;
use crate::reference::Reference;

/// Largest difference of a logit, relative to the largest logit: float16 in every op of the emulator.
const TOLERANCE: f64 = 0.02;

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_switches_adapters() {
    for (family, splits) in [(Family::Llama, Splits::Mono), (Family::Qwen3, Splits::LutDecoderLmhead)] {
        let folder = tempfile::tempdir().unwrap();
        let at = |part: &str| folder.path().join(part);
        let model = TestModel { seed: 11, ..TestModel::tiny(family) };
        model.write(&at("model")).unwrap();
        let first = TestAdapter::tiny(&model);
        let second = TestAdapter { rank: 6, targets: vec!["q_proj", "v_proj"], seed: 5, ..first.clone() };
        first.write(&model, &at("poet")).unwrap();
        second.write(&model, &at("lawyer")).unwrap();
        let htp = HtpOptions::for_target(TARGET).unwrap();
        let options = CompileOptions {
            ars: vec![1, 16],
            cls: vec![64],
            splits,
            htp: Some(htp),
            lora: vec![AdapterSource::new(at("poet")), AdapterSource::new(at("lawyer"))],
            ..CompileOptions::new(at("model"), at("bundle"))
        };
        compile(&options, &backends::htp(&htp.backend_options()), &mut Silent).unwrap();

        let config = DialogConfig::from_file(at("bundle").join(CONFIG_FILE)).unwrap();
        let mut engine = Engine::open(config.engine(), &backends::htp(&BackendOptions::default())).unwrap();
        let tokens: Vec<u32> = (0..24).map(|i| (i * 37 + 11) % 250).collect();
        let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
        type Case<'a> = (&'a [(&'a str, Option<f32>)], [f64; 2]);
        let cases: [Case<'_>; 4] = [
            (&[], [0.0, 0.0]),
            (&[("poet", None)], [1.0, 0.0]),
            (&[("lawyer", Some(0.5))], [0.0, 0.5]),
            (&[("poet", Some(0.5)), ("lawyer", Some(1.0))], [0.5, 1.0]),
        ];
        for (wanted, strengths) in cases {
            let factors =
                [(at("poet"), first.scaling() * strengths[0]), (at("lawyer"), second.scaling() * strengths[1])];
            merged_by_hand::merged(&at("model"), &factors, &at("by_hand"));
            let expected = Reference::open(&at("by_hand")).logits(&tokens);
            engine.reset().unwrap();
            engine.apply_lora(wanted).unwrap();
            for range in [0..20, 20..21, 21..22, 22..24] {
                let wanted_row = &expected[range.end - 1];
                let found = engine.process(&ids[range]).unwrap();
                let largest = wanted_row.iter().fold(0.0f64, |m, x| m.max(x.abs()));
                let off = found.iter().zip(wanted_row).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs()));
                assert!(off / largest <= TOLERANCE, "{family}, {wanted:?}: off by {:e}", off / largest);
            }
        }
    }
}

/// Bytes that are no section are refused by the library, and the error names adapter and file.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_section_that_is_none_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |part: &str| folder.path().join(part);
    TestModel::tiny(Family::Llama).write(&at("model")).unwrap();
    let htp = HtpOptions::for_target(TARGET).unwrap();
    let options = CompileOptions {
        ars: vec![1],
        cls: vec![32],
        htp: Some(htp),
        ..CompileOptions::new(at("model"), at("bundle"))
    };
    compile(&options, &backends::htp(&htp.backend_options()), &mut Silent).unwrap();
    std::fs::write(at("section.bin"), [7; 4096]).unwrap();
    let config = DialogConfig::from_file(at("bundle").join(CONFIG_FILE)).unwrap();
    let mut engine = config.engine().clone();
    engine.lora.adapters =
        vec![LoraAdapter { name: "poet".into(), alphas: Vec::new(), bin_sections: vec![at("section.bin")] }];
    let mut engine = Engine::open(&engine, &backends::htp(&BackendOptions::default())).unwrap();
    let error = engine.apply_lora(&[("poet", None)]).unwrap_err();
    assert!(error.to_string().contains("section.bin` of LoRA adapter `poet` cannot be applied"), "{error}");
    println!("{}", std::error::Error::source(&error).unwrap());
    assert_eq!(engine.lora_label(), "");
    engine.process(&[TokenId(3)]).unwrap();
}

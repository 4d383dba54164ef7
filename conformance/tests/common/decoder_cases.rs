//! The decoders that both backends run: families, forms, weights; a prefill, decode steps, and a prefill on top of them.

use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{Family, Precision};
use conformance::bundles::Bundle;
use conformance::suite::Runtime;
use conformance::suite::decoder::{Decoder, Form, Numbers, expected};
use engine::TokenModel;
use genie_types::TokenId;
use qnn_api::Backend;

/// Those that the suite's own decoder is written for; `families.rs` has the others.
const FAMILIES: [Family; 3] = [Family::Llama, Family::Qwen2, Family::Qwen3];

fn model(family: Family) -> TestModel {
    TestModel { tied: family != Family::Qwen3, ..TestModel::tiny(family) }
}

/// Graphs composed op by op, all of their outputs; lists what is off.
pub fn composed(host: &dyn Runtime, emulator: Option<&dyn Runtime>) {
    let mut faults = Vec::new();
    for family in FAMILIES {
        for (form, numbers) in [
            (Form::Concat, Numbers::Float16),
            (Form::Scatter, Numbers::Float16),
            (Form::Concat, Numbers::Int8Weights),
            (Form::Concat, Numbers::Codes),
            (Form::Scatter, Numbers::Codes),
        ] {
            let decoder = Decoder { model: model(family), form, numbers, ctx_size: 32 };
            match decoder.run(host, emulator, &[8, 1, 1, 1, 8]) {
                Ok(used) => eprintln!("{}: of the tolerance {used:.2?}", decoder.title()),
                Err(fault) => faults.push(fault),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Bundles of our compiler, run by our engine: logits within `tolerance` of the largest, after a prefill in pieces and
/// after each decode step.
pub fn compiled(backend: &Arc<Backend>, tolerance: f64) {
    for family in FAMILIES {
        let model = model(family);
        let bundle = Bundle::make(&model, backend, |o| {
            (o.ars, o.cls, o.precision) = (vec![1, 8], vec![32], Precision::F16);
        });
        let mut engine = bundle.engine(backend);
        let (tokens, logits) = expected(&model, 15);
        let ids: Vec<TokenId> = tokens.iter().map(|&t| TokenId(t as u32)).collect();
        let mut done = 0;
        for end in [12, 13, 14, 15] {
            let found = engine.process(&ids[done..end]).expect("the engine runs");
            done = end;
            let wanted = &logits[end - 1];
            assert_eq!(found.len(), wanted.len());
            let largest = wanted.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
                let off = (f64::from(*f) - w).abs();
                let said = format!("{family}, after {end} tokens, logit {i}: {f}, reference {w}");
                assert!(off <= tolerance * largest, "{said}, off by {off:e}, tolerance {:e}", tolerance * largest);
            }
        }
    }
}

//! Decoding allocates nothing, from the token to the next one: engine, KV manager, function table, host backend, sampler.
//!
//! The bundle is what `genie compile` makes by default: float16 with its cache, the LM head apart, in one file. Allocations of
//! the calling thread count; the threads of the backend run kernels on memory that they are given.

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Splits, Weights};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::sampler::TokenPenalty;
use dialog::{Dialog, Sampler, SamplerSettings, SentenceCode};
use engine::TokenModel;
use genie_types::TokenId;

fn by_default(options: &mut CompileOptions) {
    (options.splits, options.one_file) = (Splits::DecoderLmhead, true);
    (options.ars, options.cls) = (vec![1, 8], vec![256]);
}

fn samplers() -> [SamplerSettings; 3] {
    let drawn = SamplerSettings::default().with_seed(Some(7)).with_temp(0.8).unwrap().with_top_k(40);
    let penalty = TokenPenalty { repetition: 1.2, last_n: 32, ..TokenPenalty::default() };
    [SamplerSettings::argmax(), drawn.clone(), drawn.with_penalty(penalty).unwrap()]
}

#[test]
fn a_decode_step_does_not() {
    let backend = backends::linked();
    for weights in [Weights::Float, Weights::Q4_0] {
        let bundle = Bundle::make(&TestModel::tiny(Family::Llama), &backend, |options| {
            by_default(options);
            options.weights = Some(weights);
        });
        for settings in samplers() {
            let (mut engine, mut sampler) = (bundle.engine(&backend), Sampler::new(settings));
            let prompt: Vec<_> = (0..21).map(|i| TokenId(i * 7 % 250)).collect();
            let mut next = sampler.sample(engine.process(&prompt).unwrap()).unwrap();
            let mut decode = |n: usize| {
                for _ in 0..n {
                    sampler.accept(next);
                    next = sampler.sample(engine.process(&[next]).unwrap()).unwrap();
                }
            };
            // The first steps allocate the buffers that the others reuse.
            decode(3);
            let counted = allocation_counter::measure(|| decode(100));
            assert_eq!(counted.count_total, 0, "{weights}: {} bytes in 100 steps", counted.bytes_total);
        }
    }
}

#[test]
fn a_dialog_does_for_its_text_alone() {
    let backend = backends::linked();
    let bundle = Bundle::make(&TestModel::tiny(Family::Llama), &backend, by_default);
    let mut dialog = Dialog::new(&bundle.config(), Box::new(bundle.engine(&backend))).unwrap();
    dialog.set_sampler(SamplerSettings::argmax());
    let prompt: Vec<TokenId> = (0..20).map(|i| TokenId(i * 7 % 250)).collect();
    let mut allocations = |n: usize| {
        dialog.reset().unwrap();
        dialog.control().set_max_num_tokens(Some(n));
        let mut reply = None;
        let counted = allocation_counter::measure(|| {
            reply = Some(dialog.token_query(&prompt, SentenceCode::Complete, |_| ()).unwrap());
        });
        assert_eq!(reply.unwrap().tokens.len(), n, "no early end");
        counted.count_total
    };
    allocations(120);
    let (few, many) = (allocations(20), allocations(120));
    // A vocabulary entry, its text, and a place in the reply; the step below adds nothing.
    assert!(many <= few + 5 * 100, "{few} for 20 tokens, {many} for 120");
}

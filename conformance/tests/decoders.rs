//! Whole tiny decoders: compiled, stored, loaded and generated with on the linked host and on the shared library.

use compiler::testmodel::TestModel;
use compiler::{Family, Precision, Splits};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::{Dialog, SamplerSettings, SentenceCode, StopReason};
use genie_types::TokenId;

/// Greedy tokens of one query, and the graphs that ran.
fn say(bundle: &Bundle, backend: &std::sync::Arc<qnn_api::Backend>, n: usize) -> (Vec<u32>, Vec<(String, usize)>) {
    let mut dialog = Dialog::new(&bundle.config(), Box::new(bundle.engine(backend))).unwrap();
    dialog.set_sampler(SamplerSettings::argmax());
    dialog.control().set_max_num_tokens(Some(n));
    let prompt: Vec<TokenId> = (0..40).map(|i| TokenId(i * 7 % 250)).collect();
    let reply = dialog.token_query(&prompt, SentenceCode::Complete, |_| ()).unwrap();
    assert!(matches!(reply.stop, StopReason::MaxTokens | StopReason::Eos), "{}", reply.stop);
    let runs = dialog.model().steps().runs().into_iter().map(|(g, n)| (g.to_owned(), n)).collect();
    (reply.tokens.iter().map(|t| t.0).collect(), runs)
}

#[test]
fn a_dialog_says_the_same_over_both_libraries() {
    let (linked, loaded) = (backends::linked(), backends::loaded());
    for (family, splits, precision) in [
        (Family::Llama, Splits::Mono, Precision::F16),
        (Family::Qwen2, Splits::DecoderLmhead, Precision::F32),
        (Family::Qwen3, Splits::LutDecoderLmhead, Precision::F32),
    ] {
        let choose = |o: &mut compiler::CompileOptions| {
            (o.ars, o.cls, o.splits, o.precision) = (vec![1, 8, 32], vec![64, 128], splits, precision);
        };
        let by_linked = Bundle::make(&TestModel::tiny(family), &linked, choose);
        let by_loaded = Bundle::make(&TestModel::tiny(family), &loaded, choose);
        let expected = say(&by_linked, &linked, 60);
        assert!(!expected.0.is_empty());
        assert_eq!(say(&by_linked, &loaded, 60), expected, "{family}: run by the shared library");
        assert_eq!(say(&by_loaded, &linked, 60), expected, "{family}: compiled by the shared library");
    }
}

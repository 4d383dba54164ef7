//! Bundles whose narrowest graph is wide: a reply ends where none of their pasts holds its rows, by the context's limit.

use compiler::testmodel::TestModel;
use compiler::{Family, Precision};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::{Dialog, SamplerSettings, SentenceCode, StopReason};
use genie_types::TokenId;

#[test]
fn a_reply_ends_by_the_contexts_limit() {
    let backend = backends::linked();
    let make = |ars: &[u32]| {
        Bundle::make(&TestModel::tiny(Family::Llama), &backend, |options| {
            (options.ars, options.cls, options.precision) = (ars.to_vec(), vec![64], Precision::F32);
        })
    };
    let (wide, both) = (make(&[8]), make(&[1, 8]));
    let reply = |bundle: &Bundle, n: u32| {
        let mut dialog = Dialog::new(&bundle.config(), Box::new(bundle.engine(&backend))).unwrap();
        dialog.set_sampler(SamplerSettings::argmax());
        let prompt: Vec<TokenId> = (0..n).map(|i| TokenId(i * 7 % 250)).collect();
        dialog.token_query(&prompt, SentenceCode::Complete, |_| ()).unwrap()
    };
    let mut n_full = 0;
    for n in [3, 8, 20, 41, 55] {
        let (ours, plain) = (reply(&wide, n), reply(&both, n));
        assert_eq!(ours.tokens[..], plain.tokens[..ours.tokens.len()], "a prompt of {n} tokens");
        if ours.stop == StopReason::ContextLimit {
            n_full += 1;
            // Steps begin with at most 56 rows.
            assert!((57..=58).contains(&(n as usize + ours.tokens.len())), "a prompt of {n}: {}", ours.tokens.len());
        } else {
            assert_eq!(ours.stop, plain.stop, "a prompt of {n} tokens");
        }
    }
    assert!(n_full > 0);
}

//! A dialog kind that has drafts verified gives the reply of `basic` on real graphs, and needs fewer steps for it.

use compiler::testmodel::TestModel;
use compiler::{Family, Precision};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::{Decoding, Dialog, DialogError, DialogKind, SamplerSettings, SentenceCode, StopReason};
use genie_types::TokenId;

/// Drafts from a list of what will be said, with every `wrong`th token another one.
struct Oracle {
    reply: Vec<TokenId>,
    wrong: usize,
}

impl DialogKind for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        let known = self.reply.iter().position(|t| decoding.history().last() == Some(t) && decoding.has_started());
        let ahead = known.map_or(&[][..], |at| &self.reply[at + 1..]);
        let wrong = |(i, &t): (usize, &TokenId)| if (i + 1) % self.wrong == 0 { TokenId(t.0 ^ 1) } else { t };
        let draft: Vec<TokenId> = ahead.iter().take(7).enumerate().map(wrong).collect();
        Ok(decoding.verify(&draft)?.stop)
    }
}

#[test]
fn a_drafted_reply_is_that_of_basic() {
    let backend = backends::linked();
    let bundle = Bundle::make(&TestModel::tiny(Family::Llama), &backend, |options| {
        (options.ars, options.cls) = (vec![1, 8], vec![32, 64]);
        options.precision = Precision::F32;
    });
    let sampled = SamplerSettings::default().with_seed(Some(3)).with_top_k(4).with_temp(1.5).unwrap();
    for sampler in [SamplerSettings::argmax(), sampled] {
        let open = || {
            let mut dialog = Dialog::new(&bundle.config(), Box::new(bundle.engine(&backend))).unwrap();
            dialog.set_sampler(sampler.clone());
            dialog.control().set_max_num_tokens(Some(30));
            dialog
        };
        let prompt: Vec<TokenId> = (0..11).map(|i| TokenId(i * 31 % 300)).collect();
        let mut basic = open();
        let want = basic.token_query(&prompt, SentenceCode::Complete, |_| ()).unwrap();
        let more = basic.token_query(&prompt[..2], SentenceCode::Complete, |_| ()).unwrap();
        for wrong in [99, 3, 1] {
            let mut drafted = open().with_kind(Box::new(Oracle { reply: want.tokens.clone(), wrong }));
            let reply = drafted.token_query(&prompt, SentenceCode::Complete, |_| ()).unwrap();
            assert_eq!((&reply.tokens, &reply.stop), (&want.tokens, &want.stop), "every {wrong}th wrong");
            let n_steps = drafted.model().steps().names().count();
            let reply = drafted.token_query(&prompt[..2], SentenceCode::Complete, |_| ()).unwrap();
            assert_eq!(reply.tokens, more.tokens, "the next turn, every {wrong}th wrong");
            assert_eq!((drafted.history(), drafted.n_past()), (basic.history(), basic.n_past()));
            if wrong == 99 && sampler.is_argmax() {
                assert!(n_steps < 2 + want.tokens.len(), "{n_steps} graphs for {} tokens", want.tokens.len());
            }
        }
    }
}

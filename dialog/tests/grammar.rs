//! Dialogs that follow a grammar: masks, jumps, limits, and where the grammar is from query to query.

use dialog::config::ContextSettings;
use dialog::sampler::{Chain, SamplerRules, TokenPenalty};
use dialog::{
    Decoding, Dialog, DialogError, DialogKind, Grammar, GrammarKind, SamplerSettings, SentenceCode, Signal, StopReason,
};
use genie_types::TokenId;

use crate::common::{Call, Fake, N_VOCAB, Seen, Spy, context, ids, raw, tokenizer};

const SIR: &str = "root ::= \"yes \" (\"sir\" | \"madam\") \"!\"";

/// A dialog whose model always wants the same token, under rules.
fn wanting(token: u32, rules: SamplerRules, grammar: &str) -> (Dialog, Spy) {
    let (model, spy) = Fake::new(128, move |_| token);
    let sampler = SamplerSettings::argmax().with_rules(rules).with_top_k(1);
    let mut dialog = Dialog::from_parts(context(), sampler, tokenizer(), model);
    dialog.set_grammar(Some(&ebnf(grammar))).unwrap();
    (dialog, spy)
}

fn ebnf(text: &str) -> Grammar {
    Grammar::new(GrammarKind::Ebnf, text).unwrap()
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn say(dialog: &mut Dialog, text: &str, code: SentenceCode) -> (Seen, dialog::Reply) {
    let mut seen = Seen::default();
    let reply = dialog.query(text, code, |chunk| seen.take(chunk)).unwrap();
    (seen, reply)
}

#[test]
fn what_is_certain_is_processed_with_the_token_before_it() {
    // `m` is the likeliest, and is allowed once.
    let (mut dialog, spy) = wanting(u32::from(b'm'), SamplerRules::Documented, SIR);
    let (seen, reply) = say(&mut dialog, "a", SentenceCode::Complete);
    assert_eq!((reply.text.as_str(), &reply.stop), ("yes madam!", &StopReason::Eos));
    assert_eq!(raw(&reply.tokens), bytes("yes madam!"));
    let calls = [
        Call::Process(vec![256, 97]),
        Call::Process(bytes("yes")),
        Call::Process(bytes(" ")),
        Call::Process(bytes("madam")),
        Call::Process(bytes("!")),
    ];
    assert_eq!(spy.take(), calls);
    assert_eq!(seen.texts(), ["y", "e", "s", " ", "m", "a", "d", "a", "m", "!", ""]);
    assert_eq!(seen.codes(), [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
    assert_eq!(*spy.cache.lock().unwrap(), [vec![256, 97], bytes("yes madam!")].concat());
    assert_eq!(raw(&dialog.history()), [vec![256, 97], bytes("yes madam!"), vec![257]].concat());
    assert_eq!(reply.kpis.n_generated, 10);
}

#[test]
fn under_libgenies_rules_jumps_and_ends_are_delivered_as_recorded() {
    let (mut dialog, spy) = wanting(u32::from(b'm'), SamplerRules::Genie, SIR);
    let (seen, reply) = say(&mut dialog, "a", SentenceCode::Complete);
    assert_eq!(seen.texts(), ["y", "e", "s", " ", "m", "adam", "!", "<|eos|>"]);
    assert_eq!(
        (seen.codes(), seen.tokens()),
        (vec![1, 2, 2, 2, 2, 2, 2, 3], [bytes("yes madam!"), vec![257]].concat())
    );
    assert_eq!((reply.text.as_str(), reply.kpis.n_generated), ("yes madam!<|eos|>", 10));
    // The token before the jump is processed, unlike there.
    assert!(spy.take().contains(&Call::Process(bytes("madam"))));
    // An end that comes first is not delivered.
    dialog.set_grammar(Some(&ebnf("root ::= \"\" | \"a\""))).unwrap();
    let (model, _) = Fake::new(128, |_| 257);
    let mut ends =
        Dialog::from_parts(context(), SamplerSettings::argmax().with_rules(SamplerRules::Genie), tokenizer(), model);
    ends.set_grammar(Some(&ebnf("root ::= \"\" | \"a\""))).unwrap();
    assert_eq!(say(&mut ends, "a", SentenceCode::Complete).0.0, [(3, vec![], String::new())]);
}

#[test]
fn the_limit_counts_every_token_and_in_libgenie_a_jump_as_one() {
    let long = "root ::= \"abcdefg\" [x-z] \"0123456789\" [a-c]+ \".\"";
    // As recorded: the first query, then three that go on.
    let (mut genie, _) = wanting(u32::from(b'y'), SamplerRules::Genie, long);
    genie.control().set_max_num_tokens(Some(3));
    let mut said = vec![say(&mut genie, "a", SentenceCode::Complete).1.text];
    said.extend(["b", "c"].map(|text| say(&mut genie, text, SentenceCode::End).1.text));
    assert_eq!(said, ["abcdef", "gy012345678", "9a."]);

    let (mut ours, spy) = wanting(u32::from(b'y'), SamplerRules::Documented, long);
    for (limit, text) in [(1, "a"), (2, "bc"), (4, "defg"), (3, "y01"), (9, "23456789a")] {
        ours.control().set_max_num_tokens(Some(limit));
        let code = if text == "a" { SentenceCode::Complete } else { SentenceCode::End };
        let (_, reply) = say(&mut ours, "q", code);
        assert_eq!((reply.text.as_str(), reply.stop), (text, StopReason::MaxTokens));
        assert_eq!(spy.cache.lock().unwrap().len() + 1, ours.history().len(), "{text}: the last one is not processed");
    }
}

#[test]
fn a_turn_starts_the_grammar_and_its_continuation_goes_on() {
    let (mut dialog, _) = wanting(u32::from(b'm'), SamplerRules::Documented, SIR);
    let control = dialog.control();
    let turn = |dialog: &mut Dialog, n: usize, code| {
        control.set_max_num_tokens(Some(n));
        say(dialog, "q", code).1.text
    };
    assert_eq!(turn(&mut dialog, 3, SentenceCode::Complete), "yes");
    assert_eq!(turn(&mut dialog, 3, SentenceCode::End), " ma");
    assert_eq!(turn(&mut dialog, 3, SentenceCode::Complete), "yes");
    assert_eq!(turn(&mut dialog, 0, SentenceCode::Continue), "");
    assert_eq!(turn(&mut dialog, 99, SentenceCode::End), " madam!");
    // Its end was reached: it starts again.
    assert_eq!(turn(&mut dialog, 2, SentenceCode::End), "ye");
    dialog.reset().unwrap();
    assert_eq!(turn(&mut dialog, 3, SentenceCode::End), "yes");
    dialog.set_grammar(Some(&ebnf("root ::= \"no\""))).unwrap();
    assert_eq!(turn(&mut dialog, 9, SentenceCode::End), "no");
    dialog.set_grammar(None).unwrap();
    assert!(dialog.grammar().is_none());
    assert_eq!(turn(&mut dialog, 2, SentenceCode::Complete), "mm");
}

#[test]
fn a_reply_can_be_paused_rewound_and_cut() {
    let (mut dialog, _) = wanting(u32::from(b'm'), SamplerRules::Documented, SIR);
    let control = dialog.control();
    let mut text = String::new();
    let reply = dialog.query("q", SentenceCode::Complete, |chunk| {
        text.push_str(chunk.text);
        if text.len() >= 4 {
            control.signal(Signal::Pause);
        }
    });
    assert_eq!((reply.unwrap().stop, text.as_str()), (StopReason::Paused, "yes "));
    // The last token comes again.
    assert_eq!(say(&mut dialog, "", SentenceCode::Resume).1.text, " madam!");

    // The conversation is stated again up to the middle of the reply: the rest of the grammar follows.
    let history = dialog.history();
    for (n, rest) in [(2, "yes madam!"), (4, "s madam!"), (6, "madam!"), (9, "am!")] {
        dialog.control().set_max_num_tokens(None);
        let reply = dialog.token_query(&history[..n], SentenceCode::Rewind, |_| {}).unwrap();
        assert_eq!(reply.text, rest, "{n} tokens kept");
    }
    // Stated otherwise it is another conversation.
    let other = [&history[..4], &ids([1, 2])].concat();
    assert_eq!(dialog.token_query(&other, SentenceCode::Rewind, |_| {}).unwrap().text, "yes madam!");

    // A stop sequence within what is certain.
    dialog.set_stop_sequences(vec!["ad".into()]).unwrap();
    let (_, reply) = say(&mut dialog, "q", SentenceCode::Complete);
    assert_eq!((reply.text.as_str(), dialog.history().last()), ("yes m", Some(&TokenId(u32::from(b'm')))));
    dialog.set_stop_sequences(vec![]).unwrap();
    assert_eq!(say(&mut dialog, "q", SentenceCode::End).1.text, "adam!");
}

fn forbidding(token: u32) -> SamplerSettings {
    let chain = Chain { logit_bias: vec![(TokenId(token), f32::NEG_INFINITY)], ..Chain::default() };
    SamplerSettings::argmax().with_chain(chain).unwrap()
}

/// As with `--ignore-eos`.
#[test]
fn a_grammar_ends_without_the_end_token() {
    let (mut dialog, _) = wanting(u32::from(b'm'), SamplerRules::Documented, SIR);
    dialog.set_sampler(forbidding(257));
    let (_, reply) = say(&mut dialog, "a", SentenceCode::Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("yes madam!", StopReason::GrammarEnd));
}

/// What was replied to a conversation is not said again where another grammar, bias or sampler forbids it.
#[test]
fn a_known_reply_is_drawn_again_by_the_rules_of_now() {
    let (model, _) = Fake::new(128, |_| u32::from(b'm'));
    let mut dialog = Dialog::from_parts(context(), SamplerSettings::argmax(), tokenizer(), model);
    dialog.control().set_max_num_tokens(Some(3));
    let (_, reply) = say(&mut dialog, "q", SentenceCode::Complete);
    assert_eq!(reply.text, "mmm");
    let prompt = dialog.history()[..2].to_vec();
    let again = |dialog: &mut Dialog| dialog.token_query(&prompt, SentenceCode::Rewind, |_| {}).unwrap().text;
    assert_eq!(again(&mut dialog), "mmm");
    dialog.set_grammar(Some(&ebnf(SIR))).unwrap();
    assert_eq!(again(&mut dialog), "yes");
    dialog.set_grammar(None).unwrap();
    dialog.set_sampler(SamplerSettings::argmax());
    assert_eq!(again(&mut dialog), "ymm", "the first token is given again");
    dialog.set_sampler(forbidding(u32::from(b'y')));
    assert_eq!(again(&mut dialog), "mmm");
    // A penalty looks at the token that is given again, too: each comes once.
    let penalty = TokenPenalty { last_n: 64, repetition: 1.0, presence: 1000.0, frequency: 0.0 };
    dialog.set_sampler(
        SamplerSettings::default().with_seed(Some(7)).with_temp(1.0).unwrap().with_penalty(penalty).unwrap(),
    );
    let letters: std::collections::BTreeSet<u32> = {
        let reply = dialog.token_query(&prompt, SentenceCode::Rewind, |_| {}).unwrap();
        assert_eq!(reply.tokens[0], TokenId(u32::from(b'm')));
        raw(&reply.tokens).into_iter().collect()
    };
    assert_eq!(letters.len(), 3);
}

/// Drafts the same text again and again.
struct Drafter(&'static str);

impl DialogKind for Drafter {
    fn name(&self) -> &'static str {
        "drafter"
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        Ok(decoding.verify(&ids(bytes(self.0)))?.stop)
    }
}

#[test]
fn drafts_are_held_against_the_grammar() {
    for draft in ["s madam", "madam!x", "zzz", "es"] {
        let (dialog, spy) = wanting(u32::from(b'm'), SamplerRules::Documented, SIR);
        let mut dialog = dialog.with_kind(Box::new(Drafter(draft)));
        let (_, reply) = say(&mut dialog, "a", SentenceCode::Complete);
        assert_eq!((reply.text.as_str(), reply.stop), ("yes madam!", StopReason::Eos), "{draft}");
        assert_eq!(raw(&dialog.history()[..dialog.n_past()]), *spy.cache.lock().unwrap(), "{draft}");
        // What the grammar refuses is not even processed.
        let beyond = |call: &Call| matches!(call, Call::Process(tokens) if tokens.contains(&u32::from(b'z')));
        assert!(!spy.take().iter().any(beyond), "{draft}");
    }
}

#[test]
fn a_complete_text_ends_the_reply_also_without_a_stop_token() {
    let (model, _) = Fake::new(64, |_| 97);
    let bare = ContextSettings { eos: vec![], ..context() };
    let mut dialog = Dialog::from_parts(bare, SamplerSettings::argmax(), tokenizer(), model);
    dialog.set_grammar(Some(&ebnf("root ::= [a-b]{3}"))).unwrap();
    let (_, reply) = say(&mut dialog, "q", SentenceCode::Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("aaa", StopReason::GrammarEnd));
    // All of it was processed to find that nothing can follow.
    assert_eq!(dialog.n_past(), dialog.history().len());
    assert_eq!(say(&mut dialog, "q", SentenceCode::Complete).1.text, "aaa");
}

#[test]
fn a_grammar_that_cannot_be_followed_is_refused_and_the_one_before_stays() {
    let (mut dialog, _) = wanting(u32::from(b'm'), SamplerRules::Documented, SIR);
    // A vocabulary of words has no way to write other ones.
    let words = dialog::Tokenizer::from_bytes(
        br#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
             "post_processor": null, "decoder": null, "truncation": null, "padding": null,
             "model": {"type": "WordLevel", "vocab": {"to": 0, "be": 1}, "unk_token": "to"}}"#,
    )
    .unwrap();
    let (model, _) = Fake::new(64, |_| 0);
    let mut small = Dialog::from_parts(context(), SamplerSettings::argmax(), words, model);
    let error = small.set_grammar(Some(&ebnf("root ::= \"no\""))).unwrap_err();
    assert!(
        error.to_string().starts_with("no token of the vocabulary can begin what the ebnf grammar wants"),
        "{error}"
    );
    assert!(small.grammar().is_none());
    assert!(dialog.set_grammar(Some(&ebnf("root ::= \"no\""))).is_ok());
    assert_eq!(say(&mut dialog, "q", SentenceCode::Complete).1.text, "no");
}

#[test]
fn without_a_grammar_every_token_may_come() {
    let (model, _) = Fake::new(64, |cache| (cache.len() as u32 * 37) % N_VOCAB as u32);
    let mut dialog = Dialog::from_parts(context(), SamplerSettings::argmax(), tokenizer(), model);
    dialog.control().set_max_num_tokens(Some(6));
    let tokens = raw(&say(&mut dialog, "q", SentenceCode::Complete).1.tokens);
    assert_eq!(tokens, [74, 111, 148, 185, 222, 259]);
}

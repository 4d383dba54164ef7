//! The `harmony` response format and a program's own stop rule, with each kind of query and sentence code.

use std::sync::{Arc, Mutex};

use dialog::config::HarmonySettings;
use dialog::{
    Dialog, RequestBase, RequestSettings, SamplerSettings, SentenceCode, StopCallback, StopReason, Tokenizer,
};
use serde_json::Value;

use crate::common;
use crate::common::{Fake, Seen, ask, context, greedy, ids, say, tokenizer_json};

/// The tokenizer of the recordings, with gpt-oss's control tokens from 300 on.
fn tokenizer() -> Tokenizer {
    let names = ["start", "channel", "message", "end", "return", "call", "constrain"];
    let mut json: Value = serde_json::from_str(&tokenizer_json()).unwrap();
    for token in json["added_tokens"].as_array_mut().unwrap() {
        let number = token["id"].as_u64().unwrap();
        if let Some(name) = number.checked_sub(300).and_then(|i| names.get(i as usize)) {
            (token["content"], token["special"]) = (format!("<|{name}|>").into(), true.into());
        }
    }
    Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
}

const START: u32 = 300;
const CHANNEL: u32 = 301;
const MESSAGE: u32 = 302;
const END: u32 = 303;

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// A reply with its reasoning, then the end token of the context.
fn reply() -> Vec<u32> {
    let parts: [&[u32]; 12] = [
        &[CHANNEL],
        &bytes("analysis"),
        &[MESSAGE],
        &bytes("hm"),
        &[END, START],
        &bytes("assistant"),
        &[CHANNEL],
        &bytes("final"),
        &[MESSAGE],
        &bytes("yes"),
        &[257],
        &[],
    ];
    parts.concat()
}

/// A dialog whose model says [`reply`] to whatever it is asked, and the tokens that it was given.
fn dialog(settings: HarmonySettings, genie: bool) -> (Dialog, common::Spy) {
    let asked = Arc::new(Mutex::new(0));
    let (model, spy) = Fake::new(512, move |cache| {
        let mut from = asked.lock().unwrap();
        // The reply begins where the prompt ends.
        if cache.len() < *from || !reply().starts_with(&cache[*from..]) {
            *from = cache.len();
        }
        reply()[cache.len() - *from]
    });
    let mut settings_of_sampler = SamplerSettings::argmax();
    if genie {
        settings_of_sampler = settings_of_sampler.with_rules(dialog::sampler::SamplerRules::Genie);
    }
    let context = dialog::config::ContextSettings { size: 512, ..context() };
    let mut dialog = Dialog::from_parts(context, settings_of_sampler, tokenizer(), model);
    dialog.set_harmony(Some(settings)).unwrap();
    (dialog, spy)
}

const BOTH: HarmonySettings = HarmonySettings { parses: true, wraps: true, as_json: false };

#[test]
fn a_callback_sees_the_final_channel_and_the_reply_has_all_messages() {
    let (mut dialog, _) = dialog(BOTH, false);
    for _turn in 0..2 {
        let (reply, seen) = say(&mut dialog, "hi", SentenceCode::Complete);
        assert_eq!((reply.text.as_str(), &reply.stop), ("yes", &StopReason::Eos));
        assert_eq!(seen.texts().concat(), "yes");
        assert_eq!((seen.codes()[0], *seen.codes().last().unwrap()), (1, 3));
        let messages: Vec<_> = reply.messages.iter().map(|m| (m.channel.as_str(), m.text.as_str())).collect();
        assert_eq!(messages, [("analysis", "hm"), ("final", "yes")]);
        assert_eq!(reply.tokens.len(), self::reply().len() - 1, "all tokens are the reply's");
    }
}

/// As `genie serve` does it: prompts come from a template.
#[test]
fn replies_of_requests_are_read_alike() {
    let settings = RequestSettings::new(SamplerSettings::argmax());
    let context = dialog::config::ContextSettings { size: 512, ..context() };
    let base = RequestBase::new(context.clone(), tokenizer(), settings.clone()).with_harmony(Some(BOTH)).unwrap();
    let mut request = base.request(ids([9, 10]), settings.clone(), 512).unwrap();
    let (mut pieces, mut reasoning) = (String::new(), Vec::new());
    for token in reply() {
        let mut logits = [0.0; 512];
        logits[token as usize] = 1.0;
        request.take(&logits).unwrap();
        while let Some(piece) = request.piece() {
            pieces.push_str(&piece.text);
            reasoning.push(piece.reasoning);
        }
    }
    assert_eq!(request.history()[..3], ids([9, 10, CHANNEL]));
    reasoning.retain(|piece| !piece.is_empty());
    assert_eq!(reasoning, ["h", "m"], "as it comes, once");
    let reply = request.finish();
    assert_eq!((reply.text.as_str(), pieces.as_str(), &reply.stop), ("yes", "yes", &StopReason::Eos));
    let plain = Tokenizer::from_bytes(tokenizer_json().as_bytes()).unwrap();
    assert!(RequestBase::new(context, plain, settings).with_harmony(Some(BOTH)).is_err(), "it has no control tokens");
}

#[test]
fn pieces_may_be_json() {
    let (mut dialog, _) = dialog(HarmonySettings { as_json: true, ..BOTH }, false);
    let (reply, _) = say(&mut dialog, "hi", SentenceCode::Complete);
    let lines: Vec<Value> = reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |channel: &str| -> String {
        lines.iter().filter(|line| line["channel"] == channel).map(|line| line["text"].as_str().unwrap()).collect()
    };
    assert_eq!((of("analysis"), of("final")), ("hm".to_owned(), "yes".to_owned()));
}

#[test]
fn prompts_are_messages_in_every_part_of_a_turn() {
    let user = |text: &str| [&[START][..], &bytes("user"), &[MESSAGE], &bytes(text)].concat();
    let assistant = |space: &str| [&[END][..], &bytes(space), &[START], &bytes("assistant")].concat();
    for (genie, space) in [(false, ""), (true, " ")] {
        let (mut dialog, spy) = dialog(BOTH, genie);
        say(&mut dialog, "ab", SentenceCode::Begin);
        say(&mut dialog, "cd", SentenceCode::Continue);
        say(&mut dialog, "ef", SentenceCode::End);
        let goes_on = |text: &str| if genie { user(text) } else { bytes(text) };
        let wanted = [vec![256], user("ab"), goes_on("cd"), goes_on("ef"), assistant(space)].concat();
        assert_eq!(spy.cache.lock().unwrap()[..wanted.len()], wanted, "policy genie: {genie}");
        dialog.reset().unwrap();
        say(&mut dialog, "ab", SentenceCode::Rewind);
        let wanted = [vec![256], user("ab"), assistant(space)].concat();
        assert_eq!(spy.cache.lock().unwrap()[..wanted.len()], wanted);
        // Text without control tokens is in a message, too.
        dialog.reset().unwrap();
        dialog.start_plain("<|end|>", SentenceCode::Complete).unwrap().run(|_| ()).unwrap();
        let wanted = [vec![256], user("<|end|>"), assistant(space)].concat();
        assert_eq!(spy.cache.lock().unwrap()[..wanted.len()], wanted);
        // Tokens are taken as they are.
        dialog.reset().unwrap();
        ask(&mut dialog, &[9, 10], SentenceCode::Complete);
        assert_eq!(spy.cache.lock().unwrap()[..3], [256, 9, 10]);
    }
}

#[test]
fn stop_sequences_look_at_what_is_shown() {
    let (mut dialog, _) = dialog(BOTH, false);
    dialog.set_stop_sequences(vec!["h".into(), "es".into()]).unwrap();
    let (reply, _) = say(&mut dialog, "hi", SentenceCode::Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("y", StopReason::StopSequence("es".into())));
}

#[test]
fn a_tokenizer_without_control_tokens_is_refused() {
    let (model, _) = Fake::new(128, |_| 1);
    let mut dialog = greedy(context(), model);
    let error = dialog.set_harmony(Some(BOTH)).unwrap_err().to_string();
    assert!(error.contains("a tokenizer with the control token `<|start|>`"), "{error}");
    // Prompts alone need none.
    dialog.set_harmony(Some(HarmonySettings { parses: false, ..BOTH })).unwrap();
}

#[test]
fn a_programs_own_rule_ends_replies_to_text_and_tokens() {
    let (model, _) = Fake::new(128, |cache| 97 + cache.len() as u32 % 26);
    let mut dialog = greedy(context(), model);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    dialog.set_stop_callback(Some(StopCallback::new(move |text, tokens| {
        log.lock().unwrap().push((text.to_owned(), tokens.len()));
        tokens.len() == 3
    })));
    for code in [SentenceCode::Complete, SentenceCode::End, SentenceCode::Rewind] {
        let (reply, chunks) = say(&mut dialog, "hello", code);
        assert_eq!((reply.tokens.len(), reply.stop.clone()), (3, StopReason::StopCallback), "{code}");
        assert_eq!(chunks.codes(), [1, 2, 2, 3]);
        assert_eq!(reply.stop.genie_status(), 0);
        let (reply, _) = ask(&mut dialog, &[1, 2], SentenceCode::Complete);
        assert_eq!((reply.tokens.len(), reply.stop), (3, StopReason::StopCallback));
    }
    let calls = seen.lock().unwrap().clone();
    assert_eq!(calls.iter().map(|call| call.1).collect::<Vec<_>>(), [1, 2, 3].repeat(6));
    assert!(calls.iter().all(|(text, n)| text.len() == *n), "{calls:?}");
    // The last token is unprocessed, as after a limit: the next turn goes on from it.
    assert_eq!(dialog.history().len(), dialog.n_past() + 1);
    dialog.set_stop_callback(None);
    dialog.control().set_max_num_tokens(Some(5));
    let mut seen = Seen::default();
    let reply = dialog.token_query(&ids([7]), SentenceCode::Complete, |chunk| seen.take(chunk)).unwrap();
    assert_eq!(reply.tokens.len(), 5);
}

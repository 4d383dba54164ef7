//! What a dialog does beyond the recordings: limits, failures, text at its edges, and its invariant under any use.

use std::sync::atomic::Ordering;

use dialog::config::ContextSettings;
use dialog::sampler::TokenPenalty;
use dialog::{Dialog, DialogConfig, DialogError, SamplerSettings, SentenceCode, Signal, StopReason};
use engine::Overflow;
use genie_types::TokenId;
use proptest::prelude::*;
use serde_json::json;

use SentenceCode::{Begin, Complete, Continue, End, Resume, Rewind};

use crate::common;
use crate::common::*;

/// Says the bytes of a text, one after the other, then EOS, whatever the prompt (of `n_prompt` tokens, BOS included).
fn speaker(n_prompt: usize, text: &'static [u8]) -> (Dialog, Spy) {
    let (model, spy) = Fake::new(512, move |cache| text.get(cache.len() - n_prompt).map_or(257, |b| u32::from(*b)));
    (greedy(ContextSettings { size: 512, ..context() }, model), spy)
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_before_anything_runs() {
    let (model, spy) = Fake::new(128, |_| 7);
    let mut dialog = greedy(context(), model);
    let err = dialog.token_query(&ids(vec![1; 128]), Complete, |_| panic!("no chunk")).unwrap_err();
    assert_eq!(err.to_string(), "context limit exceeded: 0 past + 129 new tokens > 128");
    assert!(spy.take().is_empty() && dialog.history().is_empty());
    // Exactly full: the prompt runs and one token can be sampled from its logits.
    let (reply, seen) = ask(&mut dialog, &[1; 127], Complete);
    assert_eq!((reply.stop, seen.tokens(), seen.codes()), (StopReason::ContextLimit, vec![7], vec![1, 3]));
    // The dialog stays usable: further input is refused with counts, a reset frees it.
    let err = dialog.token_query(&ids([1]), Complete, |_| ()).unwrap_err();
    assert!(
        matches!(err, DialogError::Overflow(Overflow::ContextExceeded { n_past: 128, n_new: 4, limit: 128 })),
        "{err}"
    );
    dialog.reset().unwrap();
    assert_eq!(ask(&mut dialog, &[1], Complete).0.input.len(), 2);
}

#[test]
fn steps_give_what_a_query_gives() {
    let (mut whole, _) = speaker(2, b"one\nUser: two");
    let (mut stepped, spy) = speaker(2, b"one\nUser: two");
    for dialog in [&mut whole, &mut stepped] {
        dialog.set_stop_sequences(vec!["\nUser:".into()]).unwrap();
    }
    let (reply, seen) = say(&mut whole, "x", Complete);
    let mut steps = Seen::default();
    let mut generation = stepped.start("x", Complete).unwrap();
    assert!(spy.take().is_empty(), "nothing runs before the first step");
    while let Some(chunk) = generation.step().unwrap() {
        steps.take(chunk);
    }
    assert_eq!(generation.stop(), Some(&reply.stop));
    assert_eq!(generation.step().unwrap(), None);
    let again = generation.finish();
    assert_eq!(steps, seen);
    assert_eq!(
        (again.tokens, again.text, again.stop, again.input),
        (reply.tokens, reply.text, reply.stop, reply.input)
    );
    assert_eq!((stepped.history(), stepped.n_past()), (whole.history(), whole.n_past()));
}

#[test]
fn a_reply_that_is_dropped_stops_there() {
    let (mut dialog, spy) = speaker(2, b"one two");
    let mut generation = dialog.start("x", Complete).unwrap();
    assert_eq!(generation.step().unwrap().map(|chunk| chunk.text.to_owned()).as_deref(), Some("o"));
    assert_eq!(generation.stop(), None);
    drop(generation);
    assert_eq!((dialog.history().len(), dialog.n_past(), spy.cache.lock().unwrap().len()), (3, 2, 2));
    let reply = dialog.start("y", Complete).unwrap().finish();
    assert_eq!((reply.stop, reply.tokens.len(), dialog.n_past()), (StopReason::Aborted, 0, 2));
}

#[test]
fn dialogs_move_between_threads() {
    let (mut dialog, _) = speaker(2, b"one");
    let said = std::thread::spawn(move || say(&mut dialog, "x", Complete).0.text).join().unwrap();
    assert_eq!(said, "one");
}

#[test]
fn a_reply_ends_where_the_context_does() {
    // The config's size counts, and so does the model's; a model that gives up earlier ends the reply, too.
    for (config, model, limit) in [(20, 128, 20), (128, 20, 20), (30, 30, 30)] {
        let (fake, _) = Fake::new(model, |_| 7);
        let mut dialog = greedy(ContextSettings { size: config, ..context() }, fake);
        let (reply, seen) = ask(&mut dialog, &[1, 2, 3], Complete);
        assert_eq!((reply.stop.clone(), reply.stop.genie_status()), (StopReason::ContextLimit, 4));
        assert_eq!(seen.tokens().len(), limit - 4 + 1);
        assert_eq!(seen.codes().last(), Some(&3));
        assert_eq!(dialog.n_past(), limit);
    }
}

#[test]
fn stop_sequences_span_tokens_and_rewind_the_cache() {
    let (mut dialog, spy) = speaker(2, b"one\nUser: two");
    dialog.set_stop_sequences(vec!["\nUser:".into(), "zzz".into()]).unwrap();
    let (reply, seen) = say(&mut dialog, "x", Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("one", StopReason::StopSequence("\nUser:".into())));
    assert_eq!(seen.texts(), ["o", "n", "e", "", "", "", "", "", "", ""]);
    assert_eq!(raw(&reply.tokens), b"one\nUser:".map(u32::from));
    // 2 of the prompt and 3 of the reply are left; `:` had not been processed.
    assert_eq!(spy.take().last(), Some(&Call::Rewind(5)));
    assert_eq!((dialog.n_past(), raw(&dialog.history())), (5, vec![256, 120, 111, 110, 101]));
    let err = dialog.set_stop_sequences(vec!["a".into(), String::new()]).unwrap_err();
    assert_eq!(err.to_string(), "stop sequence 1 is empty, expected at least one character");
}

#[test]
fn a_stop_sequence_inside_a_token_gives_out_what_is_before_it() {
    // Token 414 reads `<|x414|>`; the sequence begins and ends within it.
    let (model, _) = Fake::table(64, Table::default().add(&[256, 120], &[97, 414]));
    let mut dialog = greedy(context(), model);
    dialog.set_stop_sequences(vec!["41".into()]).unwrap();
    let (reply, _) = say(&mut dialog, "x", Complete);
    assert_eq!(reply.text, "a<|x");
    assert_eq!(raw(&dialog.history()), [256, 120, 97], "the cache is cut at whole tokens");
}

#[test]
fn a_special_token_can_be_a_stop_sequence() {
    let (model, _) = Fake::table(64, Table::default().add(&[256, 120], &[97, 258]));
    let mut dialog = greedy(context(), model);
    dialog.set_stop_sequences(vec!["<|pad|>".into()]).unwrap();
    let (reply, _) = say(&mut dialog, "x", Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("a", StopReason::StopSequence("<|pad|>".into())));
}

#[test]
fn held_text_is_given_when_the_reply_ends_otherwise() {
    // `ab` may become `abc`, and 0xe6 0x97 may become a character; neither does.
    let (mut dialog, _) = speaker(2, b"xab\xe6\x97");
    dialog.set_stop_sequences(vec!["abc".into(), "b\u{fffd}z".into()]).unwrap();
    let (reply, seen) = say(&mut dialog, "x", Complete);
    assert_eq!((reply.stop, reply.text.as_str()), (StopReason::Eos, "xab\u{fffd}"));
    assert_eq!(seen.texts(), ["x", "", "", "", "", "ab\u{fffd}", ""]);
    assert_eq!(seen.codes(), [1, 2, 2, 2, 2, 2, 3]);
    assert!(seen.0[5].1.is_empty(), "no token comes twice");
}

#[test]
fn characters_come_whole_and_invalid_bytes_do_not_silence_the_reply() {
    let (mut dialog, _) = speaker(2, "né\u{65e5}".as_bytes());
    assert_eq!(say(&mut dialog, "x", Complete).1.texts(), ["n", "", "é", "", "", "日", ""]);
    let (mut dialog, _) = speaker(2, b"\xe6x\xffy");
    assert_eq!(say(&mut dialog, "x", Complete).1.texts(), ["", "\u{fffd}x", "\u{fffd}", "y", ""]);
}

#[test]
fn an_immediate_eos_is_an_empty_reply() {
    let (mut dialog, _) = speaker(2, b"");
    let (reply, seen) = say(&mut dialog, "x", Complete);
    assert_eq!((reply.stop, reply.tokens.len(), seen.codes()), (StopReason::Eos, 0, vec![3]));
}

#[test]
fn parts_of_a_sentence_are_processed_and_answered_at_the_end() {
    let (model, spy) = Fake::new(128, |cache| if cache.len() < 9 { 7 } else { 257 });
    let mut dialog = greedy(context(), model);
    let silent = |d: &mut Dialog, tokens: &[u32], code| {
        let (reply, seen) = ask(d, tokens, code);
        assert_eq!((reply.stop, seen.0.len()), (StopReason::Prefilled, 0));
        raw(&reply.input)
    };
    assert_eq!(silent(&mut dialog, &[1], Begin), [256, 1]);
    assert_eq!(silent(&mut dialog, &[2, 3], Continue), [2, 3]);
    let (reply, seen) = ask(&mut dialog, &[4], End);
    assert_eq!((raw(&reply.input), seen.tokens()), (vec![4], vec![7; 4]));
    assert_eq!(spy.take()[..3], [Call::Prefill(vec![256, 1]), Call::Prefill(vec![2, 3]), Call::Process(vec![4])]);
    // A further BEGIN is a new turn (EOS was said last, so none is added); COMPLETE ends it like END.
    assert_eq!(silent(&mut dialog, &[5], Begin), [257, 256, 5]);
    assert_eq!(raw(&ask(&mut dialog, &[6], Complete).0.input), [6]);
    // The end of a sentence may come without words: the last token is run again for its logits.
    silent(&mut dialog, &[8], Begin);
    spy.take();
    let n_past = dialog.n_past();
    let (reply, _) = ask(&mut dialog, &[], End);
    assert_eq!(raw(&reply.input), [8]);
    assert_eq!(spy.take()[..2], [Call::Rewind(n_past - 1), Call::Process(vec![8])]);
}

#[test]
fn codes_that_do_not_fit_are_refused() {
    let (model, _) = Fake::new(64, |_| 7);
    let mut dialog = greedy(ContextSettings { bos: None, ..context() }, model);
    let mut refused =
        |tokens: &[u32], code| dialog.token_query(&ids(tokens.iter().copied()), code, |_| ()).unwrap_err().to_string();
    assert_eq!(refused(&[], Resume), "RESUME came, but the dialog is not paused");
    assert_eq!(refused(&[1], SentenceCode::Abort), "ABORT is no sentence code for a query");
    let empty = "the query has no tokens and no BOS token is set, expected at least one token";
    assert_eq!(refused(&[], Complete), empty);
    assert_eq!(refused(&[], Rewind), empty);
    for n in 0..7 {
        assert_eq!(SentenceCode::from_number(n).unwrap().number(), n);
    }
    assert_eq!(SentenceCode::from_number(7), None);
}

#[test]
fn a_paused_reply_goes_on_without_losing_text() {
    // Paused in the middle of a character and of a possible stop sequence.
    let (mut dialog, _) = speaker(2, "aé!bc".as_bytes());
    dialog.set_stop_sequences(vec!["é!c".into()]).unwrap();
    let control = dialog.control();
    let mut n = 0;
    let mut first = String::new();
    let reply = dialog.query("x", Complete, |c| {
        n += 1;
        first.push_str(c.text);
        if n == 2 {
            control.signal(Signal::Pause);
        }
    });
    assert_eq!((reply.unwrap().stop, first.as_str()), (StopReason::Paused, "a"));
    let err = dialog.token_query(&ids([1]), Resume, |_| ()).unwrap_err();
    assert_eq!(err.to_string(), "RESUME came with 1 tokens, expected none");
    // A limit of 0 resumes nothing and loses nothing.
    control.set_max_num_tokens(Some(0));
    assert_eq!(dialog.query("", Resume, |_| panic!("no chunk")).unwrap().stop, StopReason::Prefilled);
    assert!(dialog.is_paused());
    control.set_max_num_tokens(None);
    let (reply, seen) = say(&mut dialog, "", Resume);
    assert_eq!((reply.stop, reply.text.as_str()), (StopReason::Eos, "é!bc"));
    assert_eq!(seen.tokens()[0], 0xc3, "the last token is said again");
}

#[test]
fn a_rewind_instead_of_a_resume_starts_its_text_from_the_start() {
    let (mut dialog, _) = speaker(2, "é!".as_bytes());
    let control = dialog.control();
    let first = dialog.query("x", Complete, |_| control.signal(Signal::Pause)).unwrap();
    assert_eq!((first.stop, first.text.as_str()), (StopReason::Paused, ""));
    // Half of `é` was pending; its second half must not be taken for the rest of the old one.
    let (reply, _) = say(&mut dialog, "x", Rewind);
    assert_eq!((reply.stop, reply.text.as_str()), (StopReason::Eos, "é!"));
    // The same where something was pending that the new reply does not say again.
    let (mut dialog, _) = speaker(2, "é!".as_bytes());
    let control = dialog.control();
    let mut n = 0;
    let paused = dialog.query("x", Complete, |_| {
        n += 1;
        if n == 2 {
            control.signal(Signal::Pause);
        }
    });
    assert_eq!(paused.unwrap().text, "é");
    assert_eq!(say(&mut dialog, "x", Rewind).0.text, "é!");
}

#[test]
fn the_limit_can_be_changed_while_a_reply_runs() {
    let (model, _) = Fake::new(128, |_| 7);
    let mut dialog = greedy(context(), model);
    let control = dialog.control();
    let mut n = 0;
    let reply = dialog.token_query(&ids([1]), Complete, |_| {
        n += 1;
        control.set_max_num_tokens(Some(3));
    });
    assert_eq!(reply.unwrap().tokens.len(), 3);
    // A signal that comes between queries is stale.
    dialog.control().signal(Signal::Abort);
    assert_eq!(ask(&mut dialog, &[1], Complete).0.stop, StopReason::MaxTokens);
}

#[test]
fn a_failed_query_leaves_a_dialog_that_can_go_on() {
    for (fail, message) in [
        (1, "this token is not yet supported"),
        (2, "logit of token 7 is NaN, expected a finite number (1 of 512 logits are bad)"),
    ] {
        let (model, spy) = Fake::new(64, |_| 7);
        let mut dialog = greedy(context(), model);
        let spy2 = spy.clone();
        let mut n = 0;
        let err = dialog.token_query(&ids([1, 2]), Complete, |_| {
            n += 1;
            if n == 3 {
                spy2.fail.store(fail, Ordering::Relaxed);
            }
        });
        assert_eq!(err.unwrap_err().to_string(), message);
        // Two replies were processed, the third was not: history and cache agree on that.
        assert_eq!(raw(&dialog.history()), [256, 1, 2, 7, 7]);
        assert_eq!((dialog.n_past(), spy.cache.lock().unwrap().len()), (5, 5));
        dialog.control().set_max_num_tokens(Some(1));
        assert_eq!(raw(&ask(&mut dialog, &[3], Complete).0.input), [257, 256, 3]);
    }
}

/// Penalties look at what the model has, not at a prompt that it could not process.
#[test]
fn the_sampler_forgets_the_prompt_of_a_failed_query() {
    let penalty = TokenPenalty { last_n: 64, presence: 100.0, ..TokenPenalty::default() };
    // Of its logits the one of 20 is drawn, unless it is lowered.
    let settings = SamplerSettings::default().with_seed(Some(42)).with_penalty(penalty).unwrap();
    let (model, spy) = Fake::new(64, |_| 7);
    let mut dialog = Dialog::from_parts(context(), settings, tokenizer(), model);
    dialog.control().set_max_num_tokens(Some(1));
    spy.fail.store(1, Ordering::Relaxed);
    dialog.token_query(&ids([7]), Complete, |_| panic!("no chunk")).unwrap_err();
    assert_eq!(ask(&mut dialog, &[1], Complete).1.tokens(), [7]);
    // Now it has it.
    assert_ne!(ask(&mut dialog, &[1], Complete).1.tokens(), [7]);
}

#[test]
fn a_reset_repeats_a_seeded_conversation() {
    // A flat row: every token depends on the random draw.
    let settings =
        SamplerSettings::default().with_seed(Some(42)).with_temp(100.0).and_then(|s| s.with_top_p(1.0)).unwrap();
    let (model, spy) = Fake::new(128, |_| 7);
    let mut dialog = Dialog::from_parts(ContextSettings { eos: vec![], ..context() }, settings, tokenizer(), model);
    dialog.control().set_max_num_tokens(Some(16));
    let first = ask(&mut dialog, &[1], Complete).1.tokens();
    dialog.reset().unwrap();
    assert!(dialog.history().is_empty() && spy.cache.lock().unwrap().is_empty());
    assert_eq!(ask(&mut dialog, &[1], Complete).1.tokens(), first);
    assert!(first.iter().any(|t| *t != first[0]), "{first:?}");
}

#[test]
fn kpis_count_what_happened() {
    let (model, _) = Fake::new(128, |_| 7);
    let mut dialog = greedy(context(), model);
    dialog.control().set_max_num_tokens(Some(5));
    let k = ask(&mut dialog, &[1, 2, 3], Complete).0.kpis;
    assert_eq!((k.n_prompt, k.n_generated), (4, 5));
    assert!(k.time_to_first_token.is_some() && k.prompt_rate() > Some(0.0) && k.generation_rate() > Some(0.0));
    ask(&mut dialog, &[9], Begin);
    let profile = dialog.profile().to_json();
    let events = profile["components"][0]["events"].as_array().unwrap().clone();
    let types: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["GenieDialog_query", "GenieDialog_query"]);
    assert_eq!(events[0]["num-generated-tokens"]["value"], 5);
    assert_eq!((&events[1]["num-prompt-tokens"]["value"], events[1].get("time-to-first-token")), (&json!(4), None));
    assert_eq!(dialog.profile().n_queries(), 2);
}

#[test]
fn a_dialog_is_made_from_a_config_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = json!({"dialog": {
        "version": 1, "type": "basic", "stop-sequence": ["!"], "max-num-tokens": 3,
        "context": {"version": 1, "size": 128, "n-vocab": 512, "bos-token": 256, "eos-token": 257},
        "sampler": {"version": 1, "greedy": true},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {"version": 1, "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {"version": 1, "use-mmap": true,
                "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false, "cpu-mask": ""}},
            "model": {"version": 1, "type": "binary", "binary": {"ctx-bins": ["model.bin"]}}}}});
    std::fs::write(dir.path().join("genie_config.json"), config.to_string()).unwrap();
    std::fs::write(dir.path().join("model.bin"), [7; 64]).unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), "not json").unwrap();
    let config = DialogConfig::from_file(dir.path().join("genie_config.json")).unwrap();
    let (model, _) = Fake::new(128, |_| 97);
    let err = Dialog::new(&config, model).unwrap_err().to_string();
    assert!(err.contains("tokenizer.json` is not a tokenizer that can be used: "), "{err}");
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer_json()).unwrap();
    let (model, _) = Fake::new(128, |cache| if cache.len() == 3 { 33 } else { 97 });
    let mut dialog = Dialog::new(&config, model).unwrap();
    let (reply, _) = say(&mut dialog, "x", Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("a", StopReason::StopSequence("!".into())));
    let (reply, _) = say(&mut dialog, "x", Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("aaa", StopReason::MaxTokens));
    let events = dialog.profile().to_json()["components"][0]["events"].clone();
    assert_eq!(events[0]["type"], "GenieDialog_create");
}

/// Anything a user may do.
#[derive(Clone, Debug)]
enum Act {
    Query { tokens: Vec<u32>, code: SentenceCode, text: bool, stop_after: Option<(usize, Signal)> },
    RewindTo { keep: usize, more: Vec<u32> },
    Limit(Option<usize>),
    Fail(u8),
    Reset,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let tokens = || prop::collection::vec(0u32..256, 0..6);
    let code = prop::sample::select(vec![Complete, Complete, Begin, Continue, End, Resume, Resume]);
    let signal = prop::option::of((1usize..6, prop::sample::select(vec![Signal::Abort, Signal::Pause])));
    let act = prop_oneof![
        8 => (tokens(), code, any::<bool>(), signal)
            .prop_map(|(tokens, code, text, stop_after)| Act::Query { tokens, code, text, stop_after }),
        2 => (0usize..40, tokens()).prop_map(|(keep, more)| Act::RewindTo { keep, more }),
        1 => prop::option::of(0usize..12).prop_map(Act::Limit),
        1 => (1u8..3).prop_map(Act::Fail),
        1 => Just(Act::Reset),
    ];
    prop::collection::vec(act, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The cache is always the beginning of the history, and at most the last token is missing from it.
    #[test]
    fn history_and_cache_agree_whatever_happens(acts in acts(), salt: u32) {
        let (model, spy) = Fake::new(60, move |cache| {
            let h = cache.iter().fold(salt, |h, t| (h ^ t).wrapping_mul(16_777_619).rotate_left(5));
            // Now and then EOS, EOT or a token of many letters; bytes otherwise.
            match h % 32 { 0 => 257, 1 => 300, 2 | 3 => 414, _ => h % 256 }
        });
        let context = ContextSettings { eot: Some(TokenId(300)), size: 64, ..context() };
        let mut dialog = greedy(context, model);
        dialog.set_stop_sequences(vec!["aa".into(), "414|>".into(), "ab\u{fffd}".into()]).unwrap();
        let control = dialog.control();
        control.set_max_num_tokens(Some(8));
        for act in acts {
            let before = raw(&dialog.history());
            let mut seen = Seen::default();
            let result = match act {
                Act::Query { tokens, code, text, stop_after } => {
                    let mut n = 0;
                    let callback = |c: dialog::Chunk<'_>| {
                        seen.take(c);
                        n += 1;
                        if let Some((after, signal)) = stop_after && n == after {
                            control.signal(signal);
                        }
                    };
                    let tokens = if code == Resume { vec![] } else { tokens };
                    if text {
                        let text: String = tokens.iter().map(|t| (b'a' + (*t % 26) as u8) as char).collect();
                        dialog.query(&text, code, callback)
                    } else {
                        dialog.token_query(&ids(tokens), code, callback)
                    }
                }
                Act::RewindTo { keep, more } => {
                    let list = [&before[..keep.min(before.len())], &more].concat();
                    dialog.token_query(&ids(list), Rewind, |c| seen.take(c))
                }
                Act::Limit(n) => { control.set_max_num_tokens(n); continue }
                Act::Fail(how) => { spy.fail.store(how, Ordering::Relaxed); continue }
                Act::Reset => { dialog.reset().unwrap(); continue }
            };
            let history = raw(&dialog.history());
            let n_past = dialog.n_past();
            prop_assert_eq!(&*spy.cache.lock().unwrap(), &history[..n_past]);
            prop_assert!(history.len() - n_past <= 1);
            prop_assert!(n_past <= 60);
            match result {
                Ok(reply) => {
                    prop_assert_eq!(seen.tokens(), raw(&reply.tokens));
                    prop_assert_eq!(seen.texts().concat(), reply.text);
                    let ended = seen.codes().last() == Some(&3);
                    prop_assert_eq!(ended, !matches!(reply.stop, StopReason::Paused | StopReason::Prefilled));
                    prop_assert_eq!(dialog.is_paused(), reply.stop == StopReason::Paused || (dialog.is_paused() && reply.stop == StopReason::Prefilled));
                }
                Err(DialogError::Overflow(_) | DialogError::Paused { .. } | DialogError::NotPaused) => {
                    prop_assert_eq!(history, before, "a refused query changes nothing");
                }
                Err(DialogError::Engine(_) | DialogError::Sampler(_) | DialogError::Empty) => {}
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}

#[test]
fn half_a_character_behind_a_match_is_no_text() {
    // Token 255 is a space and the first byte of a character.
    let mut json: serde_json::Value = serde_json::from_str(&common::tokenizer_json()).unwrap();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    vocab.retain(|_, id| id != 255);
    vocab.insert("\u{120}\u{e2}".into(), 255.into());
    let tokenizer = dialog::Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    let said: Vec<u32> = b"one\nUser:".iter().map(|byte| u32::from(*byte)).chain([255]).collect();
    let (model, _) = Fake::new(512, move |cache| said.get(cache.len() - 2).copied().unwrap_or(257));
    let settings = dialog::SamplerSettings::argmax();
    let mut dialog = dialog::Dialog::from_parts(ContextSettings { size: 512, ..context() }, settings, tokenizer, model);
    dialog.set_stop_sequences(vec!["\nUser: ".into()]).unwrap();
    let (reply, seen) = say(&mut dialog, "x", Complete);
    assert_eq!((reply.text.as_str(), reply.stop), ("one", StopReason::StopSequence("\nUser: ".into())));
    assert_eq!(seen.texts().concat(), "one");
}

/// What is surely too long is refused before it is tokenised, except where a full context goes on without its oldest tokens.
#[test]
fn a_long_text_is_no_fault_where_the_context_shifts() {
    let text = "ab".repeat(40_000);
    let refused = |model: Box<Fake>| {
        let mut dialog = greedy(context(), model);
        dialog.control().set_max_num_tokens(Some(1));
        dialog.query(&text, Complete, |_| ()).err().map(|error| error.to_string())
    };
    let error = refused(Fake::new(128, |_| 1).0).unwrap();
    assert!(error.contains("80000 bytes"), "{error}");
    assert_eq!(refused(Fake::shifting(128, |_| 1).0), None);
}

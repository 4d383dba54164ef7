//! The seam for dialog kinds: a kind that drafts several tokens and has them verified in one go replies as `basic` does.

use std::sync::{Arc, Mutex};

use dialog::config::ContextSettings;
use dialog::kinds::Basic;
use dialog::{
    Decoding, Dialog, DialogConfig, DialogError, DialogKind, SamplerSettings, SentenceCode, Signal, StopReason,
};
use genie_types::TokenId;
use serde_json::json;

use crate::common::{Call, Fake, Seen, context, ids, raw, tokenizer};

/// What the fake model wants next: letters, a pattern that long drafts can follow.
fn next(cache: &[u32]) -> u32 {
    97 + (cache.len() as u32 * 7 + cache.last().unwrap_or(&0)) % 26
}

/// Drafts what the model will want, wrong in every `wrong`th place.
struct Drafter {
    n: usize,
    wrong: usize,
    accepted: Arc<Mutex<Vec<usize>>>,
}

impl DialogKind for Drafter {
    fn name(&self) -> &'static str {
        "drafter"
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        if !decoding.has_started() {
            return decoding.advance();
        }
        let mut list = raw(&decoding.history());
        let draft: Vec<TokenId> = (0..self.n)
            .map(|_| {
                let wrong = list.len().is_multiple_of(self.wrong);
                list.push(if wrong { 1 } else { next(&list) });
                TokenId(list[list.len() - 1])
            })
            .collect();
        let verified = decoding.verify(&draft)?;
        self.accepted.lock().unwrap().push(verified.n_accepted);
        Ok(verified.stop)
    }
}

struct Case {
    name: &'static str,
    context: ContextSettings,
    sampler: SamplerSettings,
    stop_sequences: &'static [&'static str],
    max_tokens: Option<usize>,
    /// Pauses after that number of chunks, then resumes.
    pause: Option<usize>,
}

/// Two turns of a conversation: the replies, why they stop, what is kept.
fn converse(case: &Case, kind: Box<dyn DialogKind>) -> (Vec<String>, Vec<Call>, Seen) {
    let (model, spy) = Fake::new(case.context.size, next);
    let dialog = Dialog::from_parts(case.context.clone(), case.sampler.clone(), tokenizer(), model);
    let mut dialog = dialog.with_kind(kind);
    dialog.set_stop_sequences(case.stop_sequences.iter().map(|s| (*s).to_owned()).collect()).unwrap();
    let (mut log, mut seen, control) = (Vec::new(), Seen::default(), dialog.control());
    for turn in ["hello", "more"] {
        control.set_max_num_tokens(case.max_tokens);
        let (mut code, mut text, mut n_chunks) = (SentenceCode::Complete, turn, 0);
        let mut delivered = (Vec::new(), String::new());
        loop {
            let reply = dialog.query(text, code, |chunk| {
                n_chunks += 1;
                if case.pause == Some(n_chunks) {
                    control.signal(Signal::Pause);
                }
                seen.take(chunk);
            });
            let Ok(reply) = reply else { break log.push("refused".to_owned()) };
            // The token that is delivered again after a pause counts once.
            delivered.0.extend(raw(&reply.tokens).into_iter().skip(usize::from(code == SentenceCode::Resume)));
            if case.pause.is_none() {
                delivered.1.push_str(&reply.text);
            }
            if reply.stop != StopReason::Paused {
                break log.push(format!("{delivered:?} {}", reply.stop));
            }
            (code, text) = (SentenceCode::Resume, "");
        }
        log.push(format!("{:?} {}", raw(&dialog.history()), dialog.n_past()));
        let processed = raw(&dialog.history()[..dialog.n_past()]);
        let cache = spy.cache.lock().unwrap();
        assert_eq!(*cache, processed, "{}: history and cache agree", case.name);
    }
    (log, spy.take(), seen)
}

#[test]
fn a_verified_draft_is_the_reply_of_basic() {
    let base = || Case {
        name: "to the limit",
        context: context(),
        sampler: SamplerSettings::argmax(),
        stop_sequences: &[],
        max_tokens: Some(23),
        pause: None,
    };
    let hot = SamplerSettings::default().with_seed(Some(5)).with_top_k(3).with_temp(9.0).unwrap();
    let greedy = converse(&base(), Box::new(Basic));
    let text: String = greedy.2.texts().concat();
    let middle: &'static str = Box::leak(text[7..9].to_owned().into_boxed_str());
    let eos = ContextSettings { eos: ids([u32::from(text.as_bytes()[11])]), ..context() };
    let cases = [
        base(),
        Case { name: "one token", max_tokens: Some(1), ..base() },
        Case { name: "sampled", sampler: hot.clone(), ..base() },
        Case { name: "a stop sequence", stop_sequences: Box::leak(Box::new([middle])), ..base() },
        Case { name: "a stop sequence, sampled", stop_sequences: &["a", "k"], sampler: hot, ..base() },
        Case { name: "EOS", context: eos, ..base() },
        Case { name: "a full context", context: ContextSettings { size: 30, ..context() }, max_tokens: None, ..base() },
        Case {
            name: "a tight context",
            context: ContextSettings { size: 20, ..context() },
            max_tokens: None,
            ..base()
        },
    ];
    for case in &cases {
        let (plain, _, _) = converse(case, Box::new(Basic));
        for (n, wrong) in [(1, 99), (4, 99), (4, 3), (9, 5), (3, 1)] {
            let accepted = Arc::new(Mutex::new(Vec::new()));
            let kind = Drafter { n, wrong, accepted: accepted.clone() };
            let (drafted, _, seen) = converse(case, Box::new(kind));
            assert_eq!(drafted, plain, "{}, {n} tokens, every {wrong}th wrong", case.name);
            let most = accepted.lock().unwrap().iter().copied().max().unwrap_or(0);
            assert!(most <= n && (wrong > 1 || most == 0), "{}: {most} accepted", case.name);
            if (case.name, n, wrong) == ("to the limit", 4, 99) {
                assert_eq!(most, 4);
                assert!(seen.0.iter().all(|(_, tokens, _)| tokens.len() <= 1), "a chunk for each token");
            }
        }
    }
}

#[test]
fn a_draft_that_is_paused_goes_on() {
    let case = Case {
        name: "a pause",
        context: context(),
        sampler: SamplerSettings::argmax(),
        stop_sequences: &[],
        max_tokens: None,
        pause: Some(2),
    };
    let case = Case { context: ContextSettings { size: 40, ..case.context.clone() }, ..case };
    let plain = converse(&case, Box::new(Basic)).0;
    let kind = Drafter { n: 3, wrong: 4, accepted: Arc::default() };
    assert_eq!(converse(&case, Box::new(kind)).0, plain);
}

#[test]
fn the_config_names_the_kind() {
    let json = |kind: &str| {
        json!({"dialog": {
            "version": 1, "type": kind,
            "context": {"version": 1, "size": 128, "n-vocab": 512, "bos-token": 256, "eos-token": 257},
            "sampler": {"version": 1, "greedy": true},
            "tokenizer": {"version": 1, "path": "tokenizer.json"},
            "engine": {"version": 1, "n-threads": 0,
                "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {"version": 1, "use-mmap": true,
                    "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false, "cpu-mask": ""}},
                "model": {"version": 1, "type": "binary", "binary": {"ctx-bins": ["model.bin"]}}}}})
        .to_string()
    };
    let config = DialogConfig::from_json(&json("basic"), "/bundle").unwrap();
    let (model, _) = Fake::new(64, next);
    let dialog = Dialog::with_tokenizer(&config, tokenizer(), model).unwrap();
    assert!(format!("{dialog:?}").contains("basic"));
    let err = DialogConfig::from_json(&json("lookup"), "/bundle").unwrap_err().to_string();
    assert!(err.contains("lookup") && err.contains("basic"), "{err}");
    let err = DialogError::UnknownKind { kind: "lookup".into(), supported: vec!["basic"] }.to_string();
    assert_eq!(err, "dialog type `lookup` is not yet supported (this build runs `basic`)");
}

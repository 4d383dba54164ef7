//! The bundles of libGenie on Qualcomm's own library: the engine's tokens and graphs, against the recordings.
//!
//! Tokens must equal the recorded ones everywhere, also where the margin is small: the same library computes the same
//! graphs from the same inputs, bit for bit.

use conformance::backends::shared_htp;
use conformance::golden::{self, Case, Golden};
use dialog::{Dialog, DialogConfig, DialogError, SentenceCode};
use engine::{Engine, Policy};
use genie_types::TokenId;

/// Positions of the recorded bundles: their CL, and the `size` of their configs.
const SIZE: usize = 128;

fn open(golden: &Golden, policy: Policy, size: usize) -> Dialog {
    let config = DialogConfig::from_file(golden.dir.join("genie_config.json")).unwrap();
    let mut engine = config.engine().clone();
    (engine.policy, engine.context_size) = (policy, Some(size));
    // A recording's own config may ask for tensors in files.
    engine.dump = None;
    let engine = Engine::open(&engine, &shared_htp()).unwrap_or_else(|e| panic!("{}: {e}", golden.dir.display()));
    Dialog::new(&config, Box::new(engine)).unwrap()
}

/// What a query came to.
struct Answer {
    status: i32,
    tokens: Vec<u32>,
    executed: Vec<String>,
    error: Option<DialogError>,
}

fn ask(dialog: &mut Dialog, case: &Case, max_tokens: Option<usize>) -> Answer {
    dialog.reset().unwrap();
    dialog.control().set_max_num_tokens(max_tokens);
    let before = dialog.model().steps().len();
    let prompt: Vec<TokenId> = case.prompt.iter().copied().map(TokenId).collect();
    let mut tokens = Vec::new();
    let reply = dialog.token_query(&prompt, SentenceCode::Complete, |chunk| {
        tokens.extend(chunk.tokens.iter().map(|t| t.0));
    });
    let executed = dialog.model().steps().names().skip(before).map(str::to_owned).collect();
    match reply {
        Ok(reply) => {
            assert_eq!(reply.input.iter().map(|t| t.0).collect::<Vec<_>>(), case.with_bos, "{}", case.name);
            Answer { status: reply.stop.genie_status(), tokens, executed, error: None }
        }
        Err(error) => Answer { status: error.genie_status(), tokens, executed, error: Some(error) },
    }
}

/// Policy `genie`: tokens, graphs and status of every recorded query.
fn check_recordings(name: &str, n_cases: usize) {
    let golden = golden::bundle(name);
    assert_eq!(golden.cases.len(), n_cases);
    let mut dialog = open(&golden, Policy::Genie, SIZE);
    for case in &golden.cases {
        let answer = ask(&mut dialog, case, case.max_tokens);
        assert_eq!(answer.tokens, case.tokens, "{name}, {}", case.name);
        assert_eq!(answer.executed, case.executed, "{name}, {}", case.name);
        assert_eq!(answer.status, case.status, "{name}, {}: {:?}", case.name, answer.error);
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn float16_in_one_binary() {
    check_recordings("fp16_ar1_32_cl128", 21);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn float16_in_two_splits() {
    check_recordings("fp16_split2", 6);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn float16_with_a_scattered_cache() {
    check_recordings("fp16_scatter", 4);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn codes_of_8_and_16_bits() {
    check_recordings("w8a16", 7);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_default_policy_serves_what_libgenie_refuses() {
    let mut n_refused = 0;
    for name in ["fp16_ar1_32_cl128", "fp16_scatter", "w8a16"] {
        let golden = golden::bundle(name);
        let mut dialog = open(&golden, Policy::default(), SIZE);
        for case in golden.cases.iter().filter(|case| case.tokens.is_empty()) {
            let (what, n) = (format!("{name}, {}", case.name), case.with_bos.len());
            let answer = ask(&mut dialog, case, case.max_tokens);
            if n > SIZE {
                let error = answer.error.unwrap_or_else(|| panic!("{what} does not fit")).to_string();
                assert_eq!(error, format!("context limit exceeded: 0 past + {n} new tokens > {SIZE}"));
                assert_eq!((answer.status, answer.executed.len()), (4, 0), "{what}: nothing may run");
                continue;
            }
            // Every position is used, and the token after the last one is said as well.
            let n_left = SIZE - n + 1;
            assert_eq!(answer.tokens.len(), case.max_tokens.map_or(n_left, |max| max.min(n_left)), "{what}");
            assert_eq!(answer.tokens[0], case.reference[0], "{what}, margin {:?}", case.min_margin);
            assert_eq!(
                answer.executed[..case.executed.len()],
                case.executed,
                "{what}: the prompt takes the same graphs"
            );
            assert_eq!(answer.status, if answer.tokens.len() == n_left { 4 } else { 0 }, "{what}: {:?}", answer.error);
            n_refused += 1;
        }
        // A reply that libGenie ends at the limit has one token more here.
        let Some(case) = golden
            .cases
            .iter()
            .filter(|case| case.status == 4)
            .min_by_key(|case| if case.tokens.is_empty() { usize::MAX } else { case.tokens.len() })
        else {
            continue;
        };
        if !case.tokens.is_empty() {
            let answer = ask(&mut dialog, case, None);
            assert_eq!(answer.tokens[..case.tokens.len()], case.tokens);
            assert_eq!((answer.tokens.len(), answer.status), (case.tokens.len() + 1, 4), "{name}, {}", case.name);
        }
    }
    assert_eq!(n_refused, 8);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_context_below_the_graphs_ends_where_it_says() {
    // Measured: size - P + 1 tokens, then status 4; under both policies, since the graphs are longer than the context.
    const SMALL: usize = 100;
    let golden = golden::bundle("fp16_ar1_32_cl128");
    let case = golden.case("prompt96");
    for policy in [Policy::Genie, Policy::Lenient] {
        let name = policy.name();
        let answer = ask(&mut open(&golden, policy, SMALL), case, None);
        let n = SMALL - case.with_bos.len() + 1;
        assert_eq!((answer.tokens.len(), answer.status), (n, 4), "{name}");
        assert_eq!(answer.tokens, case.tokens[..n], "{name}");
        assert_eq!(answer.executed, case.executed[..4 + n - 1], "{name}");
    }
}

/// A recorded conversation of two turns: its name, the EOS tokens, the limit, the second turn's code and tokens.
type Turns = (&'static str, &'static [u32], Option<usize>, SentenceCode, &'static [u32]);

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn second_turns_say_what_was_recorded() {
    const NEXT: &[u32] = &[20, 21, 22];
    const CONVERSATIONS: [Turns; 7] = [
        ("max-stop then tokens", &[257], Some(6), SentenceCode::Complete, NEXT),
        ("eos-stop then tokens", &[414], None, SentenceCode::Complete, NEXT),
        ("eos list stop then tokens", &[257, 414], None, SentenceCode::Complete, NEXT),
        ("max-stop, reset, tokens", &[257], Some(6), SentenceCode::Complete, NEXT),
        ("max-stop then CONTINUE(END)", &[257], Some(6), SentenceCode::End, NEXT),
        ("max-stop then REWIND partial", &[257], Some(6), SentenceCode::Rewind, &[256, 94, 47, 33, 9, 10]),
        (
            "max-stop then REWIND to full+gen",
            &[257],
            Some(6),
            SentenceCode::Rewind,
            &[256, 94, 47, 33, 118, 46, 339, 53, 409, 53, 1, 2],
        ),
    ];
    let ids = |tokens: &[u32]| -> Vec<TokenId> { tokens.iter().copied().map(TokenId).collect() };
    let bundle = golden::bundle("fp16_ar1_32_cl128");
    let recorded = golden::json(&golden::folder().join("dialog_behaviour.json"));
    let mut config = golden::json(&bundle.dir.join("genie_config.json"));
    for (name, eos, max, code, tokens) in CONVERSATIONS {
        let case = &recorded["fp16_multi_turn"][name];
        config["dialog"]["context"]["eos-token"] = eos.into();
        let config = DialogConfig::from_json(&config.to_string(), &bundle.dir).unwrap();
        let engine = Engine::open(config.engine(), &shared_htp()).unwrap();
        let mut dialog = Dialog::new(&config, Box::new(engine)).unwrap();
        dialog.control().set_max_num_tokens(max);
        let say = |dialog: &mut Dialog, tokens: &[u32], code| -> Vec<u32> {
            let reply = dialog.token_query(&ids(tokens), code, |_| {}).unwrap_or_else(|e| panic!("{name}: {e}"));
            reply.tokens.iter().map(|t| t.0).collect()
        };
        let list = |key: &str| -> Vec<u32> {
            case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
        };
        assert_eq!(say(&mut dialog, &[94, 47, 33, 118, 46], SentenceCode::Complete), list("turn1"), "{name}");
        if name.contains("reset") {
            dialog.reset().unwrap();
        }
        assert_eq!(say(&mut dialog, tokens, code), list("turn2"), "{name}");
    }
}

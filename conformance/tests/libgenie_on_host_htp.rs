//! The real `libGenie.so` on our backend: `libqnn_host` stands where it looks for `libQnnHtp.so` and `libQnnSystem.so`.
//!
//! It must load what we compiled, by every way it knows of loading, and say what our engine says.

use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileOptions, Family, Precision, Silent, Splits, compile};
use conformance::backends;
use conformance::bundles::Bundle;
use conformance::genie::{self, Act, LogLevel, Sentence, Session, Stage};
use qnn_api::Backend;
use serde_json::{Value, json};

fn stage() -> Stage {
    Stage::new(&genie::library(), &backends::host_library()).expect("a folder for the libraries")
}

fn session(stage: &Stage, bundle: &Bundle, acts: Vec<Act>) -> Session {
    Session::greedy(stage.library(), bundle.dir().join(CONFIG_FILE), acts)
}

fn bundle(family: Family, choose: impl FnOnce(&mut CompileOptions)) -> (Bundle, Arc<Backend>) {
    let backend = backends::loaded();
    let bundle = Bundle::make(&TestModel::tiny(family), &backend, |options| {
        (options.ars, options.cls) = (vec![1, 32], vec![128]);
        choose(options);
    });
    (bundle, backend)
}

fn prompt(n: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 37 + 11) % 250).collect()
}

fn ask(tokens: Vec<u32>) -> Act {
    Act::Tokens(tokens, Sentence::Complete)
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn it_says_what_our_engine_says() {
    struct Case {
        family: Family,
        ars: &'static [u32],
        cls: &'static [u32],
        splits: Splits,
        layers_per_split: Option<usize>,
        precision: Precision,
        prompt: u32,
    }
    let case = |family, ars, cls, splits, layers_per_split, precision, prompt| Case {
        family,
        ars,
        cls,
        splits,
        layers_per_split,
        precision,
        prompt,
    };
    use Family::{Llama, Qwen2, Qwen3};
    use Precision::{F16, F32};
    use Splits::{DecoderLmhead, LutDecoderLmhead, Mono};
    let cases = [
        case(Llama, &[1, 32], &[128], Mono, None, F16, 5),
        case(Llama, &[1, 8, 32], &[128, 256], LutDecoderLmhead, Some(1), F32, 72),
        case(Qwen2, &[1, 8, 32], &[128, 256], DecoderLmhead, None, F16, 41),
        case(Qwen3, &[1, 32], &[128, 256], LutDecoderLmhead, None, F16, 33),
        case(Qwen3, &[1, 8, 32], &[256], Mono, None, F32, 1),
    ];
    let stage = stage();
    for c in cases {
        let name = format!("{} {} {} {:?} {:?}", c.family, c.splits, c.precision, c.ars, c.cls);
        let (bundle, backend) = bundle(c.family, |options| {
            (options.ars, options.cls) = (c.ars.to_vec(), c.cls.to_vec());
            (options.splits, options.layers_per_split, options.precision) = (c.splits, c.layers_per_split, c.precision);
        });
        let acts = vec![Act::MaxTokens(100), ask(prompt(c.prompt))];
        let session = Session { log: LogLevel::Verbose, ..session(&stage, &bundle, acts).endless() };
        let real = session.run().unwrap_or_else(|e| panic!("{name}: {e}"));
        let ours = session.play_ours(&backend).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(real.codes(), [0, 0], "{name}");
        assert_eq!(real.tokens().concat().len(), 100, "{name}");
        assert_eq!(real.tokens(), ours.tokens(), "{name}");
        let as_genie = session.play_as_genie(&backend).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(real.tokens(), as_genie.tokens(), "{name}");
        assert_eq!(real.executed(), as_genie.executed, "{name}: the graphs that ran");
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn it_loads_by_every_way_it_knows() {
    struct Case {
        name: &'static str,
        /// What is changed below `QnnHtp`.
        htp: Value,
        /// Backend extensions.
        extensions: Option<Value>,
        /// Lines of the calls that this way makes, each once at least.
        calls: &'static [&'static str],
    }
    let plain = |name, htp, calls| Case { name, htp, extensions: None, calls };
    let device = json!({ "devices": [{ "soc_model": 57, "dsp_arch": "v75",
        "cores": [{ "core_id": 0, "perf_profile": "burst", "rpc_control_latency": 100 }] }] });
    let cases = [
        plain("mapped", json!({}), &["QnnContext_createFromBinary"]),
        plain("read", json!({ "use-mmap": false }), &["QnnContext_createFromBinary"]),
        plain(
            "read with a budget",
            json!({ "mmap-budget": 25 }),
            &["QnnContext_createFromBinary [config 0: custom 3]"],
        ),
        plain(
            "shared spill buffer",
            json!({ "spill-fill-bufsize": 320_000_000 }),
            &["QnnContext_createFromBinary [config 0: custom 2]"],
        ),
        plain(
            "a list, with notifications",
            json!({ "allow-async-init": true }),
            &["QnnProperty_hasCapability key 212 -> ok", "QnnContext_createFromBinaryListAsync"],
        ),
        plain(
            "graph switching",
            json!({ "enable-graph-switching": true }),
            &["QnnContext_createFromBinary [config 6] [config 7]"],
        ),
        plain("polling", json!({ "poll": true }), &[]),
        plain("aligned", json!({ "data-alignment-size": 4096 }), &[]),
        Case {
            name: "backend extensions",
            htp: json!({}),
            extensions: Some(device),
            calls: &[
                "QnnBackend_getApiVersion -> ok",
                "QnnDevice_create [config 0: custom 1] [config 0: custom 0]",
                "QnnDevice_getInfrastructure -> ok",
                "createPowerConfigId -> ok",
                "setPowerConfig [power option 1]",
            ],
        },
    ];
    let stage = stage();
    let near = genie::library().with_file_name("libQnnHtpNetRunExtensions.so");
    stage.link(&near, "libQnnHtpNetRunExtensions.so").unwrap();
    let (bundle, backend) = bundle(Family::Llama, |options| options.splits = Splits::DecoderLmhead);
    let mut expected = None;
    for c in cases {
        let mut session = session(&stage, &bundle, vec![Act::MaxTokens(12), ask(prompt(40))]);
        let mut changes = json!({ "QnnHtp": c.htp });
        if let Some(extensions) = &c.extensions {
            std::fs::write(bundle.dir().join("extensions.json"), extensions.to_string()).unwrap();
            changes["extensions"] = "extensions.json".into();
        }
        session.changes["dialog"]["engine"]["backend"] = changes;
        let trace = bundle.dir().join("trace.txt");
        let _ = std::fs::remove_file(&trace);
        let real = session
            .run_with(&[("QNN_HOST_TRACE", trace.to_str().unwrap())])
            .unwrap_or_else(|e| panic!("{}: {e}", c.name));
        let expected = expected.get_or_insert_with(|| session.play_ours(&backend).unwrap().tokens()[0].to_vec());
        assert_eq!(real.tokens(), [&expected[..]], "{}", c.name);
        let trace = std::fs::read_to_string(&trace).unwrap();
        for call in c.calls {
            assert!(trace.lines().any(|line| line.starts_with(call)), "{}: no `{call}` in\n{trace}", c.name);
        }
        // It gives a vote back before it has one, and goes on.
        let expected = |line: &&str| line.contains("-> ok") || line.starts_with("destroyPowerConfigId -> 13001");
        let refused: Vec<_> = trace.lines().filter(|line| !expected(line)).collect();
        assert!(refused.is_empty(), "{}: refused {refused:?}", c.name);
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn text_comes_in_the_same_pieces() {
    let (stage, backend, folder) = (stage(), backends::loaded(), tempfile::tempdir().unwrap());
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let (ars, cls) = (vec![1, 32], vec![128]);
    let options = CompileOptions { ars, cls, ..CompileOptions::new(model, folder.path().join("bundle")) };
    compile(&options, &backend, &mut Silent).unwrap();
    let acts = vec![Act::MaxTokens(40), Act::Text("ROMEO:".into(), Sentence::Complete)];
    let session = Session::greedy(stage.library(), folder.path().join("bundle").join(CONFIG_FILE), acts);
    let (real, ours) = (session.run().unwrap(), session.play_ours(&backend).unwrap());
    let (real, ours) = (&real.outcome.replies[1], &ours.replies[1]);
    assert!(ours.text.len() > 60, "{}", ours.text);
    assert_eq!((&real.text, &real.calls), (&ours.text, &ours.calls));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn its_codes_and_turns_are_ours() {
    let stage = stage();
    let (bundle, backend) = bundle(Family::Llama, |_| ());
    let turns = |acts| session(&stage, &bundle, acts);
    // Turn after turn, the last unprocessed token, EOS and BOS between them; then from nothing.
    let several = turns(vec![
        Act::MaxTokens(6),
        ask(prompt(7)),
        ask(prompt(3)),
        Act::Tokens(prompt(4), Sentence::Begin),
        Act::Tokens(prompt(2), Sentence::End),
        Act::Reset,
        ask(prompt(7)),
    ]);
    let real = several.run().unwrap();
    let ours = several.play_ours(&backend).unwrap();
    assert_eq!(real.tokens(), ours.tokens());
    assert_eq!(real.codes(), ours.replies.iter().map(|r| r.code).collect::<Vec<_>>());
    assert_eq!(real.tokens()[0], real.tokens()[3], "a reset forgets everything");
    for (i, (real, ours)) in real.outcome.replies.iter().zip(&ours.replies).enumerate() {
        assert_eq!(real.calls, ours.calls, "calls of the callback in act {i}");
    }

    // At the end of the context both stop with 4; ours also hands out the token of the last execution.
    let full = turns(vec![ask(prompt(20))]);
    let (real, ours) = (full.run().unwrap(), full.play_ours(&backend).unwrap());
    let (real, ours) = (&real.outcome.replies[0], &ours.replies[0]);
    assert_eq!((real.code, ours.code), (4, 4));
    assert_eq!((real.tokens.len(), ours.tokens.len()), (128 - 21, 128 - 21 + 1));
    assert_eq!(real.tokens, ours.tokens[..real.tokens.len()]);

    // More than fits: nothing runs.
    let over = turns(vec![ask(prompt(128))]);
    let (real, ours) = (over.run().unwrap(), over.play_ours(&backend).unwrap());
    assert_eq!((real.outcome.replies[0].code, ours.replies[0].code), (4, 4));
    assert!(real.tokens().is_empty() && ours.tokens().is_empty() && ours.executed.is_empty());
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_saved_session_moves_over_and_back() {
    let stage = stage();
    // The second has both of its splits in one file.
    let cases = [
        (Family::Llama, Splits::Mono),
        (Family::Qwen2, Splits::DecoderLmhead),
        (Family::Qwen3, Splits::LutDecoderLmhead),
    ];
    for (family, splits) in cases {
        let (bundle, backend) = bundle(family, |options| {
            (options.splits, options.one_file) = (splits, splits == Splits::DecoderLmhead);
        });
        let folder = |name: &str| bundle.dir().join(name);
        let begin = |to| vec![Act::MaxTokens(9), ask(prompt(21)), Act::Save(to)];
        let go_on = |from| vec![Act::MaxTokens(12), Act::Restore(from), ask(prompt(5))];
        // The token that ends a reply stands between two turns, so it must be a real one here.
        let play = |acts| session(&stage, &bundle, acts);

        let by_real = play(begin(folder("by_real"))).run().unwrap();
        let by_ours = play(begin(folder("by_ours"))).play_ours(&backend).unwrap();
        assert_eq!((by_real.codes(), by_real.tokens()), (vec![0, 0, 0], by_ours.tokens()), "{family}");
        // Only Genie's own files, so that ours cannot take its own snapshot instead.
        std::fs::remove_file(folder("by_ours").join("open-genie.kvs")).unwrap();

        let stayed = play(go_on(folder("by_real"))).run().unwrap();
        let came = play(go_on(folder("by_real"))).play_ours(&backend).unwrap();
        let went = play(go_on(folder("by_ours"))).run().unwrap();
        assert_eq!(stayed.codes(), [0, 0, 0], "{family}");
        assert!(stayed.tokens().concat().len() > 4, "{family}: {:?}", stayed.tokens());
        assert_eq!(came.tokens(), stayed.tokens(), "{family}: saved by libGenie, taken up by ours");
        assert_eq!(went.codes(), [0, 0, 0], "{family}");
        assert_eq!(went.tokens(), stayed.tokens(), "{family}: saved by ours, taken up by libGenie");
    }
}

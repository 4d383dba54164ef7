//! The real `libGenie.so` and our engine on the same `libQnnHtp.so`: recorded bundles, and bundles that we compile.
//!
//! Each dialog has a process of its own; the two of a pair run side by side.

use std::path::Path;

use compiler::CONFIG_FILE;
use conformance::genie::{self, Act, Player, Run, Sentence, Session};
use conformance::{backends, compiled, golden};
use qnn_api::library::runtime;

/// A smaller distance of the two largest logits may flip between float16 and float32 sums.
const MARGIN: f32 = 0.15;

/// The session played by libGenie and by ours, on Qualcomm's library.
fn both(real: &Session) -> (Run, Run) {
    let backend = runtime::find(runtime::HTP).expect("the emulator lies beside libGenie.so");
    let ours = Session { player: Player::Ours { backend }, ..real.clone() };
    std::thread::scope(|scope| {
        let ours = scope.spawn(move || ours.run());
        let real = real.run().unwrap_or_else(|e| panic!("libGenie: {e}"));
        (real, ours.join().expect("no panic").unwrap_or_else(|e| panic!("ours: {e}")))
    })
}

fn ask(prompt: Vec<u32>, n: u32) -> Vec<Act> {
    vec![Act::MaxTokens(n), Act::Tokens(prompt, Sentence::Complete)]
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_harness_returns_what_was_recorded() {
    for (name, case) in [("fp16_ar1_32_cl128", "prompt5"), ("fp16_split2", "prompt5"), ("w8a16", "prompt5")] {
        let bundle = golden::bundle(name);
        let case = bundle.case(case);
        let n = case.tokens.len().min(16);
        let session =
            Session::greedy(genie::library(), bundle.dir.join(CONFIG_FILE), ask(case.prompt.clone(), n as u32));
        let (real, ours) = both(&session);
        assert_eq!(real.tokens(), [&case.tokens[..n]], "{name}: libGenie against its recording");
        assert_eq!(ours.tokens(), [&case.tokens[..n]], "{name}: ours against the recording");
        assert!(real.outcome.version >= [1, 13, 0], "{:?}", real.outcome.version);
        assert_eq!(real.outcome.profile["header"]["artifact_type"], "GENIE_PROFILE");
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn bundles_of_ours_say_the_same_in_both() {
    for case in compiled::CASES {
        let name = case.name;
        let folder = tempfile::tempdir().unwrap();
        case.make_htp(&folder.path().join("htp"));
        let prompt: Vec<u32> = case.prompt().iter().map(|token| token.0).collect();
        let acts = ask(prompt, compiled::N_TOKENS as u32);
        let session = Session::greedy(genie::library(), config(&folder.path().join("htp")), acts).endless();
        let (real, ours) = both(&session);
        let (real, ours) = (real.tokens().concat(), ours.tokens().concat());
        assert_eq!(real.len(), compiled::N_TOKENS, "{name}");
        if let Some(at) = first_difference(&real, &ours) {
            panic!("{name}: token {at} is {:?} of libGenie, {:?} of ours", real.get(at), ours.get(at));
        }

        // The same model on our own backend: sums are rounded elsewhere, so close calls may fall otherwise.
        let host = backends::linked();
        case.make(&folder.path().join("host"), &host, None);
        let session = Session { config: config(&folder.path().join("host")), ..session };
        let said = session.play_ours(&host).unwrap().tokens().concat();
        if let Some(at) = first_difference(&real, &said) {
            let input = case.input().iter().map(|token| token.0).chain(real[..at].iter().copied()).collect::<Vec<_>>();
            let margin = session.margin(&host, &input).unwrap();
            eprintln!("{name}: host and HTP part at token {at}, margin {margin:.3}");
            assert!(margin < MARGIN, "{name}: host and HTP part at token {at} with a margin of {margin:.3}");
        }
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_session_with_an_8_bit_cache_moves_over_and_back() {
    let bundle = golden::bundle("w8a16");
    let (prompt, folder) = (bundle.case("prompt5").prompt.clone(), tempfile::tempdir().unwrap());
    let [by_real, by_ours] = ["by_real", "by_ours"].map(|name| folder.path().join(name));
    let backend = runtime::find(runtime::HTP).expect("the emulator lies beside libGenie.so");
    let play = |player: &Player, acts| {
        let real = Session::greedy(genie::library(), bundle.dir.join(CONFIG_FILE), acts);
        Session { player: player.clone(), ..real }.run().unwrap_or_else(|e| panic!("{player:?}: {e}"))
    };
    let (real, ours) = (Player::Real, Player::Ours { backend });
    let begin = |to: &Path| [ask(prompt.clone(), 6), vec![Act::Save(to.to_owned())]].concat();
    let go_on = |from: &Path| [vec![Act::Restore(from.to_owned())], ask(vec![20, 21, 22], 8)].concat();

    assert_eq!(play(&real, begin(&by_real)).tokens(), play(&ours, begin(&by_ours)).tokens());
    // Only Genie's own files, so that ours could not take its own snapshot instead.
    std::fs::remove_file(by_ours.join("open-genie.kvs")).unwrap();
    let stayed = play(&real, go_on(&by_real));
    assert!(stayed.codes() == [0, 0, 0] && stayed.tokens().concat().len() > 4, "{:?}", stayed.outcome);
    for (player, from) in [(&ours, &by_real), (&real, &by_ours), (&ours, &by_ours)] {
        let came = play(player, go_on(from));
        assert_eq!(came.tokens(), stayed.tokens(), "{player:?} from `{}`", from.display());
    }
}

fn config(folder: &Path) -> std::path::PathBuf {
    folder.join("bundle").join(CONFIG_FILE)
}

fn first_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i))
}

//! Dialogs of type `eaglet`, from the command line and the library's front door: what cannot be one is refused by name; on
//! Qualcomm's library replies are those of the target alone, to the context's edge, over turns, saved and restored dialogs,
//! rewinds and resets.

use std::path::Path;

use open_genie::{BackendChoice, Options, SentenceCode, Session, Speculation};
use serde_json::{Value, json};

use crate::program::with_cache as run;
use crate::recordings;

#[test]
fn models_without_hidden_states_are_refused() {
    let cache = tempfile::tempdir().unwrap();
    assert!(run(cache.path(), &["run", "--prompt", "x", "-n", "1"]).status.success());
    let mut found = std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
    let demo = found.find(|path| path.join("genie_config.json").is_file()).expect("the demo's bundle");
    let itself = format!("eaglet:{}", demo.display());
    for (spec, wanted) in [
        (itself.as_str(), "a target whose graphs all have an output `last_hidden_states`"),
        ("eaglet:/nowhere/at/all", "cannot open the `draft` model"),
        ("eaglet", "`eaglet:BUNDLE`"),
    ] {
        let output = run(cache.path(), &["run", "--prompt", "x", "--spec", spec]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(wanted), "{spec}: {said}");
    }
}

/// The recorded config of a case, its paths absolute, changed, in a folder of its own.
fn bundle(change: impl Fn(&mut serde_json::Map<String, Value>)) -> tempfile::TempDir {
    let text = std::fs::read_to_string(recordings::folder().join("dialogs").join("eaglet.json")).unwrap();
    let mut config = serde_json::from_str::<Value>(&text).unwrap()["cases"][0]["config"].clone();
    let dialog = config["dialog"].as_object_mut().unwrap();
    dialog.remove("max-num-tokens");
    change(dialog);
    recordings::bundle(&config)
}

/// One of the two models by itself.
fn alone(role: &'static str) -> tempfile::TempDir {
    bundle(|dialog| {
        dialog.remove("eaglet");
        dialog.insert("type".into(), "basic".into());
        let engines = dialog["engine"].as_array().unwrap();
        let mut one = engines.iter().find(|e| e["role"] == role).unwrap().clone();
        one.as_object_mut().unwrap().remove("role");
        dialog.insert("engine".into(), one);
    })
}

/// Everything that a caller sees.
fn live(session: &mut Session, open_again: &dyn Fn() -> Session) -> Vec<(Vec<u32>, String, usize)> {
    let mut seen = Vec::new();
    let mut ask = |session: &mut Session, text: &str, code, most: Option<usize>| {
        session.dialog_mut().control().set_max_num_tokens(most);
        let reply = session.dialog_mut().query(text, code, |_| ()).unwrap();
        let tokens = reply.tokens.iter().map(|token| token.0).collect();
        seen.push((tokens, reply.stop.to_string(), session.dialog_mut().n_past()));
    };
    ask(session, "\u{5}\u{6}\u{7}\u{8}\t", SentenceCode::Complete, Some(21));
    let folder = tempfile::tempdir().unwrap();
    session.dialog_mut().save(folder.path()).unwrap();
    let mut other = open_again();
    other.dialog_mut().restore(folder.path()).unwrap();
    for session in [session, &mut other] {
        ask(session, "ab", SentenceCode::Complete, Some(17));
        ask(session, "\u{5}\u{6}\u{7}\u{8}\tx", SentenceCode::Rewind, Some(9));
        // Until the context is full.
        ask(session, "c", SentenceCode::Complete, None);
        session.dialog_mut().reset().unwrap();
        ask(session, "\u{5}\u{6}", SentenceCode::Complete, None);
    }
    seen
}

#[test]
#[ignore = "needs libQnnHtp.so and the recordings"]
fn replies_on_the_htp_library_are_those_of_the_target_alone() {
    let (target, draft) = (alone("target"), alone("draft"));
    let of_config = bundle(|dialog| {
        dialog.insert("max-num-tokens".into(), json!(1_000));
    });
    let options = || Options::new().backend(BackendChoice::Htp);
    let spec: Speculation = format!("eaglet:{}", draft.path().display()).parse().unwrap();
    let all = |path: &Path, options: &dyn Fn() -> Options| {
        let open = || Session::open(path, &options()).unwrap();
        live(&mut open(), &open)
    };
    let plain = all(target.path(), &options);
    assert_eq!(all(of_config.path(), &options), plain, "by the config");
    assert_eq!(all(target.path(), &|| options().speculation(spec.clone())), plain, "by `--spec`");
    // The draft's ids by a file: those of the target, in the same order.
    let map = bundle(|dialog| {
        let ids = dialog["context"]["n-vocab"].as_u64().unwrap();
        let file = std::env::temp_dir().join(format!("eaglet-map-{}.json", std::process::id()));
        std::fs::write(&file, json!((0..ids).collect::<Vec<_>>()).to_string()).unwrap();
        for engine in dialog["engine"].as_array_mut().unwrap() {
            engine["model"]["draft-token-map"] = json!(file.display().to_string());
        }
    });
    assert_eq!(all(map.path(), &options), plain, "with a vocabulary of the draft's");
    std::fs::remove_file(std::env::temp_dir().join(format!("eaglet-map-{}.json", std::process::id()))).unwrap();
}

//! `genie run --spec` on the demo model: the reply stays the same, what became of the drafts is printed, wrong values are named.

use std::process::Output;

use serde_json::Value;

use crate::program::{stderr, with_cache as run};

fn record(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

#[test]
fn a_reply_with_drafts_is_the_reply_without() {
    let cache = tempfile::tempdir().unwrap();
    let words = ["run", "--prompt", "ROMEO: ROMEO: ROMEO:", "-n", "60", "--greedy", "--json"];
    let ask = |more: &[&str]| record(&run(cache.path(), &[&words[..], more].concat()));
    let plain = ask(&[]);
    assert_eq!((plain.get("speculation"), plain.get("executed_second")), (None, None));
    // The demo drafts for itself: every token is accepted.
    let mut demo = std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
    let demo = demo.find(|path| path.join("genie_config.json").is_file()).expect("the demo's bundle");
    let itself = format!("draft:{}", demo.display());
    for more in
        [&["--spec", "lookup"][..], &["--spec", "lookup", "--draft-len", "3", "--ngram", "2"], &["--spec", &itself]]
    {
        let reply = ask(more);
        for key in ["tokens", "text", "stop"] {
            assert_eq!(reply[key], plain[key], "{more:?}");
        }
        let (counts, n) = (&reply["speculation"], |key: &str| reply["speculation"][key].as_u64().unwrap());
        assert!(n("rounds") > 0 && n("accepted") <= n("drafted"), "{more:?}: {counts}");
        if more.contains(&itself.as_str()) {
            assert_eq!(n("accepted"), n("drafted"), "{counts}");
            assert!(reply["kpis"]["token-acceptance-rate"].as_f64().unwrap() > 4.0, "{}", reply["kpis"]);
            assert!(!reply["executed_second"].as_array().unwrap().is_empty());
            // 59 tokens after the first, 5 a round; fewer rounds where drafts cost more time than they save.
            assert!(n("rounds") <= 12, "{counts}");
        }
    }
    // Sampled replies of prompt lookup have the draws of plain ones.
    let sampled =
        ["run", "--prompt", "ROMEO: ROMEO:", "-n", "40", "--temp", "1", "--top-k", "20", "--seed", "3", "--json"];
    let [a, b] =
        [&[][..], &["--spec", "lookup"]].map(|more| record(&run(cache.path(), &[&sampled[..], more].concat())));
    assert_eq!(a["tokens"], b["tokens"]);
    // What became of the drafts, for people.
    let shown = run(cache.path(), &["run", "--prompt", "ROMEO:", "-n", "8", "--greedy", "--stats", "--spec", &itself]);
    assert!(
        stderr(&shown).contains("drafts ") && stderr(&shown).contains("tokens accepted (100 %)"),
        "{}",
        stderr(&shown)
    );
}

#[test]
fn values_that_cannot_be_used_are_named() {
    let cache = tempfile::tempdir().unwrap();
    for (args, wanted) in [
        (&["--spec", "oracle"][..], "a speculation `oracle` is not known"),
        (&["--spec", "draft:"], "`draft:BUNDLE`"),
        (&["--draft-len", "3"], "--spec"),
        (&["--spec", "lookup", "--draft-len", "0"], "--draft-len"),
        (&["--spec", "draft:/nowhere/at/all"], "cannot open the `draft` model"),
    ] {
        let output = run(cache.path(), &[&["run", "--prompt", "x"], args].concat());
        assert_ne!(output.status.code(), Some(0), "{args:?}");
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
    }
}

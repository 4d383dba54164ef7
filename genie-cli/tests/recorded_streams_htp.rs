//! Streams with Qualcomm's library: texts, callback codes, graphs and counts that libGenie was recorded to give, turn by turn.

use open_genie::{Options, PolicyChoice, SentenceCode, Session, TokenId};
use serde_json::Value;

use crate::recordings;

/// Graphs in the order they ran, with how often in a row.
fn graphs(executions: &Value) -> Vec<(String, usize)> {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for execution in executions.as_array().into_iter().flatten() {
        let name = execution["graph"].as_str().unwrap().rsplit(':').next().unwrap();
        match runs.last_mut() {
            Some((last, n)) if last == name => *n += 1,
            _ => runs.push((name.to_owned(), 1)),
        }
    }
    runs
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_recorded_stream_is_repeated() {
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(recordings::folder().join("dialogs").join("multistream.json")).unwrap())
            .unwrap();
    let here = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(recordings::folder().join("dialogs").join("models"), here.path().join("models"))
        .unwrap();
    let mut n_cases = 0;
    for case in recorded["cases"].as_array().unwrap() {
        if case["matches_a_correct_engine"] != true {
            continue;
        }
        n_cases += 1;
        let name = case["name"].as_str().unwrap();
        let config = here.path().join(format!("{name}.json"));
        std::fs::write(&config, case["config"].to_string()).unwrap();
        let mut session = Session::open(&config, &Options::new().policy(PolicyChoice::Genie)).unwrap();
        let (mut ran, mut counts) = (Vec::new(), Vec::new());
        for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let what = format!("{name}, step {number}");
            let (mut texts, mut codes) = (Vec::new(), Vec::new());
            let kind = step["step"][0].as_str().unwrap();
            if kind == "reset" {
                session.reset().unwrap();
                continue;
            }
            let dialog = session.dialog_mut();
            let each = |text: &str, code: SentenceCode| {
                texts.push(text.to_owned());
                codes.push(code.number());
            };
            let mut each = each;
            let done = if kind == "tokens" {
                let tokens: Vec<TokenId> =
                    step["step"][1].as_array().unwrap().iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect();
                dialog.token_query(&tokens, SentenceCode::Complete, |chunk| each(chunk.text, chunk.code))
            } else {
                let text = step["step"][1].as_str().unwrap();
                dialog.query(text, SentenceCode::Complete, |chunk| each(chunk.text, chunk.code))
            };
            let status = match &done {
                Ok(reply) => reply.stop.genie_status(),
                Err(error) => error.genie_status(),
            };
            assert_eq!(i64::from(status), step["rc"].as_i64().unwrap(), "{what}: {done:?}");
            assert_eq!(serde_json::json!(codes), step["codes"], "{what}");
            if step["text"].is_array() {
                assert_eq!(serde_json::json!(texts), step["text"], "{what}");
            }
            if let Ok(reply) = done {
                counts.push((reply.kpis.n_prompt, reply.kpis.n_generated));
            }
            ran.extend(step["executions"].as_array().into_iter().flatten().cloned());
        }
        let found: Vec<(String, usize)> =
            session.steps().runs().into_iter().map(|(graph, n)| (graph.to_string(), n)).collect();
        assert_eq!(found, graphs(&Value::Array(ran)), "{name}");
        let queries = case["profile"].as_array().unwrap().iter().filter(|e| e["num-prompt-tokens"].is_u64());
        for (event, (n_prompt, n_generated)) in queries.zip(counts) {
            assert_eq!(event["num-prompt-tokens"], n_prompt, "{name}");
            assert_eq!(event["num-generated-tokens"], n_generated, "{name}");
        }
    }
    assert!(n_cases >= 7, "{n_cases}");
}

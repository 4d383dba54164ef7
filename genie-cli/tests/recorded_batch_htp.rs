//! Batch queries with Qualcomm's library: what libGenie was recorded to give, for bundles with and without a batch dimension.

use open_genie::{Options, PolicyChoice, SentenceCode, Session};
use serde_json::Value;

use crate::recordings;

/// The prompts of a recorded call: `A=['..', '..']; CODE=0`, plain characters and `\xNN`.
fn prompts(call: &str) -> Vec<String> {
    let list = call.split("A=[").nth(1).unwrap().split("];").next().unwrap();
    let texts = list.split('\'').skip(1).step_by(2);
    let unescape = |text: &str| {
        let mut parts = text.split("\\x");
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |all, part| {
            all + &char::from(u8::from_str_radix(&part[..2], 16).unwrap()).to_string() + &part[2..]
        })
    };
    texts.map(unescape).collect()
}

/// `CODE=1`.
fn code(step: &Value) -> SentenceCode {
    let call = step["step"][1].as_str().unwrap();
    let number = call.split("CODE=").nth(1).unwrap().split_whitespace().next().unwrap();
    SentenceCode::from_number(number.parse().unwrap()).unwrap()
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn recorded_batches_are_repeated() {
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(recordings::folder().join("dialogs").join("batch.json")).unwrap())
            .unwrap();
    let here = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(recordings::folder().join("dialogs").join("models"), here.path().join("models"))
        .unwrap();
    let mut n_cases = 0;
    for case in recorded["cases"].as_array().unwrap() {
        let dialog = &case["config"]["dialog"];
        assert_eq!(dialog["type"], "basic");
        n_cases += 1;
        let name = case["name"].as_str().unwrap();
        let config = here.path().join(format!("{name}.json"));
        std::fs::write(&config, case["config"].to_string()).unwrap();
        let mut session = Session::open(&config, &Options::new().policy(PolicyChoice::Genie)).unwrap();
        let mut seen = 0;
        for step in case["steps"].as_array().unwrap() {
            let texts = prompts(step["step"][1].as_str().unwrap());
            let mut out: Vec<Vec<(String, u32)>> = vec![Vec::new(); texts.len()];
            let generation = session.dialog_mut().start_batch(&texts, code(step)).unwrap();
            let reply = generation.run(|c| out[c.stream].push((c.text.to_owned(), c.code.number()))).unwrap();
            assert_eq!(i64::from(reply.stop.genie_status()), step["rc"].as_i64().unwrap(), "{name}");
            let wanted: Vec<Vec<(String, u32)>> = serde_json::from_value(step["out"].clone()).unwrap();
            assert_eq!(out, wanted, "{name}");
            let ran: Vec<&str> =
                step["executions"].as_array().unwrap().iter().map(|e| e["graph"].as_str().unwrap()).collect();
            let found = session.steps().names().skip(seen).map(|graph| format!("c0:{graph}"));
            assert_eq!(found.collect::<Vec<_>>(), ran, "{name}");
            seen = session.steps().len();
        }
    }
    assert!(n_cases >= 6);
}

//! Dialogs of type `spd` with Qualcomm's library: what libGenie was recorded to say, under policy `genie`.
//!
//! libGenie moves rows of its cache wrongly after a round with a rejected token. A recording shows it: a row that was computed at
//! one position is attended in another one's slot. From there on its replies are not those of the model, and ours are held
//! against `basic` alone.

use open_genie::{BackendChoice, Options, PolicyChoice, SentenceCode, Session};
use serde_json::{Value, json};

use crate::program::with_users_cache;
use crate::recordings::{self, bundle};

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(recordings::folder().join("dialogs").join("spd.json")).unwrap();
    let cases = serde_json::from_str::<Value>(&text).unwrap()["cases"].as_array().unwrap().clone();
    cases.into_iter().filter(|case| case["config"]["dialog"]["type"] == "spd").collect()
}

fn open(config: &Value, policy: PolicyChoice) -> Session {
    let folder = bundle(config);
    Session::open(folder.path(), &Options::new().backend(BackendChoice::Htp).policy(policy)).unwrap()
}

/// The same dialog on the target alone.
fn as_basic(config: &Value) -> Value {
    let mut config = config.clone();
    let dialog = config["dialog"].as_object_mut().unwrap();
    dialog.remove("spd");
    dialog.insert("type".into(), "basic".into());
    let engines = dialog["engine"].as_array().unwrap();
    let mut target = engines.iter().find(|e| e["role"] == "target").unwrap().clone();
    target.as_object_mut().unwrap().remove("role");
    dialog.insert("engine".into(), target);
    config
}

/// What one query came to: callback codes and texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    codes: Vec<u32>,
    texts: Vec<String>,
}

fn ask(session: &mut Session, step: &Value) -> Said {
    let code = match step[2].as_u64() {
        Some(1) => SentenceCode::Begin,
        Some(2) => SentenceCode::Continue,
        Some(3) => SentenceCode::End,
        _ => SentenceCode::Complete,
    };
    let mut said = Said::default();
    let dialog = session.dialog_mut();
    let asked = dialog.query(step[1].as_str().unwrap(), code, |chunk| {
        said.codes.push(chunk.code.number());
        said.texts.push(chunk.text.to_owned());
    });
    asked.unwrap();
    said
}

/// Graphs that ran since the last look, of the first engine in the config and of the second.
fn executed(session: &Session, draft_first: bool, seen: &mut [usize; 2]) -> [Vec<String>; 2] {
    let logs = [session.steps(), session.second_steps().unwrap()];
    let mut new = [0, 1].map(|i| {
        let names = logs[i].names().skip(seen[i]).map(str::to_owned).collect();
        seen[i] = logs[i].len();
        names
    });
    if draft_first {
        new.reverse();
    }
    new
}

/// Slots of an execution with the place of the row that each holds: `0.0-5 2.0 13.3` and so on; `None` where one came from
/// nowhere or from another dialog.
fn slots(execution: &Value) -> Option<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    for part in execution["cache"].as_str().unwrap().split_whitespace() {
        let (n, rows) = part.split_once('.')?;
        let (first, last) = rows.split_once('-').unwrap_or((rows, rows));
        let (n, first, last) = (n.parse().ok()?, first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        all.extend((first..=last).map(|row| (n, row)));
    }
    Some(all)
}

/// Whether every row that an execution attends to lies in the slot of its own position.
fn is_intact(all: &[Value], execution: &Value) -> bool {
    let row_of = |(n, row): (u64, u64)| all.iter().find(|e| e["n"] == n)?["pos"][row as usize].as_u64();
    slots(execution)
        .is_some_and(|slots| slots.into_iter().enumerate().all(|(slot, origin)| row_of(origin) == Some(slot as u64)))
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_recording_of_spd_is_repeated_until_libgenies_cache_is_wrong() {
    let (mut n_whole, mut n_parts) = (0, 0);
    for case in cases() {
        let config = &case["config"];
        let draft_first = config["dialog"]["engine"][0]["role"] == "draft";
        let (mut session, saved) = (open(config, PolicyChoice::Genie), tempfile::tempdir().unwrap());
        let all: Vec<Value> = case["steps"].as_array().unwrap().iter().flat_map(|s| executions(s).clone()).collect();
        let (mut seen, mut intact) = ([0, 0], true);
        for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let what = format!("{}, step {i}", case["name"]);
            match step["step"][0].as_str().unwrap() {
                "query" => {}
                "save" => {
                    session.save(saved.path()).unwrap();
                    continue;
                }
                // A dialog that another case has saved: after it nothing is known of the caches.
                _ => break,
            }
            let said = ask(&mut session, &step["step"]);
            let wanted = Said { codes: numbers(&step["codes"]), texts: texts(&step["text"]) };
            let target = if draft_first { "c1:" } else { "c0:" };
            let is_targets = |e: &&Value| e["graph"].as_str().unwrap().starts_with(target);
            let right = executions(step).iter().filter(is_targets).take_while(|e| is_intact(&all, e)).count();
            intact &= right == executions(step).iter().filter(is_targets).count();
            if !intact {
                // The rounds before are right; the log says how many tokens they gave, the first token came before them.
                let rounds = texts(&step["log"]);
                let given = |line: &&String| line.contains("n_accepted");
                let n: usize =
                    rounds.iter().filter(given).take(right.saturating_sub(1)).map(|line| accepted(line)).sum();
                assert_eq!(said.texts.get(..n + 1), wanted.texts.get(..n + 1), "{what}: {n} tokens after the first");
                n_parts += 1;
                break;
            }
            assert_eq!(said, wanted, "{what}");
            let graphs = ["c0:", "c1:"].map(|engine| {
                let names = executions(step).iter().filter_map(|e| e["graph"].as_str()?.strip_prefix(engine));
                names.map(str::to_owned).collect::<Vec<_>>()
            });
            assert_eq!(executed(&session, draft_first, &mut seen), graphs, "{what}");
            n_whole += 1;
        }
    }
    assert!(n_whole >= 8 && n_parts >= 2, "{n_whole} replies, {n_parts} beginnings");
}

fn executions(step: &Value) -> &Vec<Value> {
    static NONE: Vec<Value> = Vec::new();
    step["executions"].as_array().unwrap_or(&NONE)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn numbers(list: &Value) -> Vec<u32> {
    list.as_array().into_iter().flatten().map(|n| n.as_u64().unwrap() as u32).collect()
}

/// `spec-dec: draft_len 3 n_generated 4 n_accepted 4 n_past 10`.
fn accepted(line: &str) -> usize {
    let mut words = line.split_whitespace().skip_while(|word| *word != "n_accepted");
    words.nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn greedy_replies_are_those_of_basic_also_where_libgenies_are_not() {
    let mut n = 0;
    for case in cases().iter().filter(|case| case["config"]["dialog"]["sampler"]["top-k"] == 1) {
        let mut plain = open(&as_basic(&case["config"]), PolicyChoice::Genie);
        let mut ours = open(&case["config"], PolicyChoice::Genie);
        let mut quick = open(&case["config"], PolicyChoice::Lenient);
        for step in case["steps"].as_array().unwrap().iter().filter(|step| step["step"][0] == "query") {
            let replies = [&mut plain, &mut ours, &mut quick].map(|session| ask(session, &step["step"]).texts.concat());
            assert_eq!(replies[1], replies[0], "{}, policy genie", case["name"]);
            assert_eq!(replies[2], replies[0], "{}, policy lenient", case["name"]);
            n += 1;
        }
    }
    assert!(n >= 8, "{n} replies");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn counts_are_libgenies() {
    for case in cases() {
        let (mut session, mut first) = (open(&case["config"], PolicyChoice::Genie), true);
        let profile = case["profile"].as_array().unwrap();
        let queries = profile.iter().filter(|event| event["type"] == "GenieDialog_query");
        let steps = case["steps"].as_array().unwrap();
        if steps[0]["step"][0] != "query" || case["matches_a_correct_engine"] == false {
            continue;
        }
        for (step, event) in steps.iter().filter(|step| step["step"][0] == "query").zip(queries) {
            ask(&mut session, &step["step"]);
            let ours =
                session.profile().to_json()["components"][0]["events"].as_array().unwrap().last().unwrap().clone();
            let value = |key: &str| ours.get(key).map(|entry| entry["value"].clone());
            let wanted = |key: &str| event.get(key).cloned();
            // Its sum over rounds is never cleared, so that only the first query's rate means anything.
            let key = "token-acceptance-rate";
            if first {
                assert_eq!(value(key), wanted(key), "{}", case["name"]);
            }
            let n = "num-generated-tokens";
            assert_eq!(value(n).unwrap_or(json!(0)), wanted(n).unwrap(), "{}", case["name"]);
            first &= wanted(n) == Some(json!(0));
        }
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_command_line_runs_the_recorded_configs() {
    let case = cases().into_iter().find(|case| case["name"] == "greedy_self_draft").unwrap();
    let folder = bundle(&case["config"]);
    let mut genie = with_users_cache(&["run", "--policy", "genie", "--json", "--backend", "htp", "-c"]);
    genie.arg(folder.path()).args(["--prompt", case["steps"][0]["step"][1].as_str().unwrap()]);
    let output = genie.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!(record["text"].as_str().unwrap(), texts(&case["steps"][0]["text"]).concat());
    assert_eq!(record["speculation"]["rounds"], 3, "{record}");
    assert_eq!(record["speculation"]["accepted"], 12, "{record}");
}

//! `eaglet` on Qualcomm's own library, against libGenie's recordings: text by text and code by code, and every execution of
//! target and draft with its tokens, positions and attended columns.

use conformance::backends::shared_htp;
use conformance::golden;
use conformance::recorder::{self, Execution, Log};
use dialog::sampler::SamplerRules;
use dialog::{Dialog, DialogConfig, Reply, SentenceCode};
use engine::Policy;
use serde_json::{Value, json};

fn cases() -> Vec<Value> {
    let file = golden::folder().join("dialogs").join("eaglet.json");
    golden::json(&file)["cases"].as_array().expect("a list of cases").clone()
}

fn name(case: &Value) -> &str {
    case["name"].as_str().expect("a case has a name")
}

/// The dialog, and what both its engines execute, in order.
fn open(config: &Value, as_genie: bool) -> (Dialog, Log) {
    let base = golden::folder().join("dialogs");
    let config = DialogConfig::from_json(&config.to_string(), base).expect("a valid config");
    let log = Log::default();
    let engine = |config: &DialogConfig| {
        let mut engine = config.engine().clone();
        if as_genie {
            engine.policy = Policy::Genie;
        }
        Box::new(recorder::open_into(&engine, &shared_htp(), log.clone()))
    };
    let mut dialog = Dialog::new(&config, engine(&config)).expect("the dialog opens");
    if let Some(second) = config.of_second_engine() {
        dialog = dialog.with_second(engine(&second)).expect("the draft goes with the target");
    }
    if as_genie {
        dialog.set_sampler(config.sampler().clone().with_rules(SamplerRules::Genie));
    }
    (dialog, log)
}

/// Texts and codes as a callback of libGenie's saw them; `None` for a reset.
fn ask(dialog: &mut Dialog, step: &Value) -> Option<(Vec<String>, Vec<u64>, Reply)> {
    if step[0] == json!("reset") {
        dialog.reset().unwrap();
        return None;
    }
    let (mut texts, mut codes) = (Vec::new(), Vec::new());
    let reply = dialog.query(step[1].as_str().expect("a text"), SentenceCode::Complete, |chunk| {
        texts.push(chunk.text.to_owned());
        codes.push(u64::from(chunk.code.number()));
    });
    Some((texts, codes, reply.unwrap()))
}

/// The same rows: token, position, attended columns. Where two scores of a level are equal its rows may change places, and then
/// the slots of what follows them: how many columns they attend stays the same. Recordings have the rows that are no padding.
fn same(found: &Execution, recorded: &Execution) -> bool {
    let n = recorded.mask.len();
    if found.graph != recorded.graph || found.ids.len() < n || found.mask[n..].iter().any(|row| !row.is_empty()) {
        return false;
    }
    let rows = |e: &Execution| {
        let mut rows: Vec<_> = (0..n).map(|i| (e.ids[i], e.positions[i], n_attended(&e.mask[i]))).collect();
        rows.sort_unstable();
        rows
    };
    let in_order = found.ids[..n] == recorded.ids[..];
    rows(found) == rows(recorded) && (!in_order || n > 1 || found.mask[..n] == recorded.mask[..])
}

/// How many columns a row attends, from ranges as `0-5 127`.
fn n_attended(ranges: &str) -> usize {
    let number = |text: &str| text.parse::<usize>().expect("a column");
    let len = |range: &str| range.split_once('-').map_or(1, |(a, b)| number(b) - number(a) + 1);
    ranges.split_whitespace().map(len).sum()
}

fn check(case: &Value) -> Result<(), String> {
    let name = name(case);
    let (mut dialog, log) = open(&case["config"], true);
    let mut kpis = case["profile"].as_array().unwrap().iter().skip(1);
    for (n_step, recorded) in case["steps"].as_array().unwrap().iter().enumerate() {
        let said = ask(&mut dialog, &recorded["step"]);
        let ran = log.take();
        let executions = recorded["executions"].as_array().unwrap();
        // In a second turn libGenie takes the last rows of the prompt away again, from both caches: its reply is that to another
        // prompt. What it processes until then is the same.
        let is_spoilt = name == "two_turns_reset" && n_step == 1;
        let executions = if is_spoilt { &executions[..2] } else { &executions[..] };
        for (n, recorded) in executions.iter().enumerate() {
            let wanted = Execution::recorded(recorded);
            let Some(found) = ran.get(n) else { return Err(format!("{name}: execution {n} is missing")) };
            if !same(found, &wanted) {
                return Err(format!("{name}: execution {n}\nfound    {found:?}\nrecorded {wanted:?}"));
            }
        }
        if is_spoilt {
            kpis.next();
            continue;
        }
        assert_eq!(ran.len(), executions.len(), "{name}: nothing more runs");
        let Some((texts, codes, reply)) = said else { continue };
        if name != "max1" {
            assert_eq!(json!(texts), recorded["text"], "{name}: texts");
            assert_eq!(json!(codes), recorded["codes"], "{name}: codes");
            let kpis = kpis.next().unwrap();
            assert_eq!(json!(reply.kpis.n_generated_for_genie()), kpis["num-generated-tokens"], "{name}");
            let (found, wanted) =
                (reply.kpis.acceptance_rate().unwrap(), kpis["token-acceptance-rate"].as_f64().unwrap());
            assert!((found - wanted).abs() < 1e-4, "{name}: acceptance {found}, recorded {wanted}");
        }
    }
    Ok(())
}

/// The reply is that of a basic dialog.
fn check_against_basic(case: &Value) {
    let name = name(case);
    let mut basic = case["config"].clone();
    let dialog = basic["dialog"].as_object_mut().unwrap();
    dialog.insert("type".into(), json!("basic"));
    dialog.remove("eaglet");
    let mut target =
        dialog["engine"].as_array().unwrap().iter().find(|e| e["role"] == json!("target")).unwrap().clone();
    target.as_object_mut().unwrap().remove("role");
    dialog.insert("engine".into(), target);
    let ((mut ours, _), (mut basic, _)) = (open(&case["config"], false), open(&basic, false));
    for step in case["steps"].as_array().unwrap() {
        let (found, expected) = (ask(&mut ours, &step["step"]), ask(&mut basic, &step["step"]));
        let (Some(found), Some(expected)) = (found, expected) else { continue };
        assert_eq!((found.0, found.1), (expected.0, expected.1), "{name}: texts and codes");
        assert_eq!((found.2.tokens, found.2.stop), (expected.2.tokens, expected.2.stop), "{name}: tokens");
    }
}

#[test]
#[ignore = "needs libQnnHtp.so and the recordings"]
fn eaglet_runs_as_recorded() {
    // Without a cache of its own libGenie's draft takes rows of zeros and at wrong places; ours keeps its cache.
    let recorded = cases().into_iter().filter(|case| name(case) != "no_draft_kv");
    let failed: Vec<String> = recorded.filter_map(|case| check(&case).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[ignore = "needs libQnnHtp.so and the recordings"]
fn eaglet_replies_as_basic_does() {
    cases().iter().filter(|case| name(case) != "sampled").for_each(check_against_basic);
}

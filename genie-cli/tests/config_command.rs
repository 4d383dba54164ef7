//! `genie config check` and `genie config convert`, and the warnings of `genie run` for keys without effect.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::without_qnn;

fn genie(folder: &Path, args: &[&str], stdin: Option<&str>) -> Output {
    let mut command = without_qnn(folder, args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read leaves the pipe closed.
    let _ = child.stdin.take().unwrap().write_all(stdin.unwrap_or_default().as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bundle(place: &Path) {
    TestModel::tiny(Family::Llama).write(&place.join("model")).unwrap();
    let made = genie(place, &["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "32"], None);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
}

/// The bundle's config with one more change, as text.
fn changed(place: &Path, change: impl FnOnce(&mut Value)) -> String {
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(place.join("bundle/genie_config.json")).unwrap()).unwrap();
    change(&mut config);
    config.to_string()
}

fn htp(config: &mut Value) -> &mut Value {
    &mut config["dialog"]["engine"]["backend"]["QnnHtp"]
}

#[test]
fn check_lists_findings_and_versions() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    bundle(place);
    // A bundle of ours has nothing to be said of.
    let fine = genie(place, &["config", "check", "bundle"], None);
    let said = text(&fine.stdout);
    assert_eq!(fine.status.code(), Some(0), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("1.2 to 1.21") && said.contains("usable with API 1.21"), "{said}");

    let old = genie(place, &["config", "check", "bundle", "--api", "1.0", "--json"], None);
    let record: Value = serde_json::from_slice(&old.stdout).unwrap();
    assert_eq!((old.status.code(), &record["usable"], &record["oldest_api"]), (Some(1), &json!(false), &json!("1.2")));
    let keys: Vec<&str> = record["rejected"].as_array().unwrap().iter().map(|r| r["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"/dialog/engine/model/positional-encoding"), "{keys:?}");

    let odd = changed(place, |config| {
        htp(config)["batch-multiplier"] = json!(4);
        htp(config)["poll"] = json!(true);
        config["dialog"]["harmony"] = json!({"type": "x"});
        config["dialog"]["engine"]["model"]["cross-attention"] = json!(true);
    });
    let odd = genie(place, &["config", "check", "-"], Some(&odd));
    let said = text(&odd.stdout);
    assert_eq!(odd.status.code(), Some(1), "{said}");
    for line in [
        "unsupported  /dialog/engine/model/cross-attention: `cross-attention` is not yet supported",
        "warning      /dialog/harmony: replies are not read as messages: found type `x`",
        "warning      /dialog/engine/backend/QnnHtp/batch-multiplier: ignored: a step has one batch",
        "on host      /dialog/engine/backend/QnnHtp/poll: ignored: it has no effect on the embedded backend",
        "stdin: not usable with API 1.21",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let wrong = changed(place, |config| config["dialog"]["contextt"] = json!(1));
    let wrong = genie(place, &["config", "check", "-"], Some(&wrong));
    assert!(text(&wrong.stdout).contains("error        /dialog/contextt: unknown key (did you mean `context`?)"));
    for (args, code) in [
        (&["config", "check", "bundle", "--api", "1.22"][..], 2),
        (&["config", "check", "bundle", "--api", "2.0"], 2),
        (&["config", "check", "nowhere"], 1),
        (&["config", "check", "-"], 1),
    ] {
        let output = genie(place, args, None);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).starts_with("error: "), "{args:?}");
    }
}

#[test]
fn convert_goes_there_and_back_and_refuses_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    bundle(place);
    let down = genie(place, &["config", "convert", "bundle", "--to", "1.0", "-o", "old.json"], None);
    let notes = text(&down.stderr);
    assert_eq!((down.status.code(), down.stdout.len()), (Some(0), 0), "{notes}");
    assert!(notes.contains("positional-encoding/rope-dim: moved to `pos-id-dim` of `QnnHtp`"), "{notes}");
    let old: Value = serde_json::from_str(&std::fs::read_to_string(place.join("old.json")).unwrap()).unwrap();
    assert!(old["dialog"]["engine"]["backend"]["QnnHtp"]["pos-id-dim"].is_u64(), "{old}");
    let checked = genie(place, &["config", "check", "-", "--api", "1.0"], Some(&old.to_string()));
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));

    // The older config runs as the newer one does.
    std::fs::rename(place.join("bundle/genie_config.json"), place.join("new.json")).unwrap();
    let run = |config: &Path| {
        std::fs::copy(config, place.join("bundle/genie_config.json")).unwrap();
        let output = genie(place, &["run", "-c", "bundle", "-p", "Hello", "-n", "5", "--json", "--seed", "1"], None);
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        record["tokens"].clone()
    };
    let newer = run(&place.join("new.json"));
    assert_eq!(newer.as_array().unwrap().len(), 5);
    assert_eq!(run(&place.join("old.json")), newer);

    let up = genie(place, &["config", "convert", "old.json", "--to", "1.21", "--json"], None);
    let record: Value = serde_json::from_slice(&up.stdout).unwrap();
    assert_eq!(record["changes"][0]["key"], "/dialog/engine/backend/QnnHtp/pos-id-dim");
    let new: Value = serde_json::from_str(&std::fs::read_to_string(place.join("new.json")).unwrap()).unwrap();
    assert_eq!(
        record["config"]["dialog"]["engine"]["model"]["positional-encoding"]["rope-dim"],
        new["dialog"]["engine"]["model"]["positional-encoding"]["rope-dim"]
    );

    std::fs::copy(place.join("new.json"), place.join("bundle/genie_config.json")).unwrap();
    let many = changed(place, |config| config["dialog"]["context"]["eos-token"] = json!([1, 2, 3]));
    let refused = genie(place, &["config", "convert", "-", "--to", "1.1", "--json"], Some(&many));
    let record: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{record}");
    assert_eq!(record["refused"][0]["key"], "/dialog/context/eos-token");
    assert!(text(&refused.stderr).contains("error: API 1.1 cannot express the config"), "{}", text(&refused.stderr));
}

#[test]
fn run_warns_of_keys_without_effect_by_name_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    bundle(place);
    let run = |more: &[&str]| genie(place, &[&["run", "-c", "bundle", "-p", "Hi", "-n", "2"], more].concat(), None);
    let quiet = text(&run(&[]).stderr);
    assert!(!quiet.contains("warning"), "{quiet}");
    let config = changed(place, |config| {
        htp(config)["poll"] = json!(true);
        htp(config)["direct-io"] = json!(true);
        htp(config)["use-mmap"] = json!(false);
        config["dialog"]["context"]["n-vocab"] = json!(7);
    });
    std::fs::write(place.join("bundle/genie_config.json"), config).unwrap();
    let output = run(&[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in ["QnnHtp/poll: ignored", "QnnHtp/direct-io: ignored", "`context/n-vocab` of the config is 7"] {
        assert_eq!(said.matches(part).count(), 1, "{part}: {said}");
    }
    // Read instead of mapped, and the same text.
    let plain = changed(place, |config| htp(config)["use-mmap"] = json!(true));
    std::fs::write(place.join("bundle/genie_config.json"), plain).unwrap();
    assert_eq!(run(&["--seed", "3"]).stdout, run(&["--seed", "3"]).stdout);
}

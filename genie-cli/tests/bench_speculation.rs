//! `genie bench --spec-accept`: drafts with a wished share of right tokens, next to no drafts.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::program::with_cache;

/// `genie bench` on the demo model, with a cache folder of its own.
fn bench(cache: &Path, args: &[&str]) -> Output {
    with_cache(cache, &[&["bench"], args].concat())
}

#[test]
fn each_way_is_a_record_with_its_counts_and_ratio() {
    let cache = tempfile::tempdir().unwrap();
    let words = ["--spec-accept", "0,0.5,1", "--tg", "100", "--reps", "3", "--draft-len", "5"];
    let output = bench(cache.path(), &[&words[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = records.iter().map(|r| r["test"].as_str().unwrap().split_once('/').unwrap().1).collect();
    assert_eq!(names, ["basic", "accept-0", "accept-0.5", "accept-1", "lookup", "drawn-basic", "drawn-lookup"]);
    for record in &records {
        let n = |key: &str| record[key].as_f64().unwrap();
        assert!(n("tok_s") > 0.0 && n("of_basic") > 0.0 && n("tokens") > 1.0, "{record}");
        assert_eq!(record["samples_ts"].as_array().unwrap().len(), 3);
        assert!(n("accepted") <= n("drafted") && n("drafted") <= 5.0 * n("rounds"), "{record}");
        assert!(record["machine"].is_object() && record["bundle"].is_string());
    }
    // Without drafts there are none; a script that is never right has none accepted, one that always is has all.
    assert_eq!((records[0]["of_basic"].as_f64(), records[0]["rounds"].as_u64()), (Some(1.0), Some(0)));
    assert_eq!(records[1]["accepted"], 0);
    assert!(records[1]["rounds"].as_u64() > Some(0), "{}", records[1]);
    assert_eq!(records[3]["accepted"], records[3]["drafted"]);
    assert!(records[3]["accepted"].as_u64() > Some(0), "{}", records[3]);
    let table = String::from_utf8(bench(cache.path(), &words).stdout).unwrap();
    assert!(table.lines().next().unwrap().contains("of basic") && table.lines().count() == 8, "{table}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    for (flags, said, code) in [
        (&["--spec-accept", "1.5"][..], "expected a number from 0 to 1", 2),
        (&["--spec-accept", "0", "--tg", "5000"], "generates 5000 tokens behind 32: the context holds 512", 1),
        (&["--draft-len", "3"], "--spec-accept", 2),
    ] {
        let output = bench(cache.path(), flags);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
}

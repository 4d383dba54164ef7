//! `genie run` with Qualcomm's library on bundles made for libGenie.

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::program::{stderr, stdout, with_users_cache};
use crate::recordings;

const NAMES: [&str; 4] = ["fp16_ar1_32_cl128", "fp16_split2", "fp16_scatter", "w8a16"];
const PROMPT: &str = "94,47,33,118,46";
/// Recorded for that prompt on all four bundles.
const TOKENS: [u64; 6] = [339, 53, 409, 53, 339, 53];

fn golden(name: &str) -> PathBuf {
    let config = recordings::folder().join(name).join("genie_config.json");
    assert!(config.is_file(), "no golden bundle at `{}`: set GENIE_GOLDEN_DIR", config.display());
    config
}

fn genie(args: &[&str]) -> Output {
    // A recorded config dumps tensors below the current folder.
    with_users_cache(args).current_dir(env!("CARGO_TARGET_TMPDIR")).output().unwrap()
}

fn record(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    assert_eq!(stdout(output).lines().count(), 1, "the library must not write to stdout: {}", stdout(output));
    serde_json::from_str(stdout(output)).unwrap()
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_golden_bundle_runs_by_its_config() {
    for name in NAMES {
        let config = golden(name);
        let args =
            ["run", "-c", config.to_str().unwrap(), "--backend", "htp", "--prompt-tokens", PROMPT, "-n", "6", "--json"];
        let output = genie(&args);
        let record = record(&output);
        assert_eq!(record["tokens"], serde_json::json!(TOKENS), "{name}");
        assert_eq!(record["input"][0], 256, "{name}: BOS goes first");
        for line in stderr(&output).lines() {
            assert!(!line.contains("error:") && !line.contains("warning:"), "{}", stderr(&output));
        }
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn verbose_says_which_file_every_library_came_from() {
    let config = golden("w8a16");
    let args = ["run", "-v", "-c", config.to_str().unwrap(), "--backend", "htp", "--prompt-tokens", PROMPT, "-n", "1"];
    let output = genie(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in ["backend HTP_QTI_AISW: core API 2.", "build v2.", "performance policy burst"] {
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }
    for library in ["libc++", "libunwind", "libHtpPrepare.so", "libQnnHtp.so", "libQnnSystem.so"] {
        let line = stderr(&output).lines().find(|line| line.contains("loaded /") && line.contains(library));
        assert!(line.is_some(), "{library}: {}", stderr(&output));
    }

    let binary = config.with_file_name("model.bin");
    let seen = genie(&["inspect", binary.to_str().unwrap(), "--backend", "htp", "--json"]);
    assert!(seen.status.success(), "{}", stderr(&seen));
    let seen: Value = serde_json::from_str(stdout(&seen)).unwrap();
    assert_eq!(seen["backend"]["provider"], "HTP_QTI_AISW");
    let loaded: Vec<&str> = seen["backend"]["loaded"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(loaded.iter().any(|file| file.ends_with("/libQnnHtp.so")), "{loaded:?}");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn policy_genie_gives_up_where_the_default_goes_on() {
    let config = golden("fp16_ar1_32_cl128");
    let prompt: Vec<String> = (0..97).map(|i: u32| (i * 7 % 250).to_string()).collect();
    let prompt = prompt.join(",");
    let args = |policy: &'static str| {
        let base = [
            "run",
            "-c",
            config.to_str().unwrap(),
            "--backend",
            "htp",
            "--prompt-tokens",
            &prompt,
            "-n",
            "2",
            "--json",
        ];
        genie(&[&base[..], &["--policy", policy]].concat())
    };
    let refused = args("genie");
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("libGenie gives up at 96 past tokens with a chunk of 2"), "{}", stderr(&refused));
    let served = record(&args("lenient"));
    assert_eq!(served["tokens"].as_array().unwrap().len(), 2);
    assert_eq!(served["executed"][0], serde_json::json!(["ar32_cl128_1_of_1", 4]));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn chip_clocks_and_profile_by_flags() {
    let config = golden("w8a16");
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile.json");
    let base = ["run", "-v", "-c", config.to_str().unwrap(), "--backend", "htp", "--prompt-tokens", PROMPT, "-n", "2"];
    let profiled = ["--profile", profile.to_str().unwrap(), "--graph-profile", "basic"];
    let output = genie(&[&base[..], &["--soc", "sm8650", "--perf", "power_saver"], &profiled].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&profile).unwrap()).unwrap();
    assert_eq!(document["header"]["artifact_type"], "GENIE_PROFILE");
    let graphs = document["graphs"].as_array().unwrap();
    assert_eq!(graphs.len(), 2, "{document:#}");
    for graph in graphs {
        assert_eq!(graph["runs"], 1, "{graph:#}");
        let timed =
            graph["events"].as_array().unwrap().iter().any(|e| e["unit"] == "us" && e["total"].as_u64() > Some(0));
        assert!(timed, "{graph:#}");
    }
    // A profile does not overwrite a file, and unknown performance policies are rejected.
    let again = genie(&[&base[..], &profiled].concat());
    assert!(stderr(&again).contains("already exists"), "{}", stderr(&again));
    let unknown = genie(&[&base[..], &["--perf", "warp"]].concat());
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
    let chip = genie(&[&base[..], &["--soc", "sm9999"]].concat());
    assert!(stderr(&chip).contains("unknown SoC `sm9999`"), "{}", stderr(&chip));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_library_is_chosen_by_flag_and_by_variable() {
    let config = golden("w8a16");
    let run = ["run", "-c", config.to_str().unwrap(), "--prompt-tokens", PROMPT, "-n", "1", "--json"];
    let library = qnn_api::library::runtime::find("libQnnHtp.so").expect("run `cargo xtask qnn-runtime`");
    let system = library.with_file_name("libQnnSystem.so");
    let by_file = ["--backend-lib", library.to_str().unwrap(), "--system-lib", system.to_str().unwrap()];
    let by_path = ["--backend", library.to_str().unwrap()];
    for flags in [&by_file[..], &by_path] {
        assert_eq!(record(&genie(&[&run[..], flags].concat()))["tokens"][0], TOKENS[0]);
    }
    // The binary is for HTP: without a flag it chooses the backend, and one that contradicts it is refused.
    assert_eq!(record(&genie(&run))["tokens"][0], TOKENS[0]);
    let host = genie(&[&run[..], &["--backend", "host"]].concat());
    assert_eq!(host.status.code(), Some(1), "{}", stderr(&host));
    // A variable that names a folder without the library: no other place counts.
    let empty = tempfile::tempdir().unwrap();
    let mut command = with_users_cache(&run);
    let nowhere = command.args(["--backend", "htp"]).env("QNN_RUNTIME_DIR", empty.path()).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    let message = stderr(&nowhere);
    for part in
        [empty.path().to_str().unwrap(), "QNN_RUNTIME_DIR is set, so no other place counts", "genie runtime fetch"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
}

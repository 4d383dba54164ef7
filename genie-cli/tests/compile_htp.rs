//! `genie compile --soc` with Qualcomm's library.

use std::path::Path;
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use genie_bundle::{HTP_CONFIG_FILE, Manifest};
use qnn_api::library::runtime;

use crate::program::with_users_cache;

fn genie(args: &[&str]) -> Output {
    with_users_cache(args).output().unwrap()
}

fn compile(model: &Path, bundle: &Path, flags: &[&str]) -> Output {
    let fixed = ["compile", model.to_str().unwrap(), "-o", bundle.to_str().unwrap(), "--ar", "1,8", "--cl", "64"];
    genie(&[&fixed[..], flags].concat())
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_bundle_for_a_soc_is_reproducible_and_runs() {
    let library = runtime::find(runtime::HTP).expect("needs the QNN runtime: run `cargo xtask qnn-runtime`");
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    TestModel::tiny(Family::Llama).write(&model).unwrap();
    let bundles = ["first", "second"].map(|name| place.path().join(name));
    for bundle in &bundles {
        let output = compile(&model, bundle, &["--soc", "sm8650", "--weights", "w8", "--perf", "balanced"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{message}");
        assert_eq!(
            String::from_utf8(output.stdout).unwrap().trim(),
            bundle.join("genie_config.json").to_str().unwrap()
        );
        // The time of each graph and the result; nothing that the library prints.
        let times = message.lines().filter(|line| line.starts_with("finalized ar") && line.ends_with(" s")).count();
        assert_eq!(times, 2, "{message}");
        assert!(message.contains("2 graphs in 1 file for sm8650"), "{message}");
        assert!(!message.contains("GraphHtpSettings"), "{message}");
    }
    let read = |bundle: &Path, file: &str| std::fs::read(bundle.join(file)).unwrap();
    let manifest = Manifest::read(&bundles[0]).unwrap();
    assert_eq!(manifest, Manifest::read(&bundles[1]).unwrap());
    for file in &manifest.files {
        assert_eq!(read(&bundles[0], &file.path), read(&bundles[1], &file.path), "{}", file.path);
    }
    let config: serde_json::Value = serde_json::from_slice(&read(&bundles[0], HTP_CONFIG_FILE)).unwrap();
    assert_eq!(config["devices"][0]["cores"][0]["perf_profile"], "balanced");

    let (config, library) = (bundles[0].to_str().unwrap(), library.to_str().unwrap());
    let output = genie(&[
        "run",
        "-c",
        config,
        "--backend",
        library,
        "--prompt-tokens",
        "1,2,3",
        "-n",
        "5",
        "--greedy",
        "--json",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["executed"][0], serde_json::json!(["ar8_cl64_1_of_1", 1]));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_library_that_is_not_for_the_htp_is_rejected() {
    let saver = runtime::find("libQnnSaver.so").expect("needs the QNN runtime: run `cargo xtask qnn-runtime`");
    let place = tempfile::tempdir().unwrap();
    let (model, bundle) = (place.path().join("model"), place.path().join("bundle"));
    TestModel::tiny(Family::Llama).write(&model).unwrap();
    let output = compile(&model, &bundle, &["--soc", "sm8550", "--backend-lib", saver.to_str().unwrap()]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && !bundle.exists());
    assert!(message.contains("does not compile for target `sm8550`") && message.contains("hint: "), "{message}");
}

//! Every model family through the program: compiled, verified (the cached run equals recomputation), and examined by the doctor.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

fn genie(place: &Path, args: &[&str]) -> Output {
    let mut genie = Command::cargo_bin("genie").unwrap();
    genie.env("GENIE_CACHE", place.join("cache")).env_remove("GENIE_LOG").stdin(Stdio::null());
    genie.args(args).current_dir(place).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_family_is_compiled_verified_and_known_to_the_doctor() {
    for family in Family::ALL.iter().copied() {
        let place = tempfile::tempdir().unwrap();
        TestModel { layers: 3, ..TestModel::tiny(family) }.write(&place.path().join("model")).unwrap();
        let compiled = genie(
            place.path(),
            &[
                "compile",
                "model",
                "-o",
                "bundle",
                "--ar",
                "1,8",
                "--cl",
                "32,64",
                "--precision",
                "f32",
                "--splits",
                "auto",
            ],
        );
        assert_eq!(compiled.status.code(), Some(0), "{family}: {}", text(&compiled.stderr));
        let verified = genie(place.path(), &["verify", "bundle", "-n", "40", "--json"]);
        assert_eq!(verified.status.code(), Some(0), "{family}: {}", text(&verified.stderr));
        let records = text(&verified.stdout);
        assert!(records.lines().count() > 3, "{family}: {records}");
        for line in records.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&record["wrong_tokens"], &record["ties"]), (&0.into(), &0.into()), "{family}: {record}");
        }
        let examined = genie(place.path(), &["doctor", "bundle"]);
        let found = text(&examined.stdout) + &text(&examined.stderr);
        assert_eq!(examined.status.code(), Some(0), "{family}: {found}");
        assert!(!found.contains("rope-dim"), "{family}: {found}");
    }
}

#[test]
fn a_context_beyond_the_window_is_refused_with_the_longest_that_fits() {
    let place = tempfile::tempdir().unwrap();
    TestModel { window: 48, ..TestModel::tiny(Family::Gemma2) }.write(&place.path().join("model")).unwrap();
    let compile = |cl: &str| genie(place.path(), &["compile", "model", "-o", "bundle", "--ar", "1", "--cl", cl]);
    let refused = compile("64");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("CL-64 is longer than the attention window of this gemma2 model, 48 tokens"), "{said}");
    assert!(said.contains("use `--cl` of at most 48"), "{said}");
    assert!(!place.path().join("bundle").exists());
    assert_eq!(compile("48").status.code(), Some(0));
}

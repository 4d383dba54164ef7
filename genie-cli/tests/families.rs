//! Every model family through the program: compiled, verified (the cached run equals recomputation), and examined by the doctor.

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::{done, genie};

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

/// Positions, norms and caps of each family are in its fused graphs as in its plain ones.
#[test]
fn fused_graphs_of_every_family_give_the_tokens_of_plain_ones() {
    for family in Family::ALL.iter().copied() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        TestModel { layers: 3, ..TestModel::tiny(family) }.write(&place.join("model")).unwrap();
        let tokens = |bundle: &str, graphs: &[&str]| {
            let flags = ["compile", "model", "-o", bundle, "--cl", "64", "--precision", "f32", "-q"];
            done(place, &[&flags, graphs].concat());
            let prompt = ["--prompt-tokens", "3,5,7,11,13,17,19,23,29", "-n", "12", "--greedy", "--ignore-eos"];
            let reply = done(place, &[&["run", bundle, "--json"], &prompt[..]].concat());
            serde_json::from_slice::<Value>(&reply.stdout).unwrap()["tokens"].clone()
        };
        let plain = tokens("plain", &["--ar", "1,8"]);
        assert_eq!(tokens("fused", &["--pd-total-lens", "4,8", "--pd-only"]), plain, "{family}");
        assert_eq!(plain.as_array().unwrap().len(), 12, "{family}");
        // Decode rows beside chunks of another prompt.
        let verified = done(place, &["verify", "fused", "-n", "12", "--json"]);
        for line in text(&verified.stdout).lines() {
            assert_eq!(serde_json::from_str::<Value>(line).unwrap()["ok"], true, "{family}: {line}");
        }
    }
}

#[test]
fn a_context_beyond_the_window_runs_and_is_verified() {
    for (family, bos, said) in [
        (Family::Gemma2, true, "1 of 2 layers see the last 20 tokens, in a cache of their own"),
        (Family::Mistral, true, "attention sees the last 20 tokens"),
        (Family::Phi3, false, "attention sees the last 20 tokens"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let model = TestModel { window: 20, max_positions: 300, ..TestModel::tiny(family) };
        model.write(&place.path().join("model")).unwrap();
        let compile = &["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "64,128", "--precision", "f32"];
        let compiled = genie(place.path(), compile);
        assert_eq!(compiled.status.code(), Some(0), "{family}: {}", text(&compiled.stderr));
        assert!(text(&compiled.stderr).contains(said), "{family}: {}", text(&compiled.stderr));
        let verified = genie(place.path(), &["verify", "bundle", "-n", "60", "--json"]);
        assert_eq!(verified.status.code(), Some(0), "{family}: {}", text(&verified.stderr));
        for line in text(&verified.stdout).lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["wrong_tokens"], 0, "{family}: {record}");
        }
        let examined = genie(place.path(), &["doctor", "bundle"]);
        let found = text(&examined.stdout) + &text(&examined.stderr);
        assert_eq!(examined.status.code(), Some(0), "{family}: {found}");
        // Longer than the first context, and with all layers in the window than the last one, too.
        let n_prompt = if family == Family::Gemma2 { 100 } else { 200 };
        let prompt: Vec<String> = (0..n_prompt).map(|i| (i * 37 % 250).to_string()).collect();
        let prompt = prompt.join(",");
        let args = ["run", "-c", "bundle", "--prompt-tokens", &prompt, "-n", "5", "--greedy", "--json"];
        let run = genie(place.path(), &args);
        assert_eq!(run.status.code(), Some(0), "{family}: {}", text(&run.stderr));
        let record: Value = serde_json::from_str(text(&run.stdout).lines().last().unwrap()).unwrap();
        assert_eq!(record["kpis"]["num-prompt-tokens"], n_prompt + i32::from(bos), "{family}: {record}");
    }
}

//! `genie explain` and `genie verify --naive`: files, figures, and what happens where no checkpoint is found.

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::genie;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn place(family: Family) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    TestModel { max_positions: 96, ..TestModel::tiny(family) }.write(&place.path().join("model")).unwrap();
    let args = ["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "96", "--precision", "f32"];
    let compiled = genie(place.path(), &args);
    assert_eq!(compiled.status.code(), Some(0), "{}", text(&compiled.stderr));
    place
}

#[test]
fn verify_replays_unless_graphs_without_a_cache_are_asked_for() {
    for family in [Family::Gpt2, Family::Llama] {
        let place = place(family);
        let verify = |more: &[&str]| {
            let args = [&["verify", "bundle", "-n", "20", "--lengths", "1,9", "--json"], more].concat();
            let done = genie(place.path(), &args);
            assert_eq!(done.status.code(), Some(0), "{family}: {}", text(&done.stderr));
            let records: Vec<Value> = text(&done.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
            assert_eq!(records.len(), 2);
            (records, text(&done.stderr))
        };
        let (records, said) = verify(&[]);
        assert!(records.iter().all(|r| r["reference"] == "replay"), "{records:?}");
        assert!(said.contains("`--naive` compiles one"), "{said}");
        // Found beside the bundle, by its name and hash; the second time it is not compiled.
        for _ in 0..2 {
            let (records, said) = verify(&["--naive"]);
            assert!(records.iter().all(|r| r["reference"] == "naive" && r["wrong_tokens"] == 0), "{records:?}");
            assert!(!said.contains("`--naive` compiles one") && said.contains("AR-96"), "{said}");
        }
        let kept = std::fs::read_dir(place.path().join("cache/naive")).unwrap().count();
        assert_eq!(kept, 1);
    }
}

#[test]
fn a_checkpoint_that_is_not_the_bundles_is_refused() {
    let place = place(Family::Llama);
    std::fs::rename(place.path().join("model"), place.path().join("elsewhere")).unwrap();
    let none = genie(place.path(), &["verify", "bundle", "--naive"]);
    assert_eq!(none.status.code(), Some(1));
    let said = text(&none.stderr);
    assert!(said.contains("no checkpoint `model` was found") && said.contains("`--checkpoint DIR`"), "{said}");
    TestModel { seed: 2, ..TestModel::tiny(Family::Llama) }.write(&place.path().join("other")).unwrap();
    let other = genie(place.path(), &["verify", "bundle", "--naive", "--checkpoint", "other"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("`other` is another model than `model`"), "{}", text(&other.stderr));
    let args = ["verify", "bundle", "--naive", "--model", "elsewhere", "-n", "3", "--lengths", "2"];
    let found = genie(place.path(), &args);
    assert_eq!(found.status.code(), Some(0), "{}", text(&found.stderr));
}

#[test]
fn a_built_in_model_is_explained_by_its_name_and_the_cache_lists_its_graphs() {
    let place = tempfile::tempdir().unwrap();
    let done = genie(place.path(), &["explain", "fox", "-p", "The quick", "-n", "8", "--only", "equality", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&facts["equality"]["equal"], facts["shape"]["layers"].as_u64()), (&Value::Bool(true), Some(2)));
    let listed = text(&genie(place.path(), &["cache"]).stdout);
    assert_eq!(listed.matches("without a cache: ").count(), 1, "{listed}");
    genie(place.path(), &["cache", "--clear"]);
    assert_eq!(std::fs::read_dir(place.path().join("cache/naive")).unwrap().count(), 0);
}

/// The third exercise of docs/kv-cache-explained.md.
#[test]
fn updates_move_their_own_rows_or_all_of_them() {
    let place = tempfile::tempdir().unwrap();
    let done = genie(place.path(), &["explain", "demo", "--only", "modes", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
    let modes = facts["modes"].as_array().unwrap();
    assert_eq!(modes.len(), 3, "{modes:?}");
    for mode in modes {
        // The second step is the first of another width, so that it moves what is there.
        for step in &mode["steps"].as_array().unwrap()[2..] {
            let number = |key: &str| step[key].as_u64().unwrap();
            let rows = if mode["mode"] == "shift-concat" { number("rows_before") + 1 } else { 1 };
            assert_eq!(
                number("key_bytes") + number("value_bytes"),
                rows * 2 * 6 * 2 * 32 * 2,
                "{} {step}",
                mode["mode"]
            );
        }
    }
    let last = &modes[1]["steps"].as_array().unwrap()[16];
    assert_eq!((&modes[1]["mode"], &last["rows_before"]), (&Value::from("shift-concat"), &Value::from(23)));
    assert_eq!(last["key_bytes"].as_u64().unwrap() + last["value_bytes"].as_u64().unwrap(), 36_864);
    let report = std::fs::read_to_string(place.path().join("explain/report.md")).unwrap();
    assert!(report.contains("pointer-shift     24 rows"), "{report}");
}

#[test]
fn the_report_has_the_figures_of_the_json_and_opens_offline() {
    let place = place(Family::Gpt2);
    let done = genie(place.path(), &["explain", "-c", "bundle", "-p", "The quick brown fox", "-n", "12", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
    let at = place.path().join("explain");
    let read = |name: &str| std::fs::read_to_string(at.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(serde_json::from_str::<Value>(&read("facts.json")).unwrap(), facts);

    assert_eq!(facts["equality"]["equal"], true);
    assert_eq!(facts["equality"]["steps"].as_array().unwrap().len(), 12);
    let (layers, hidden) = (facts["shape"]["layers"].as_u64().unwrap(), facts["shape"]["hidden"].as_u64().unwrap());
    assert_eq!((layers, hidden, facts["shape"]["ffn_matrices"].as_u64()), (2, 64, Some(2)));
    // Keys and values of 64 numbers of 4 bytes in two layers.
    assert_eq!(facts["memory"][0]["bytes_per_token"], 2 * 2 * 64 * 4);
    assert_eq!(facts["graphs"]["row_bytes"], 2 * 2 * 64 * 4);
    let operations = facts["operations"].as_array().unwrap();
    for row in operations {
        let (n, ops) = (row["prompt"].as_u64().unwrap(), &row["without_cache"]);
        // Per token: four projections of 64 by 64 in two layers, two operations each.
        let tokens: u64 = (0..n).map(|i| n + i).sum();
        assert_eq!(ops["projections"].as_u64().unwrap(), 2 * 2 * 4 * 64 * 64 * tokens);
        assert_eq!(row["tokens_without_cache"].as_u64().unwrap(), n * n + n * (n + 1) / 2);
    }
    // Every step without a cache takes all tokens so far; with it one, behind the prompt.
    let steps = |key: &str| facts["graphs"][key].as_array().unwrap().clone();
    let prompt = facts["tokens"].as_array().unwrap().len() as u64;
    for (i, step) in steps("without_cache").iter().enumerate() {
        assert_eq!(step["tokens"].as_u64().unwrap(), prompt + i as u64);
    }
    let taken: u64 = steps("with_cache").iter().map(|step| step["tokens"].as_u64().unwrap()).sum();
    assert_eq!(taken, prompt + steps("without_cache").len() as u64 - 1);

    let (markdown, html) = (read("report.md"), read("report.html"));
    for point in facts["time"]["points"].as_array().unwrap() {
        let speed_up = format!("{:.1}", point["speed_up"].as_f64().unwrap());
        assert!(markdown.contains(&speed_up) && html.contains(&speed_up), "{speed_up}");
    }
    for row in operations {
        let all: u64 =
            ["projections", "attention", "ffn", "head"].map(|k| row["with_cache"][k].as_u64().unwrap()).iter().sum();
        assert!(markdown.contains(&all.to_string()) && read("operations.csv").contains(&all.to_string()));
    }
    for name in [
        "time",
        "speed-up",
        "operations",
        "memory",
        "memory-own",
        "roofline",
        "steps-with-cache",
        "steps-without-cache",
    ] {
        let svg = read(&format!("{name}.svg"));
        assert!(svg.starts_with("<svg") && html.contains(svg.trim()), "{name}");
        assert!(markdown.contains(&format!("({name}.svg)")), "{name}");
    }
    for outside in ["src=", "href=\"", "<script", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn sections_can_be_chosen_and_bad_prompts_are_refused() {
    let place = place(Family::Llama);
    let done = genie(place.path(), &["explain", "-c", "bundle", "--only", "memory,operations", "-o", "out"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    assert!(said.contains("Memory") && said.contains("Llama-2-7B") && !said.contains("Equality"), "{said}");
    // 1, 2 and 4 GiB of Llama-2-7B in half floats.
    for shown in ["1.00 GiB", "2.00 GiB", "4.00 GiB"] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    assert!(!place.path().join("out/time.svg").exists() && place.path().join("out/memory.svg").exists());
    let long = "a ".repeat(300);
    let refused = genie(place.path(), &["explain", "-c", "bundle", "-p", &long]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("give a prompt of 1 to 95 tokens"), "{}", text(&refused.stderr));
    let inspected = genie(place.path(), &["inspect", "bundle"]);
    // Two heads of 16, twice two layers, four bytes: 512 for each token.
    assert!(
        text(&inspected.stdout).contains("KV cache: 0.0 MB at CL 96, 512 bytes per token"),
        "{}",
        text(&inspected.stdout)
    );
}

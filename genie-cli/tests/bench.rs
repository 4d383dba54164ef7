//! The output and errors of `genie bench`: JSON lines, tables, rejected flags.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::program::{stderr, stdout, with_cache};

/// `genie bench` on the demo model, with a cache folder of its own.
fn bench(cache: &Path, args: &[&str]) -> Output {
    with_cache(cache, &[&["bench"], args].concat())
}

fn done(output: Output) -> Output {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

/// Every line of stdout, each of which must be an object.
fn records(output: &Output) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let records: Vec<Value> = stdout(output).lines().map(parse).collect();
    assert!(records.iter().all(Value::is_object));
    records
}

fn names(records: &[Value]) -> Vec<&str> {
    records.iter().map(|r| r["test"].as_str().unwrap()).collect()
}

/// A table with `0` for each number and single spaces.
fn form(table: &str) -> String {
    let mut form = String::new();
    for line in table.lines() {
        for word in line.split_whitespace() {
            let number = word.parse::<f64>().is_ok();
            form += if number { "0" } else { word };
            form.push(' ');
        }
        form.truncate(form.trim_end_matches(' ').len());
        form.push('\n');
    }
    form
}

#[test]
fn each_result_is_a_json_line_with_machine_and_bundle() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["--pp", "20,512", "--tg", "3", "--fill", "0,40", "--reps", "2", "--threads", "1", "--json"];
    let records = records(&done(bench(cache.path(), &args)));
    assert_eq!(names(&records), ["pp20", "pp512", "tg3", "tg3@40"]);
    for record in &records {
        let number = |key: &str| record[key].as_f64().unwrap_or_else(|| panic!("{key}: {record}"));
        let [min, middle, max] = ["min", "tok_s", "max"].map(number);
        assert!(0.0 < min && min <= middle && middle <= max, "{record}");
        let samples: Vec<f64> = record["samples_ts"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        assert_eq!(samples.len(), 2, "{record}");
        assert!(samples.contains(&min) && samples.contains(&max), "{record}");
        assert!(number("ms") > 0.0 && number("bytes") > 1e6, "{record}");
        assert_eq!((&record["threads"], &record["reps"]), (&1.into(), &2.into()));
        assert!(record["machine"]["cores"].as_u64().unwrap() > 0 && record["machine"]["isa"].is_string(), "{record}");
        assert!(record["bundle"].as_str().unwrap().ends_with("genie_config.json"), "{record}");
        assert!(record["backend"].as_str().unwrap().starts_with("HOST_OPEN_GENIE "), "{record}");
        assert!(record.get("share").is_none(), "no peak was measured: {record}");
    }
    let decode = &records[2];
    let gb_s = decode["bytes"].as_f64().unwrap() * decode["tok_s"].as_f64().unwrap() / 1e9;
    assert!((decode["gb_s"].as_f64().unwrap() / gb_s - 1.0).abs() < 1e-9, "{decode}");
    assert_eq!((decode["fill"].as_u64(), records[3]["fill"].as_u64()), (Some(0), Some(40)));
}

#[test]
fn pinned_cores_are_in_the_record() {
    let cache = tempfile::tempdir().unwrap();
    let core = qnn_host::pool::cores()[0];
    let pin = core.to_string();
    let args = ["--pp", "8", "--tg", "2", "--reps", "1", "--pin", &pin, "--json"];
    for record in records(&done(bench(cache.path(), &args))) {
        assert_eq!((&record["threads"], &record["pin"]), (&1.into(), &serde_json::json!([core])), "{record}");
    }
}

#[test]
fn busy_threads_beside_a_test_are_in_the_record() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["--pp", "8", "--tg", "2", "--reps", "1", "--json"];
    for record in records(&done(bench(cache.path(), &[&args[..], &["--disturb", "2"]].concat()))) {
        assert_eq!(record["disturb"], 2, "{record}");
    }
    assert!(records(&done(bench(cache.path(), &args))).iter().all(|record| record.get("disturb").is_none()));
}

/// The number in each line is that of threads that ran at the end of the test, or of the profile.
#[test]
fn busy_threads_are_there_in_profiles_tables_and_columns() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["--pp", "8", "--tg", "2", "--reps", "1", "--threads", "1", "--disturb", "2"];
    let of = |more: &[&str]| done(bench(cache.path(), &[&args[..], more].concat()));
    let records = records(&of(&["--profile", "--json"]));
    let (profile, rates): (Vec<&Value>, Vec<&Value>) = records.iter().partition(|r| r["test"] == "profile");
    assert!(rates.len() == 2 && profile.len() > 4, "{records:?}");
    assert!(records.iter().all(|record| record["disturb"] == 2), "{records:?}");
    let isa = qnn_host::kernels::Isa::detect().name();
    let output = of(&["--profile"]);
    let table = stdout(&output);
    assert!(table.lines().next().unwrap().ends_with(&format!("({isa}), beside 2 busy threads")), "{table}");
    assert!(table.contains("a step of tg2, beside 2 busy threads"), "{table}");
    let output = of(&["-o", "md"]);
    let table = stdout(&output);
    assert!(table.starts_with("| bundle | backend | isa | threads | disturb | test |"), "{table}");
    assert!(table.lines().nth(2).unwrap().contains(&format!("| {isa} | 1 | 2 | pp8 |")), "{table}");
    assert!(stdout(&of(&["-o", "csv"])).lines().next().unwrap().contains(",isa,threads,disturb,test,"));
    assert!(stdout(&of(&["-o", "sql"])).contains("threads REAL, disturb REAL, test TEXT"));
}

#[test]
fn limits_come_first_and_rates_are_shares_of_them() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["--pp", "8", "--tg", "2", "--reps", "1", "--threads", "2", "--limits", "--json"];
    let records = records(&done(bench(cache.path(), &args)));
    let limits = limits();
    let n = limits.len();
    assert_eq!(names(&records), [&limits[..], &limits, &["pp8", "tg2"]].concat());
    let threads: Vec<_> = records[..2 * n].iter().map(|r| r["threads"].as_u64().unwrap()).collect();
    assert_eq!(threads, [vec![1; n], vec![2; n]].concat());
    let share = |record: &Value, rate: &str, limit: &Value| {
        let want = record[rate].as_f64().unwrap() / limit["max"].as_f64().unwrap();
        assert!((record["share"].as_f64().unwrap() / want - 1.0).abs() < 1e-9, "{record}");
    };
    let (prompt, decode) = (&records[2 * n], &records[2 * n + 1]);
    // A prompt of fewer than 64 tokens is computed without tiles.
    share(prompt, "gop_s", &records[n + 1]);
    assert!(prompt.get("limit_before").is_none() && prompt.get("limit_after").is_none(), "{prompt}");
    let number = |key: &str| decode[key].as_f64().unwrap_or_else(|| panic!("{key}: {decode}"));
    let (before, after) = (number("limit_before"), number("limit_after"));
    assert!(before > 0.0 && after > 0.0, "{decode}");
    let want = number("gb_s") / ((before + after) / 2.0);
    assert!((number("share") / want - 1.0).abs() < 1e-9, "{decode}");
}

/// What `--limits` measures on this machine.
fn limits() -> Vec<&'static str> {
    let tiles: &[&str] = match qnn_host::kernels::Isa::detect().name() {
        "amx" => &["int8-tile-peak", "bf16-tile-peak"],
        "sme" | "avx512bf16" => &["bf16-tile-peak"],
        _ => &[],
    };
    [&["read-bandwidth", "int8-peak", "f32-peak"], tiles].concat()
}

#[test]
fn tables_have_heads_and_units() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["--pp", "8", "--tg", "2", "--fill", "0,9", "--reps", "1", "--threads", "1"];
    let machine = form(&format!("1 thread of {}", machine(cache.path())));
    let head = &format!("{machine}test ms tokens/s min .. max GB/s Gop/s share\n");
    let plain = form(stdout(&done(bench(cache.path(), &args))));
    assert_eq!(plain, format!("{head}pp8 0 0 0 .. 0 - 0 -\ntg2 0 0 0 .. 0 0 - -\ntg2@9 0 0 0 .. 0 0 - -\n"));
    let limited = form(stdout(&done(bench(cache.path(), &[&args[..], &["--limits"]].concat()))));
    let line = |name| format!("{name} 0 0 0 .. 0 {}\n", if name == "read-bandwidth" { "GB/s" } else { "Gop/s" });
    let limits = format!("limit threads median min .. max\n{}", limits().into_iter().map(line).collect::<String>());
    assert_eq!(
        limited,
        format!("{limits}\n{head}pp8 0 0 0 .. 0 - 0 0 %\ntg2 0 0 0 .. 0 0 - 0 %\ntg2@9 0 0 0 .. 0 0 - 0 %\n")
    );
}

/// The processor and its vector unit, as JSON tells them.
fn machine(cache: &Path) -> String {
    let records = records(&done(bench(cache, &["--pp", "8", "--tg", "1", "--reps", "1", "--json"])));
    let of = |key: &str| records[0]["machine"][key].as_str().unwrap();
    format!("{} ({})", of("cpu"), of("isa"))
}

#[test]
fn a_profile_shows_the_time_of_each_op() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["--pp", "40", "--tg", "3", "--fill", "9", "--reps", "1", "--threads", "1", "--profile"];
    let json = records(&done(bench(cache.path(), &[&args[..], &["--json"]].concat())));
    for of in ["pp40", "tg3@9"] {
        let rows: Vec<&Value> = json.iter().filter(|r| r["test"] == "profile" && r["of"] == of).collect();
        let count = |op: &str| rows.iter().find(|r| r["op"] == op).map(|r| r["count"].as_f64().unwrap());
        assert!(count("Attention") > Some(0.0) && count("(engine, outside graphs)") == Some(1.0), "{of}: {rows:?}");
        let share: f64 = rows.iter().map(|r| r["share"].as_f64().unwrap()).sum();
        assert!((share - 1.0).abs() < 1e-6, "{of}: {share}");
    }
    let table = form(stdout(&done(bench(cache.path(), &args))));
    assert!(table.contains("\n\na step of pp40 count us share\n"), "{table}");
    assert!(table.contains(
        "\n(graph, outside ops) 0 0 0 %\n(engine, outside graphs) 0 0 0 %\n\na step of tg3@9 count us share\n"
    ));
}

#[test]
fn a_trace_has_ops_in_graphs_in_steps() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("trace.json");
    let trace = file.to_str().unwrap();
    done(bench(
        cache.path(),
        &["--pp", "200", "--tg", "2", "--reps", "1", "--threads", "1", "--trace", trace, "--policy", "lenient"],
    ));
    let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let slices: Vec<&Value> = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
    let named =
        |cat: &str| slices.iter().filter(|e| e["cat"] == cat).map(|e| e["name"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(named("step"), ["pp200", "tg2"]);
    // 72 tokens after 128 are padded to 128, which the shorter context cannot hold.
    assert_eq!(
        named("graph"),
        ["ar128_cl256_1_of_2", "ar128_cl512_1_of_2", "ar1_cl512_2_of_2", "ar1_cl256_1_of_2", "ar1_cl256_2_of_2"]
    );
    assert!(named("op").contains(&"Attention"), "{:?}", named("op"));
    assert!(slices.iter().all(|e| e["ts"].is_number() && e["dur"].as_f64().unwrap() >= 0.0));
}

#[test]
fn a_plot_has_a_point_for_each_test() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("rates.svg");
    let args = ["--pp", "8,16", "--tg", "2", "--fill", "0,20,40", "--reps", "1", "--threads", "1"];
    done(bench(cache.path(), &[&args[..], &["--plot", file.to_str().unwrap()]].concat()));
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg "), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 5, "{svg}");
    assert!(svg.contains("1 thread of"), "{svg}");
}

#[test]
fn invalid_tests_are_rejected_before_the_first_runs() {
    let cache = tempfile::tempdir().unwrap();
    for (args, code, want) in [
        (&["--pp", "513"][..], 1, "`--pp 513` cannot be measured: the context holds 512 tokens"),
        (&["--pp", "128,0"], 1, "hint: choose 1 to 512 tokens"),
        (&["--tg", "600"], 1, "`--tg 600` cannot be measured"),
        (&["--tg", "64", "--fill", "0,449"], 1, "`--fill 449` leaves no room for `--tg 64`"),
        (&["--tg", "64", "--fill", "0,449"], 1, "hint: use a fill of at most 448, or decode fewer tokens"),
        (&["--pp", "65", "--ctx-size", "64"], 1, "`--pp 65` cannot be measured: the context holds 64 tokens"),
        (&["--ctx-size", "513"], 1, "context size 513 does not fit the graphs: expected 1 to 512"),
        (&["--context-size", "0"], 2, "invalid value '0' for '--context-size <TOKENS>'"),
        (&["--pp", "12,x"], 2, "invalid value 'x' for '--pp <N,N>'"),
        (&["--fill=-3"], 2, "invalid value '-3' for '--fill <N,N>'"),
        (
            &["--trace", "/nowhere/trace.json"],
            1,
            "`--trace`: cannot write `/nowhere/trace.json`: there is no folder `/nowhere`",
        ),
        (
            &["--plot", "/nowhere/rates.svg"],
            1,
            "`--plot`: cannot write `/nowhere/rates.svg`: there is no folder `/nowhere`",
        ),
        (&["--trace", "/"], 1, "hint: choose a file in an existing, writable folder"),
        (&["--reps", "0"], 1, "hint: use at least 1"),
        (&["--threads", "0"], 2, "expected a number from 1 to 1024"),
        (&["--pin", "1023"], 1, "this process may use"),
        (&["--pin", "1023"], 1, "found core 1023"),
        (&["--disturb", "2000"], 2, "not in 0..=1024"),
        (&["--disturb", "1", "--serve"], 2, "cannot be used with"),
        (&["--pin", "0,x"], 2, "expected a core's number, found `x`"),
    ] {
        let output = bench(cache.path(), args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(want), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

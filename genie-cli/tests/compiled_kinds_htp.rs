//! Kinds of graphs that `genie compile --soc` makes, on Qualcomm's emulator: each runs with the plain bundle's tokens.
//! A cache in tiles is not compiled for a chip.

use std::path::Path;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::done;

fn compile<'a>(bundle: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["compile", "model", "-o", bundle, "--soc", "sm8650", "--ar", "1,8", "--cl", "64", "-q"], flags].concat()
}

fn run(folder: &Path, bundle: &str, flags: &[&str]) -> Value {
    let ids = (0..21).map(|i| (i * 7 % 50 + 3).to_string()).collect::<Vec<_>>().join(",");
    let args =
        ["run", "-c", bundle, "--backend", "htp", "--prompt-tokens", &ids, "-n", "6", "--greedy", "--json", "--raw"];
    serde_json::from_slice(&done(folder, &[&args, flags].concat()).stdout).unwrap()
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn each_kind_gives_the_plain_bundles_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    TestModel { head_dim: 32, ..TestModel::tiny(Family::Llama) }.write(&folder.join("model")).unwrap();
    done(folder, &compile("plain", &[]));
    let plain = run(folder, "plain", &[]);
    let cases: [(&str, &[&str]); 6] = [
        ("rows", &["--rows-only", "8", "--splits", "mono"]),
        ("head", &["--lmhead-ar", "1", "--splits", "decoder-lmhead"]),
        ("from", &["--cache-update", "scatter-from"]),
        ("each", &["--cache-update", "scatter-each", "--rows-only", "8"]),
        ("weight", &["--lmhead-weight-input", "--splits", "decoder-lmhead"]),
        ("embeds", &["--inputs-embeds", "--splits", "decoder-lmhead"]),
    ];
    for (bundle, flags) in cases {
        done(folder, &compile(bundle, flags));
        assert_eq!(run(folder, bundle, &[])["tokens"], plain["tokens"], "{bundle}");
        // A binary is loaded when one of its graphs is to run.
        assert_eq!(run(folder, bundle, &["--dynamic-load"])["tokens"], plain["tokens"], "{bundle} on demand");
    }
    let rows = run(folder, "rows", &[])["executed"].to_string();
    assert_eq!(rows, r#"[["ar8_cl64_1_of_1",3],["ar1_cl64_1_of_1",6]]"#, "all but the last token on rows alone");
}

//! Recordings of libGenie: bundles with its tokens, graphs and status, in a folder beside the checkout.
//!
//! Recorded on libGenie 1.21 over the HTP emulator, greedily. A margin is the distance of the two largest logits of a
//! float32 reference; a flip at a margin under 0.15 would be float16's doing, not ours.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Environment variable with the folder; without it, a folder shared/golden beside the repository.
pub const DIR_VARIABLE: &str = "GENIE_GOLDEN_DIR";

/// A bundle and its recorded queries.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The bundle's folder.
    pub dir: PathBuf,
    /// One query each, in a dialog of its own.
    pub cases: Vec<Case>,
}

/// One recorded query.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in the recordings, e.g. `prompt33`.
    pub name: String,
    /// The tokens of the query, without BOS.
    pub prompt: Vec<u32>,
    /// The tokens that were processed for it.
    pub with_bos: Vec<u32>,
    /// Most tokens to generate, as configured.
    pub max_tokens: Option<usize>,
    /// What the query returned: 0, or 4 at the context's limit.
    pub status: i32,
    /// The generated tokens.
    pub tokens: Vec<u32>,
    /// Tokens of a float32 reference; one token where libGenie returned none.
    pub reference: Vec<u32>,
    /// Smallest margin along the case, where it was recorded.
    pub min_margin: Option<f64>,
    /// Every graph that ran, in order; empty where it was not recorded.
    pub executed: Vec<String>,
    /// The config that the case was recorded with, where it is not the bundle's.
    pub config: Option<Value>,
}

/// The folder of the recordings.
///
/// # Panics
/// It is not there.
pub fn folder() -> PathBuf {
    let named = std::env::var_os(DIR_VARIABLE).map(PathBuf::from);
    let folder = named.unwrap_or_else(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository");
        let beside = root.join("../shared/golden");
        // A work tree may lie deeper than the checkout.
        if beside.is_dir() { beside } else { root.join("../../shared/golden") }
    });
    assert!(folder.is_dir(), "no golden recordings at `{}`: set {DIR_VARIABLE} to their folder", folder.display());
    folder
}

/// One bundle with its cases.
///
/// # Panics
/// It is not there, or its recordings are not understood.
pub fn bundle(name: &str) -> Golden {
    let dir = folder().join(name);
    let of_bundle = &json(&dir.join("genie_config.json"))["dialog"]["max-num-tokens"];
    let cases = json(&dir.join("cases.json"));
    let cases = cases.as_array().expect("a list of cases").iter().map(|case| Case::read(case, of_bundle)).collect();
    Golden { dir, cases }
}

/// A recording as JSON.
///
/// # Panics
/// It cannot be read.
pub fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("cannot read `{}`: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("`{}` is no JSON: {e}", path.display()))
}

impl Golden {
    /// The case of that name.
    ///
    /// # Panics
    /// There is none.
    pub fn case(&self, name: &str) -> &Case {
        self.cases.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case `{name}`"))
    }
}

impl Case {
    fn read(case: &Value, of_bundle: &Value) -> Self {
        // A case with a config of its own was recorded with that one.
        let max = case.get("config").map_or(of_bundle, |config| &config["dialog"]["max-num-tokens"]);
        Self {
            name: case["case"].as_str().expect("a case has a name").to_owned(),
            prompt: tokens(&case["prompt"]),
            with_bos: tokens(&case["prompt_with_bos"]),
            max_tokens: max.as_u64().map(|n| n as usize),
            status: case["rc"].as_i64().expect("a case has a status") as i32,
            tokens: tokens(&case["tokens"]),
            config: case.get("config").filter(|config| config.is_object()).cloned(),
            reference: tokens(&case["reference_tokens"]),
            min_margin: case["min_margin"].as_f64(),
            executed: if case["executed"].is_null() { Vec::new() } else { executed(&case["executed"]) },
        }
    }
}

/// The graphs of a log of `["exec NAME", times]`; its other lines (reshapes, messages) are left out.
fn executed(log: &Value) -> Vec<String> {
    let lines = log.as_array().expect("a log of lines").iter();
    let runs = lines.filter_map(|line| Some((line[0].as_str()?.strip_prefix("exec ")?, line[1].as_u64()?)));
    runs.flat_map(|(name, n)| std::iter::repeat_n(name.to_owned(), n as usize)).collect()
}

fn tokens(list: &Value) -> Vec<u32> {
    list.as_array().expect("a list of tokens").iter().map(|id| id.as_u64().expect("a token id") as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_case_is_read_with_the_limit_that_it_was_recorded_with() {
        let case = json!({
            "case": "prompt1", "prompt": [90], "prompt_with_bos": [256, 90], "rc": 4, "tokens": [40, 302],
            "reference_tokens": [40, 302], "min_margin": 0.2,
            "executed": [["exec ar32_cl128_1_of_1", 1], ["reshape AR-32 CL-128 -> AR-1 CL-128", 1], ["exec ar1_cl128_1_of_1", 2]],
        });
        let read = Case::read(&case, &json!(24));
        assert_eq!((read.max_tokens, read.status, read.min_margin), (Some(24), 4, Some(0.2)));
        assert_eq!(read.executed, ["ar32_cl128_1_of_1", "ar1_cl128_1_of_1", "ar1_cl128_1_of_1"]);
        let mut own = case;
        own["config"] = json!({"dialog": {}});
        assert_eq!(Case::read(&own, &json!(24)).max_tokens, None, "its own config has no limit");
    }
}

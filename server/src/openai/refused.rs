//! Keys that would change a reply and cannot act here: refused by name where they ask for something, so that no client believes that
//! they did. Keys that change no reply (`user`, `metadata`, `store`, ...) are ignored.

use serde_json::Value;

use crate::error::ApiError;

/// Whether a value asks for anything.
type Asks = fn(&Value) -> bool;

/// Key, what of it is refused, why.
const REFUSED: [(&str, Asks, &str); 18] = [
    ("id_slot", |id| id != -1, "a request takes the slot that holds most of its prompt"),
    ("cache_prompt", |on| on == false, "what the cache holds of a prompt is always used"),
    ("return_progress", |on| on == true, "the progress of prompts is not reported"),
    ("functions", is_some, "`tools` has taken its place"),
    ("function_call", is_some, "`tool_choice` has taken its place"),
    ("modalities", |all| all.as_array().is_none_or(|all| all.iter().any(|one| one != "text")), "replies are text"),
    ("audio", is_some, "replies are text"),
    ("web_search_options", is_some, "nothing is searched"),
    ("image_data", is_some, "prompts are text"),
    ("input_extra", is_some, "code is not filled in"),
    ("lora", is_some, "adapters are chosen when the server starts"),
    ("grammar_lazy", |on| on == true, "a grammar holds from the first token"),
    ("n_indent", |n| n != 0, "lines may begin anywhere"),
    (
        "t_max_predict_ms",
        |ms| ms.as_f64().is_none_or(|ms| ms > 0.0),
        "`max_tokens` limits a reply, `--timeout` its time",
    ),
    ("post_sampling_probs", |on| on == true, "log probabilities are those before the stages of sampling"),
    ("response_fields", is_some, "replies are whole"),
    ("suffix", |text| text != "", "texts go on at their end"),
    ("min_keep", |n| n.as_f64().is_none_or(|n| n > 1.0), "stages keep at least one token"),
];

fn is_some(value: &Value) -> bool {
    match value {
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        _ => true,
    }
}

/// Refuses a body with such a key.
pub(super) fn check(body: &Value) -> Result<(), ApiError> {
    for (key, asks, why) in REFUSED {
        if body.get(key).is_some_and(|value| !value.is_null() && asks(value)) {
            return Err(ApiError::invalid(key, format!("`{key}` is not supported: {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_asks_for_nothing_is_fine() {
        let fine = json!({
            "id_slot": -1, "cache_prompt": true, "return_progress": false, "functions": [], "modalities": ["text"], "lora": [],
            "n_indent": 0, "t_max_predict_ms": -1, "post_sampling_probs": false, "min_keep": 0, "audio": null, "user": "me",
        });
        assert!(check(&fine).is_ok());
        for (key, value) in [
            ("id_slot", json!(0)),
            ("functions", json!([{"name": "f"}])),
            ("modalities", json!(["text", "audio"])),
            ("lora", json!([{"id": 0}])),
            ("t_max_predict_ms", json!(5)),
            ("response_fields", json!(["content"])),
            ("min_keep", json!(2)),
        ] {
            let error = check(&json!({key: value})).expect_err(key).to_string();
            assert!(error.starts_with(&format!("`{key}` is not supported: ")), "{error}");
        }
    }
}

//! `timings` of a reply are those of the model's steps, not of the events' arrival: these come together behind each step.

use serde_json::json;

use crate::client::plain;

#[test]
fn a_prompt_of_many_tokens_is_not_processed_in_no_time() {
    let server = plain();
    let prompt = "ROMEO: What light through yonder window breaks? ".repeat(6);
    for stream in [false, true] {
        let body = json!({"prompt": format!("{stream} {prompt}"), "n_predict": 2, "stream": stream});
        let replies = if stream { server.events("/completion", &body) } else { vec![server.ok("/completion", &body)] };
        let timings = replies.iter().find_map(|reply| reply.get("timings")).expect("a reply has its times");
        let number = |key: &str| timings[key].as_f64().unwrap_or_else(|| panic!("{key} in {timings}"));
        assert!(number("prompt_n") > 50.0, "{timings}");
        // Between two events of one step there is a microsecond: 100 million tokens/s. A slow machine is no fault.
        let rate = number("prompt_per_second");
        assert!(rate > 0.0 && rate < 2e6, "{timings}");
    }
}

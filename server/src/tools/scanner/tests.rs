//! Replies in each format, whole and letter by letter.

use serde_json::json;

use super::*;
use crate::reply::Collected;

fn scan(format: ToolFormat, pieces: &[&str]) -> (String, Vec<(String, String)>) {
    let tool = |name: &str| Tool { name: name.into(), description: None, parameters: json!({}) };
    let mut scanner = CallScanner::new(format, &[tool("look"), tool("look_far")]);
    let (mut out, mut reply) = (Vec::new(), Collected::default());
    pieces.iter().for_each(|piece| scanner.push(piece, &mut out));
    scanner.finish(&mut out);
    out.iter().for_each(|delta| reply.push(delta));
    (reply.content, reply.calls.into_iter().map(|call| (call.name, call.arguments)).collect())
}

fn check(format: ToolFormat, text: &str, content: &str, calls: &[(&str, &str)]) {
    let calls = calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect();
    let expected = (content.to_owned(), calls);
    assert_eq!(scan(format, &[text]), expected, "{text}");
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    assert_eq!(scan(format, &letters), expected, "{text}, letter by letter");
}

#[test]
fn qwens_and_hermes_calls() {
    let one = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": \"}\\\"{\"}}\n</tool_call>";
    check(ToolFormat::Hermes, one, "", &[("look", "{\"a\": \"}\\\"{\"}")]);
    check(ToolFormat::Hermes, &format!("I look.\n{one}\n{one}"), "I look.", &[("look", "{\"a\": \"}\\\"{\"}"); 2]);
    // The arguments may stand first, or be text.
    let turned = "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"look_far\"}</tool_call>";
    check(ToolFormat::Hermes, turned, "", &[("look_far", "{\"a\": 1}")]);
    let text = "<tool_call>{\"name\": \"look\", \"arguments\": \"{}\"}</tool_call>";
    check(ToolFormat::Hermes, text, "", &[("look", "{}")]);
    check(ToolFormat::Hermes, "a <tool_cal and {\"name\": \"look\"}", "a <tool_cal and {\"name\": \"look\"}", &[]);
}

#[test]
fn llama_3s_calls() {
    let one = "{\"name\": \"look\", \"parameters\": {\"a\": [1, {}]}}";
    check(ToolFormat::Llama3, one, "", &[("look", "{\"a\": [1, {}]}")]);
    check(ToolFormat::Llama3, &format!("<|python_tag|>{one}; {one}"), "", &[("look", "{\"a\": [1, {}]}"); 2]);
    check(ToolFormat::Llama3, "{\"x\": 1} is JSON", "{\"x\": 1} is JSON", &[]);
    check(
        ToolFormat::Llama3,
        "{\"name\": \"other\", \"parameters\": {}}",
        "{\"name\": \"other\", \"parameters\": {}}",
        &[],
    );
}

#[test]
fn mistrals_calls() {
    let list = "[{\"name\": \"look\", \"arguments\": {\"a\": 1}}, {\"name\": \"look_far\", \"arguments\": {}}]";
    let both = [("look", "{\"a\": 1}"), ("look_far", "{}")];
    check(ToolFormat::Mistral, &format!("[TOOL_CALLS]{list}"), "", &both);
    check(ToolFormat::Mistral, &format!("[TOOL_CALLS] {list}</s>"), "", &both);
    // The mark is a control token and may have no text.
    check(ToolFormat::Mistral, list, "", &both);
    check(ToolFormat::Mistral, "[TOOL_CALLS]look_far[ARGS]{\"a\": 2}", "", &[("look_far", "{\"a\": 2}")]);
    check(ToolFormat::Mistral, "[1, 2] is a list", "[1, 2] is a list", &[]);
}

#[test]
fn what_is_cut_off_is_not_lost() {
    // Announced: what there is of its arguments was given out.
    check(ToolFormat::Generic, "{\"name\": \"look\", \"arguments\": {\"a\": ", "", &[("look", "{\"a\": ")]);
    check(ToolFormat::Generic, "{\"name\": \"lo", "{\"name\": \"lo", &[]);
    check(ToolFormat::Generic, "plain text", "plain text", &[]);
}

//! Renders a template file with a conversation from a JSON file: `{"messages": [..], "tools": [..], ..}`; other members are
//! variables. `cargo run -p chat-template --example render -- TEMPLATE CHAT [TOKENIZER_CONFIG_FOLDER]`

use std::path::Path;

use chat_template::{Chat, find};
use serde_json::Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [template, chat, rest @ ..] = args.as_slice() else { return Err("give TEMPLATE and CHAT".into()) };
    let template = find::in_file(Path::new(template), rest.first().map(Path::new))?;
    let mut members: serde_json::Map<String, Value> = serde_json::from_str(&std::fs::read_to_string(chat)?)?;
    let list = |value: Option<Value>| value.and_then(|v| v.as_array().cloned()).unwrap_or_default();
    let mut chat = Chat::from_json(list(members.remove("messages")))?;
    chat.tools = list(members.remove("tools"));
    chat.add_generation_prompt = members.remove("add_generation_prompt").and_then(|v| v.as_bool()).unwrap_or(true);
    chat.variables = members;
    print!("{}", template.render(&chat)?);
    Ok(())
}

//! `vocab_check FOLDER`: llama.cpp's vocabulary files against the ids that lie beside them, and its chat templates. `cargo xtask
//! vocab-check` fetches the folder.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chat_template::{Chat, ChatTemplate, Message, SpecialTokens};
use dialog::Tokenizer;
use serde_json::json;

/// Between two strings of a `.inp` file.
const BETWEEN: &str = "\n__ggml_vocab_test__\n";

fn main() -> ExitCode {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("usage: vocab_check FOLDER"));
    let vocabularies = with_ending(&folder, "gguf");
    let mut n_wrong = 0;
    for file in &vocabularies {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match check(file) {
            Ok(Outcome { right, all, first_wrong }) => {
                println!("{name:<28} {right:>3} of {all:>3}{}", first_wrong.as_ref().map_or("", |_| "  WRONG"));
                if let Some(wrong) = first_wrong {
                    println!("  {wrong}");
                }
                n_wrong += all - right;
            }
            Err(refused) => println!("{name:<28} refused: {refused}"),
        }
    }
    let templates = with_ending(&folder.join("templates"), "jinja");
    let mut n_rendered = 0;
    for file in &templates {
        match render(file) {
            Ok(()) => n_rendered += 1,
            Err(why) => println!("{}: {why}", file.file_name().unwrap_or_default().to_string_lossy()),
        }
    }
    println!("{n_rendered} of {} templates render all conversations", templates.len());
    if n_wrong == 0 && !vocabularies.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn with_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == ending)).collect();
    found.sort();
    found
}

struct Outcome {
    right: usize,
    all: usize,
    first_wrong: Option<String>,
}

/// How many strings have the expected ids; a file without any is opened only.
fn check(file: &Path) -> Result<Outcome, String> {
    let json = compiler::gguf_tokenizer(file).map_err(|error| error.to_string())?;
    let tokenizer = Tokenizer::from_bytes(&json).map_err(|error| error.to_string())?;
    let beside = |ending: &str| fs::read_to_string(file.with_extension(format!("gguf.{ending}")));
    let (Ok(strings), Ok(ids)) = (beside("inp"), beside("out")) else {
        return Ok(Outcome { right: 0, all: 0, first_wrong: None });
    };
    let strings: Vec<&str> = strings.split(BETWEEN).collect();
    let expected: Vec<Vec<u32>> =
        ids.lines().map(|line| line.split_whitespace().filter_map(|id| id.parse().ok()).collect()).collect();
    let all = strings.len().min(expected.len());
    let mut outcome = Outcome { right: 0, all, first_wrong: None };
    for (text, expected) in strings.iter().zip(&expected) {
        let found = tokenizer.encode(text).map_err(|error| error.to_string())?;
        let found: Vec<u32> = found.into_iter().map(|id| id.0).collect();
        if found == *expected {
            outcome.right += 1;
        } else if outcome.first_wrong.is_none() {
            outcome.first_wrong = Some(format!("{text:?}: expected {expected:?}, found {found:?}"));
        }
    }
    Ok(outcome)
}

/// A conversation with a system message, several turns, and one with tools.
fn render(file: &Path) -> Result<(), String> {
    let source = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let text = |text: &str| json!(text);
    let tokens: SpecialTokens = [("bos_token", "<s>"), ("eos_token", "</s>")]
        .map(|(name, token)| (name.to_owned(), text(token)))
        .into_iter()
        .collect();
    let template = ChatTemplate::with_tokens(&source, tokens).map_err(|error| error.to_string())?;
    let turns = || vec![Message::user("Hello"), Message::assistant("Hi."), Message::user("Who are you?")];
    let with_system = || [vec![Message::system("Be brief.")], turns()].concat();
    let tool = json!({"type": "function", "function": {"name": "add", "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}});
    let with_tools = Chat { tools: vec![tool], ..Chat::new(turns()) };
    for (what, chat) in [("turns", Chat::new(turns())), ("system", Chat::new(with_system())), ("tools", with_tools)] {
        template.render(&chat).map_err(|error| format!("{what}: refused: {error}"))?;
    }
    Ok(())
}

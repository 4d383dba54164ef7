//! Where templates are kept: `chat_template.jinja`, `tokenizer_config.json`, or a file of the user's.

use std::path::Path;

use serde_json::Value;

use crate::{ChatTemplate, SpecialTokens, TemplateError};

/// The file of newer checkpoints.
pub const TEMPLATE_FILE: &str = "chat_template.jinja";

/// The file of older checkpoints, which also names the special tokens.
pub const CONFIG_FILE: &str = "tokenizer_config.json";

/// Largest file that is read, in bytes: some templates have 50 kB.
const MOST_BYTES: u64 = 64 << 20;

/// The template of a checkpoint's or bundle's folder; `None` if it has none. Of several, `name` chooses one; without a name
/// it is the one called `default`.
///
/// # Errors
///
/// [`TemplateError::Place`] for a file that cannot be read or is not what it should be, [`TemplateError::UnknownName`],
/// [`TemplateError::Syntax`].
pub fn in_folder(folder: &Path, name: Option<&str>) -> Result<Option<ChatTemplate>, TemplateError> {
    let config = match read(&folder.join(CONFIG_FILE))? {
        Some(text) => Some(parse(&folder.join(CONFIG_FILE), &text)?),
        None => None,
    };
    let tokens = config.as_ref().map(special_tokens).unwrap_or_default();
    if let Some(source) = read(&folder.join(TEMPLATE_FILE))?.filter(|_| name.is_none_or(|name| name == "default")) {
        return ChatTemplate::with_tokens(&source, tokens).map(Some);
    }
    let Some(config) = config else { return Ok(None) };
    match source_in(&config, name, &folder.join(CONFIG_FILE))? {
        Some(source) => ChatTemplate::with_tokens(&source, tokens).map(Some),
        None => Ok(None),
    }
}

/// A template from a file of its own, with the special tokens of a model's folder.
///
/// # Errors
///
/// As [`in_folder`].
pub fn in_file(file: &Path, folder: Option<&Path>) -> Result<ChatTemplate, TemplateError> {
    let source = read(file)?.ok_or_else(|| place(file, "does not exist"))?;
    let tokens = folder.map(tokens_in).transpose()?;
    ChatTemplate::with_tokens(&source, tokens.unwrap_or_default())
}

/// The special tokens that a model's folder names; none without a `tokenizer_config.json`.
///
/// # Errors
///
/// [`TemplateError::Place`].
pub fn tokens_in(folder: &Path) -> Result<SpecialTokens, TemplateError> {
    let path = folder.join(CONFIG_FILE);
    let config = read(&path)?.map(|text| parse(&path, &text)).transpose()?;
    Ok(config.as_ref().map(special_tokens).unwrap_or_default())
}

/// The texts of a `tokenizer_config.json`'s special tokens, plain or as objects with their `content`.
pub fn special_tokens(config: &Value) -> SpecialTokens {
    let members = config.as_object().into_iter().flatten().filter(|(key, _)| key.ends_with("_token"));
    let text = |value: &Value| value.as_str().or_else(|| value.get("content")?.as_str()).map(Value::from);
    members.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}

fn source_in(config: &Value, name: Option<&str>, file: &Path) -> Result<Option<String>, TemplateError> {
    let wrong = |problem: &str| place(file, &format!("has a `chat_template` {problem}"));
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(source)) => match name.filter(|name| *name != "default") {
            Some(name) => Err(TemplateError::UnknownName { name: name.into(), found: vec!["default".into()] }),
            None => Ok(Some(source.clone())),
        },
        Some(Value::Array(named)) => {
            let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let entries: Option<Vec<_>> =
                named.iter().map(|e| Some((text(e, "name")?, text(e, "template")?))).collect();
            let entries = entries.ok_or_else(|| wrong("whose entries are not all of a name and a template"))?;
            let wanted = name.unwrap_or("default");
            let found = entries.iter().map(|(name, _)| name.clone()).collect();
            let entry = entries.into_iter().find(|(name, _)| name == wanted);
            entry.map(|(_, source)| Some(source)).ok_or(TemplateError::UnknownName { name: wanted.into(), found })
        }
        Some(_) => Err(wrong("that is neither a text nor a list")),
    }
}

fn read(path: &Path) -> Result<Option<String>, TemplateError> {
    let meta = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        meta => meta.map_err(|e| place(path, &format!("cannot be read: {e}")))?,
    };
    if !meta.is_file() {
        return Err(place(path, "is not a file"));
    }
    if meta.len() > MOST_BYTES {
        return Err(place(path, &format!("has {} bytes, expected at most {MOST_BYTES}", meta.len())));
    }
    let bytes = std::fs::read(path).map_err(|e| place(path, &format!("cannot be read: {e}")))?;
    String::from_utf8(bytes).map(Some).map_err(|_| place(path, "is not UTF-8 text"))
}

fn parse(path: &Path, text: &str) -> Result<Value, TemplateError> {
    serde_json::from_str(text).map_err(|e| place(path, &format!("is not JSON: {e}")))
}

fn place(path: &Path, problem: &str) -> TemplateError {
    TemplateError::Place { place: path.display().to_string(), problem: problem.into() }
}

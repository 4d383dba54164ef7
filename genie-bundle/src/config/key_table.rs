//! All keys of the schema with what they do, in the schema's order: docs/config-keys.md and its test.

use super::key_defaults::default_of;
use super::key_effects::{KeyEffect, effect_of};
use super::schema::{Block, Type, values_of};
use super::tables;

/// A key and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its place below `/dialog`, without numbers of list items, as in `/engine/backend/QnnHtp/poll`.
    pub path: String,
    /// What its value may be.
    pub values: String,
    /// It must be there.
    pub required: bool,
    /// What it is if it is absent: JSON, or words.
    pub default: Option<&'static str>,
    /// What it does; a row of the list above it where it has none of its own.
    pub effect: KeyEffect,
}

/// Every key of API 1.21. The keys of a block that is refused or ignored as a whole are left out.
pub fn key_table() -> Vec<KeyRow> {
    let mut rows = Vec::new();
    for key in tables::ROOT.keys {
        add(&key.ty, "", &mut rows);
    }
    rows
}

fn add(ty: &Type, path: &str, rows: &mut Vec<KeyRow>) {
    match ty {
        Type::Block(block) => add_block(block, path, rows),
        Type::Tagged(cases, otherwise) => {
            cases.iter().for_each(|(_, block)| add_block(block, path, rows));
            add_block(otherwise, path, rows);
        }
        Type::List(item, _) => add(item, path, rows),
        Type::Either(types) => types.iter().for_each(|ty| add(ty, path, rows)),
        _ => {}
    }
}

fn add_block(block: &Block, path: &str, rows: &mut Vec<KeyRow>) {
    for key in block.keys {
        let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}/{}", key.name) };
        if rows.iter().any(|row| row.path == path) {
            continue;
        }
        let effect = effect_of(&path).unwrap_or(KeyEffect::Ignored("no row says what it does"));
        let (values, default) = (values_of(&key.ty), default_of(&path));
        rows.push(KeyRow { path: path.clone(), values, required: key.required, default, effect });
        if !matches!(effect, KeyEffect::Refused(_) | KeyEffect::Ignored(_)) || has_row_below(&path) {
            add(&key.ty, &path, rows);
        }
    }
}

fn has_row_below(path: &str) -> bool {
    super::key_effects::KEY_EFFECTS
        .iter()
        .any(|(of, _)| of.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
}

/// The table as Markdown.
pub fn key_table_markdown() -> String {
    let mut text = String::from("| key | value | if absent | effect | how, or why not |\n|---|---|---|---|---|\n");
    for row in key_table() {
        let absent = match (row.required, row.default) {
            (true, _) => "required".to_owned(),
            (false, Some(text)) if text.contains([' ', '`']) => text.to_owned(),
            (false, Some(json)) => format!("`{json}`"),
            (false, None) => "-".to_owned(),
        };
        let (word, reason) = (row.effect.word(), row.effect.reason());
        text.push_str(&format!("| `/dialog/{}` | {} | {absent} | {word} | {reason} |\n", row.path, row.values));
    }
    text
}

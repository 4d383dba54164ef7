//! Words of messages that depend on what they are about.

pub(crate) fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

pub(crate) fn are(names: &[String]) -> String {
    if names.is_empty() { "are none".into() } else { format!("are {}", quoted(names)) }
}

pub(crate) fn for_prefix(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!(" for `prefix` {prefix}") }
}

pub(crate) fn and_prefix(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!(" and `prefix` {prefix}") }
}

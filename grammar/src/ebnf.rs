//! EBNF in the dialect that libGenie reads (xgrammar's), which is nearly llama.cpp's GBNF: read, checked, and written as
//! llguidance's Lark.
//!
//! ```text
//! # a comment
//! root  ::= "yes" | "no " why [.!]
//! why   ::= [^\x00-\x1f]{1,40}
//! ```
//!
//! The start is the rule `root`. A rule ends where the next one begins, so it may be written over several lines. There are
//! literals, classes of characters, `.` for any character, groups, `* + ? {n} {n,} {n,m}`, and `|`; an alternative without
//! elements is refused, `""` is the empty text.

mod lark;
mod parser;
mod reader;
mod rules;
mod syntax;

use crate::GrammarError;

/// The same grammar in Lark.
pub(crate) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = parser::parse(text)?;
    rules::check_ends(&rules)?;
    Ok(lark::write(&rules))
}

#[cfg(test)]
mod tests;

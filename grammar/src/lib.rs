//! Grammars that constrain what a language model may say: which tokens may come next, and what is certain ahead.
//!
//! ```
//! use genie_types::TokenId;
//! use grammar::{Allowed, Constraint, Grammar, GrammarKind, Vocabulary};
//!
//! let tokens = ["y", "es", "n", "o", "</s>"];
//! let mut bytes: Vec<Vec<u8>> = tokens.iter().map(|token| token.as_bytes().to_vec()).collect();
//! bytes[4].clear(); // a control token matches nothing
//! let vocabulary = Vocabulary::from_bytes(bytes)?;
//! let stop = [TokenId(4)];
//!
//! let grammar = Grammar::new(GrammarKind::Regex, "yes|no")?;
//! let mut answer = Constraint::new(&grammar, &vocabulary)?;
//! let may = |row: &[f32]| row.iter().map(|logit| logit.is_finite()).collect::<Vec<_>>();
//! let Allowed::Row(row) = answer.allow(&[0.0; 5], &stop)? else { unreachable!() };
//! assert_eq!(may(row), [true, false, true, false, false]);
//! answer.accept(TokenId(2), false)?;
//! answer.accept(TokenId(3), false)?;
//! let Allowed::Row(row) = answer.allow(&[0.0; 5], &stop)? else { unreachable!() };
//! assert_eq!(may(row), [false, false, false, false, true]); // it may end, and cannot go on
//! # Ok::<(), grammar::GrammarError>(())
//! ```
//!
//! # What is in here
//!
//! | type | what |
//! |---|---|
//! | [`Grammar`], [`GrammarKind`] | a grammar's text, checked: JSON schema, regex, EBNF, Lark |
//! | [`WhiteSpace`] | how much of it a JSON document may have |
//! | [`Vocabulary`] | the bytes of a model's tokens |
//! | [`Constraint`] | a grammar in a reply: masks, takes tokens, goes back, says what is certain |
//! | [`Progress`] | how far a grammar has come, for saved dialogs |
//! | [`GrammarError`] | what is wrong, with line and column |
//!
//! The crate llguidance parses and masks. EBNF and regular expressions are read here, in the dialects that libGenie has, and
//! handed on in llguidance's own language; its panics are errors.
//!
//! # What it must never know
//!
//! Models, sampling, dialogs.

#![forbid(unsafe_code)]

mod constraint;
mod ebnf;
mod error;
mod json_schema;
mod kind;
mod lark;
mod regex;
mod source;
mod vocabulary;
mod white_space;

pub use constraint::{Allowed, Constraint, Progress};
pub use error::GrammarError;
pub use json_schema::check_json_schema;
pub use kind::GrammarKind;
pub use source::Grammar;
pub use vocabulary::Vocabulary;
pub use white_space::WhiteSpace;

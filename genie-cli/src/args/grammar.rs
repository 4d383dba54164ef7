//! `--json-schema`, `--grammar`, `--regex`, `--lark`: what a reply must follow.

use std::path::{Path, PathBuf};

use anyhow::Result;
use open_genie::{Grammar, GrammarKind, WhiteSpace};

/// The grammar of the reply, and what it leaves open. Names are llama.cpp's where it has one.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Grammar")]
pub struct GrammarArgs {
    #[command(flatten)]
    constraint: ConstraintArgs,
    /// White space between the parts of a JSON document: `none`; `short`, a space, or a line feed with up to 20 spaces or tabs;
    /// `any` [default: `short`, under `--policy genie` `any`].
    #[arg(long, value_name = "none|short|any", requires = "constraint")]
    json_white_space: Option<WhiteSpace>,
}

/// The grammar of the reply.
#[derive(clap::Args, Default, Clone)]
#[group(id = "constraint", multiple = false)]
struct ConstraintArgs {
    /// The reply is a JSON document that this schema accepts: the schema itself, or its file.
    #[arg(long, short = 'j', value_name = "SCHEMA|FILE")]
    pub json_schema: Option<String>,
    /// As `--json-schema`, from a file.
    #[arg(long, value_name = "FILE")]
    pub json_schema_file: Option<PathBuf>,
    /// The reply follows these rules, written in EBNF as Genie's `grammar` and llama.cpp's GBNF are: the rules themselves,
    /// or their file.
    #[arg(long, value_name = "RULES|FILE")]
    pub grammar: Option<String>,
    /// As `--grammar`, from a file.
    #[arg(long, value_name = "FILE")]
    pub grammar_file: Option<PathBuf>,
    /// The whole reply matches this regular expression.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub regex: Option<String>,
    /// The reply follows the Lark grammar of this file.
    #[arg(long, value_name = "FILE")]
    pub lark: Option<PathBuf>,
}

impl GrammarArgs {
    /// The grammar, if one is asked for.
    pub fn read(&self) -> Result<Option<Grammar>> {
        let grammar = self.constraint.read()?;
        match (grammar, self.json_white_space) {
            (Some(grammar), Some(white_space)) => Ok(Some(grammar.with_white_space(white_space)?)),
            (grammar, _) => Ok(grammar),
        }
    }
}

impl ConstraintArgs {
    fn read(&self) -> Result<Option<Grammar>> {
        let file = |kind, path: &Path| Ok(Some(Grammar::from_file(kind, path)?));
        if let Some(given) = &self.json_schema {
            let text = given.trim_start();
            // A number, a list or a string would be no schema.
            return match text.starts_with('{') || matches!(text.trim_end(), "true" | "false") {
                true => Ok(Some(Grammar::new(GrammarKind::JsonSchema, given)?)),
                false => file(GrammarKind::JsonSchema, Path::new(given)),
            };
        }
        if let Some(given) = &self.grammar {
            return match given.contains("::=") {
                true => Ok(Some(Grammar::new(GrammarKind::Ebnf, given)?)),
                false => file(GrammarKind::Ebnf, Path::new(given)),
            };
        }
        if let Some(text) = &self.regex {
            return Ok(Some(Grammar::new(GrammarKind::Regex, text)?));
        }
        for (kind, path) in [
            (GrammarKind::JsonSchema, &self.json_schema_file),
            (GrammarKind::Ebnf, &self.grammar_file),
            (GrammarKind::Lark, &self.lark),
        ] {
            if let Some(path) = path {
                return file(kind, path);
            }
        }
        Ok(None)
    }
}

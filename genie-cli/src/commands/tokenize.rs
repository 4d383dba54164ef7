//! `genie tokenize`: the tokens that a model sees of a text, or the text of tokens.

use std::path::PathBuf;

use anyhow::Result;
use open_genie::TokenId;
use serde_json::json;

use crate::args::{BackendArgs, BundleArgs, Words, number};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;
use crate::prompt_text::{self, Role};

/// Flags of `genie tokenize`.
#[derive(clap::Args)]
pub struct Args {
    /// The model, as for `--model`, then the text. One word is the model, or the text where a flag names the model. Without a text
    /// stdin is read.
    #[arg(value_names = ["MODEL", "TEXT"], num_args = 0..=2)]
    pub words: Vec<String>,
    /// The text.
    #[arg(long, short, allow_hyphen_values = true, conflicts_with = "prompt_file")]
    pub prompt: Option<String>,
    /// Read the text from a file, or from stdin with `-`.
    #[arg(long, short = 'f', visible_alias = "file", value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Instead, print the text of these token ids.
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = number::count_u32, conflicts_with_all = ["prompt", "prompt_file"])]
    pub decode: Option<Vec<u32>>,
    /// Print ids alone, in one line as `[1, 2]`.
    #[arg(long, conflicts_with_all = ["json", "decode"])]
    pub ids: bool,
    /// Do not put the BOS token before the text.
    #[arg(long)]
    pub no_bos: bool,
    /// Keep control tokens that are written in the text as text.
    #[arg(long)]
    pub no_parse_special: bool,
    /// Print the number of tokens at the end.
    #[arg(long, conflicts_with = "json")]
    pub show_count: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub bundle: BundleArgs,
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// Prints tokens, or the text of some.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let words = Words::of(&args.words, &args.bundle)?;
    let given =
        words.prompt.into_iter().chain(args.prompt.as_deref()).count() + usize::from(args.prompt_file.is_some());
    if given > 1 {
        let hint = "leave out all but one: a word behind the model, `--prompt` or `--prompt-file`";
        return Err(UserError::error("two texts are given", hint));
    }
    let text = match (&args.decode, args.prompt.as_deref().or(words.prompt), &args.prompt_file) {
        (Some(_), Some(word), _) => {
            let hint = "leave out one of them";
            return Err(UserError::error(format!("both a text is given, `{word}`, and ids by `--decode`"), hint));
        }
        (Some(_), None, _) => String::new(),
        (None, Some(text), _) => text.to_owned(),
        (None, None, Some(file)) => prompt_text::read(file, Role::Text, printer)?,
        (None, None, None) => prompt_text::piped(printer)?.ok_or_else(|| {
            UserError::error(
                "no text",
                "write it behind the model, or use `--prompt TEXT` or `--prompt-file FILE` (`-` for stdin)",
            )
        })?,
    };
    let bundle = args.bundle.read_word(words.model, None, &args.backend, printer)?;
    let tokenizer = bundle.tokenizer()?;
    if let Some(ids) = &args.decode {
        let n_vocab = bundle.config().context().n_vocab;
        if let Some(id) = ids.iter().find(|id| **id as usize >= n_vocab) {
            let hint = "ids are those that `genie tokenize MODEL TEXT` shows";
            return Err(UserError::error(format!("`--decode`: token {id}: expected a number below {n_vocab}"), hint));
        }
        let ids: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
        let text = tokenizer.decode(&ids)?;
        match args.json {
            true => printer.data_line(json!({"text": text}))?,
            false => printer.data_line(text)?,
        }
        return Ok(ExitStatus::Done);
    }
    let mut tokens = if args.no_parse_special { tokenizer.encode_plain(&text)? } else { tokenizer.encode(&text)? };
    let bos = bundle.config().context().bos.filter(|bos| !args.no_bos && tokens.first() != Some(bos));
    tokens.splice(0..0, bos);
    let piece = |id: TokenId| tokenizer.id_to_token(id).unwrap_or_default();
    if args.json {
        let list: Vec<_> = tokens.iter().map(|id| json!({"id": id.0, "piece": piece(*id)})).collect();
        printer.data_line(json!({"count": tokens.len(), "tokens": list}))?;
    } else if args.ids {
        let ids: Vec<String> = tokens.iter().map(|id| id.0.to_string()).collect();
        printer.data_line(format_args!("[{}]", ids.join(", ")))?;
    } else {
        for id in &tokens {
            printer.data_line(format_args!("{:>6} {:?}", id.0, piece(*id)))?;
        }
    }
    if args.show_count {
        printer.data_line(format_args!("{} tokens", tokens.len()))?;
    }
    Ok(ExitStatus::Done)
}

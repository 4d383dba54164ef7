//! What `genie run` asks: text, ids, rows of embeddings, or several texts.

use anyhow::{Context, Result};
use genie_types::TokenId;
use open_genie::Session;

use super::flags::Args;
use crate::failure::UserError;
use crate::printer::Printer;
use crate::prompt_text::{self, Role};

/// The prompt, as text or token ids.
pub enum Prompt {
    Text(String),
    Tokens(Vec<TokenId>),
    /// The file's bytes, until the model is there to say what they are.
    File(Vec<u8>),
    Embeddings(Vec<f32>),
    Batch(Vec<String>),
}

impl Prompt {
    /// Bytes become rows.
    pub fn with_rows(self, args: &Args, session: &Session) -> Result<Self> {
        let (Self::File(bytes), Some(file)) = (&self, &args.embedding_file) else { return Ok(self) };
        let rows = match file.dtype.decode(bytes)? {
            Some(rows) => rows,
            None => session.decode_embeddings(bytes)?,
        };
        Ok(Self::Embeddings(rows))
    }

    /// The same for the library.
    pub fn lent(&self, args: &Args) -> open_genie::Prompt<'_> {
        match self {
            Self::Text(text) if args.no_parse_special => open_genie::Prompt::Plain(text),
            Self::Text(text) => open_genie::Prompt::Text(text),
            Self::Tokens(tokens) => open_genie::Prompt::Tokens(tokens),
            Self::Batch(texts) => open_genie::Prompt::Batch(texts),
            Self::Embeddings(rows) => open_genie::Prompt::Embeddings(rows),
            Self::File(_) => open_genie::Prompt::Embeddings(&[]),
        }
    }

    /// The prompt of the flags, else the word's, else what stdin holds if it is no terminal.
    pub fn read(args: &Args, word: Option<&str>, printer: &Printer) -> Result<Prompt> {
        if let Some(word) = word
            && args.states_prompt()
        {
            let hint = "leave out one of them";
            return Err(UserError::error(format!("two prompts are given: `{word}`, and one by a flag"), hint));
        }
        Ok(match Self::read_raw(args, word, printer)? {
            Self::Text(text) if args.escape => Self::Text(unescaped(&text)?),
            Self::Batch(texts) if args.escape => {
                Self::Batch(texts.iter().map(|text| unescaped(text)).collect::<Result<_>>()?)
            }
            prompt => prompt,
        })
    }

    fn read_raw(args: &Args, word: Option<&str>, printer: &Printer) -> Result<Prompt> {
        if let Some(tokens) = &args.prompt_tokens {
            return Ok(Prompt::Tokens(tokens.iter().copied().map(TokenId).collect()));
        }
        if let Some(file) = &args.tokens_file {
            return Ok(Prompt::Tokens(ids(&prompt_text::read(file, Role::Prompt, printer)?)?));
        }
        if let Some(file) = &args.prompts {
            let text = prompt_text::read(file, Role::Prompt, printer)?;
            return Ok(Prompt::Batch(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()));
        }
        if let Some(file) = &args.embedding_file {
            let read = std::fs::read(&file.path);
            let bytes = read.with_context(|| format!("cannot read the embeddings `{}`", file.path.display()))?;
            return Ok(Prompt::File(bytes));
        }
        if let Some(text) = args.prompt.as_deref().or(word) {
            if text.is_empty() && args.saved.restore.is_none() {
                printer.info("note: the prompt is empty: the model begins by itself");
            }
            return Ok(Prompt::Text(text.to_owned()));
        }
        match &args.prompt_file {
            Some(path) => Ok(Prompt::Text(prompt_text::read(path, Role::Prompt, printer)?)),
            None => match prompt_text::piped(printer)? {
                Some(text) => Ok(Prompt::Text(text)),
                None => Err(UserError::error(
                    "no prompt",
                    "write it behind the model, or use `--prompt TEXT`, `--prompt-file FILE` (`-` for stdin) or `--prompt-tokens IDS`",
                )),
            },
        }
    }

    /// The prompt with its images, if it has any: then as ids, for which stop sequences do not apply.
    pub fn with_images(self, args: &Args, session: &mut Session) -> Result<Prompt> {
        if !args.images.any() {
            return Ok(self);
        }
        let tokens = match self {
            Prompt::Text(text) => session.tokens_of(&text)?,
            Prompt::Tokens(tokens) => tokens,
            Prompt::File(_) | Prompt::Embeddings(_) | Prompt::Batch(_) => {
                let hint = "put the images' rows among those of `--embedding-file`, or give one prompt of text";
                return Err(UserError::error("images belong to a prompt of text or of token ids", hint));
            }
        };
        Ok(Prompt::Tokens(args.images.place(session, &tokens)?))
    }
}

/// The ids of a file.
fn ids(text: &str) -> Result<Vec<TokenId>> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let ids = words.enumerate().map(|(at, word)| {
        word.parse().map(TokenId).map_err(|_| {
            let message = format!("`--tokens-file`: expected a token id as number {}, found `{word}`", at + 1);
            UserError::error(
                message,
                "ids are whole numbers, parted by commas, spaces or lines; `genie tokenize` prints those of a text",
            )
        })
    });
    ids.collect()
}

/// A text with its escapes processed.
fn unescaped(text: &str) -> Result<String> {
    unescaper::unescape(text).map_err(|error| {
        let hint = "write a backslash twice where it is one, or leave out `--escape`";
        UserError::error(format!("the prompt's escapes cannot be processed: {error}"), hint)
    })
}

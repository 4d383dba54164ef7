//! A text encoder by its config: text in, vectors out.

use std::path::{Path, PathBuf};

use dialog::Tokenizer;
use engine::{EncoderOptions, EngineError, TextEncoder};
use genie_bundle::EncoderConfig;
use genie_bundle::config::{EncoderSettings, Problem};
use genie_types::TokenId;

use crate::Error;
use crate::backend::{self, ActiveBackend};
use crate::options::Options;
use crate::threads::Threads;

/// Bytes of text that are given to the tokenizer however few tokens fit.
const SURELY_TOKENIZED: usize = 1 << 16;

/// A text encoder: Genie's root `embedding`.
///
/// ```no_run
/// use open_genie::{Encoder, Options};
///
/// let mut encoder = Encoder::open("bge/genie_config.json", &Options::new())?;
/// let found = encoder.embed("a green apple")?;
/// assert_eq!(found.values.len(), found.rows * found.width);
/// # Ok::<(), open_genie::Error>(())
/// ```
#[derive(Debug)]
pub struct Encoder {
    // Dropped in this order: the power vote outlives the graphs.
    graphs: TextEncoder,
    tokenizer: Tokenizer,
    config: EncoderConfig,
    _active: ActiveBackend,
}

/// The vectors of a text: one, or one for each token.
#[derive(Clone, Debug, PartialEq)]
pub struct TextEmbedding {
    /// Vectors: 1 where they are pooled, else the number of tokens.
    pub rows: usize,
    /// Numbers of each.
    pub width: usize,
    /// All of them, one vector after the other.
    pub values: Vec<f32>,
    /// The tokens that were encoded, special ones included.
    pub tokens: Vec<TokenId>,
    /// The text was too long and has lost its end.
    pub truncated: bool,
}

impl Encoder {
    /// Opens an encoder by its config file.
    ///
    /// # Errors
    /// The config is not valid, the graphs do not load or are no text encoder's.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, Error> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(Error::NoFile { path: path.to_owned() });
        }
        Self::from_config(EncoderConfig::from_file(config_file(path))?, options)
    }

    /// As [`Self::open`], with a config that was read.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn from_config(config: EncoderConfig, options: &Options) -> Result<Self, Error> {
        let settings = config.settings();
        let tokenizer = Tokenizer::from_file(&settings.tokenizer)?;
        let options = &options.clone().for_binaries(&settings.ctx_bins)?;
        let threads = Threads::new(options, 0)?;
        let active = backend::start(options, &settings.backend, &threads)?;
        let encoder = EncoderOptions {
            ctx_bins: settings.ctx_bins.clone(),
            pad_token: settings.pad,
            positions: settings.positions,
            use_mmap: settings.backend.use_mmap,
        };
        let graphs = TextEncoder::open(&encoder, &active.backend).map_err(|source| Error::Graphs { source })?;
        if graphs.width() != settings.width {
            return Err(Error::EncoderWidth { expected: settings.width, found: graphs.width() });
        }
        Ok(Self { graphs, tokenizer, config, _active: active })
    }

    /// Keys of the config that are valid but do nothing.
    pub fn warnings(&self) -> &[Problem] {
        self.config.warnings()
    }

    /// Most tokens of a text, special ones included.
    pub fn max_tokens(&self) -> usize {
        self.config.settings().context_size.min(self.graphs.max_tokens())
    }

    /// The vectors of a text: pooled or not as the config says.
    ///
    /// # Errors
    /// [`Error::TextTooLong`] or [`Error::TextTooLarge`] where the config does not have it cut; the graph fails.
    pub fn embed(&mut self, text: &str) -> Result<TextEmbedding, Error> {
        self.run(text, self.config.settings().pooled)
    }

    /// One vector for each token, whatever the config says.
    ///
    /// # Errors
    /// Those of [`Self::embed`].
    pub fn embed_tokens(&mut self, text: &str) -> Result<TextEmbedding, Error> {
        self.run(text, false)
    }

    fn run(&mut self, text: &str, pooled: bool) -> Result<TextEmbedding, Error> {
        let (tokens, truncated) = self.tokens(text)?;
        let vocab_size = self.config.settings().n_vocab;
        if let Some(place) = tokens.iter().position(|token| token.0 as usize >= vocab_size) {
            return Err(Error::Engine(EngineError::TokenOutOfRange { token: tokens[place], place, vocab_size }));
        }
        let found = self.graphs.encode(&tokens).map_err(Error::Engine)?;
        let width = found.width;
        let (rows, values) = match (pooled, found.pooled) {
            (true, Some(one)) => (1, one),
            (true, None) => return Err(lacks("pooled_output")),
            (false, _) if found.rows.is_empty() && !tokens.is_empty() => return Err(lacks("sequence_output")),
            (false, _) => (tokens.len(), found.rows),
        };
        Ok(TextEmbedding { rows, width, values, tokens, truncated })
    }

    /// The tokens of a text in its template, at most as many as fit; and whether it was cut.
    fn tokens(&self, text: &str) -> Result<(Vec<TokenId>, bool), Error> {
        let EncoderSettings { template: (before, behind), bos, truncate, .. } = self.config.settings();
        let most = self.max_tokens();
        let with_bos = |list: Vec<TokenId>| bos.iter().copied().chain(list).collect::<Vec<_>>();
        // A long text that cannot fit, before the tokenizer spends seconds and gigabytes on it.
        let longest = self.tokenizer.longest_entry().max(1);
        let room = SURELY_TOKENIZED.max(most.saturating_mul(longest));
        let cut = text.len() > room;
        if cut && !truncate {
            return Err(Error::TextTooLarge { bytes: text.len(), most, longest });
        }
        let text = &text[..text.floor_char_boundary(room)];
        let whole = with_bos(self.tokenizer.encode(&format!("{before}{text}{behind}"))?);
        if whole.len() <= most {
            return Ok((whole, cut));
        }
        if !truncate {
            return Err(Error::TextTooLong { found: whole.len(), most });
        }
        // The end of the text goes; what the template has behind it stays.
        let behind = self.tokenizer.encode(behind)?;
        let mut kept = with_bos(self.tokenizer.encode(&format!("{before}{text}"))?);
        kept.truncate(most.saturating_sub(behind.len()));
        kept.extend(behind);
        kept.truncate(most);
        Ok((kept, true))
    }
}

/// A folder stands for the config in it.
fn config_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(genie_bundle::CONFIG_FILE) } else { path.to_owned() }
}

fn lacks(tensor: &'static str) -> Error {
    let what = format!("an encoder whose graph has no `{tensor}`");
    Error::Engine(EngineError::Unsupported { what, hint: "; set `pooled-output` to the other value" })
}

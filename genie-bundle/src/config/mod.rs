//! Genie's dialog config (API 1.21): JSON in, checked plain values out.
//!
//! The stages, each of which lists *all* problems it finds: the tables (`tables/`: keys, types, ranges), the rules between
//! keys (`rules/`), what this build supports (`support.rs`), values (`values.rs`), and the files it names.
//!
//! *Traps*: relative paths start at the config's folder. A missing `sampler` block is fine here (defaults); libGenie then
//! refuses to create the dialog, though its schema allows it.

mod api_versions;
mod convert;
mod embedding;
mod encoder;
mod examine;
mod extensions;
mod hints;
mod ignored_keys;
mod key_defaults;
mod key_effects;
mod key_table;
mod kind_blocks;
mod long_context;
mod lora;
mod named_files;
mod node;
mod positions;
mod problem;
mod raw;
mod rules;
mod schema;
mod settings;
mod support;
mod tables;
pub mod text;
mod values;

pub use api_versions::{GenieApi, oldest_accepting, rejected_by};
pub use convert::{Conversion, ConvertError, convert};
pub use encoder::{EncoderConfig, EncoderSettings};
pub use examine::{Examination, examine};
pub use extensions::HtpExtensions;
pub use ignored_keys::Target;
pub use key_effects::KeyEffect;
pub use key_table::{KeyRow, key_table, key_table_markdown};
pub use kind_blocks::{EagletBlock, EarlyStopBlock, KindBlocks, LadeBlock, SsdBlock};
pub use long_context::{LongContextKind, LongContextSettings};
pub use lora::{LoraAdapterSettings, LoraGroupSettings, LoraSettings};
pub use problem::{ConfigError, Origin, Problem};
pub use schema::MAX_THREADS;
pub use settings::{
    BackendSettings, BatchingSettings, CacheGroupSettings, ContextSettings, DebugSettings, EmbeddingSettings,
    EngineRole, EngineSettings, GrammarSettings, HarmonySettings, MOST_ALIGNMENT, MOST_STREAMS, MultiStreamSettings,
    PdFusionSettings, PenaltySettings, PositionSettings, SamplerSettings, TableDtype, TableNumbers,
};
pub use support::DIALOG_KINDS;

use std::path::{Path, PathBuf};

use named_files::Wanted;
use node::Node;
use serde_json::Value;
use values::Values;

/// A dialog config that has passed every check.
#[derive(Clone, Debug)]
pub struct GenieConfig {
    origin: Origin,
    base: PathBuf,
    values: Values,
    warnings: Vec<Problem>,
    on_embedded: Vec<Problem>,
}

impl GenieConfig {
    /// Reads and checks a config file, and that the files it names are there.
    ///
    /// # Errors
    /// Unreadable, not JSON, not valid, not supported, or files missing; see [`ConfigError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let read = |source| ConfigError::Read { path: path.to_path_buf(), source };
        let text = text::read(path).map_err(read)?;
        let full = std::path::absolute(path).map_err(read)?;
        let base = full.parent().unwrap_or(Path::new("/"));
        let config = Self::parse(&text, base, Origin::file(path))?;
        config.check_files()?;
        Ok(config)
    }

    /// Checks a config that is in memory. Relative paths in it start at `base`; files are not looked at.
    ///
    /// # Errors
    /// Not JSON, not valid or not supported.
    pub fn from_json(text: &str, base: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::parse(text, base.as_ref(), Origin::Text)
    }

    fn parse(text: &str, base: &Path, origin: Origin) -> Result<Self, ConfigError> {
        let document = text::parse(text).map_err(|source| ConfigError::Syntax { origin: origin.clone(), source })?;
        let problems = validate(&document);
        if !problems.is_empty() {
            return Err(ConfigError::Invalid { origin, problems });
        }
        let root = Node::root(&document);
        let problems = support::unsupported(&root);
        if !problems.is_empty() {
            return Err(ConfigError::Unsupported { origin, problems });
        }
        let mut warnings = support::warnings(&root);
        warnings.extend(ignored_keys::everywhere(&document));
        let on_embedded = ignored_keys::on(&document, Target::Embedded);
        let raw: raw::RawRoot = serde_json::from_value(document).map_err(|e| ConfigError::Invalid {
            origin: origin.clone(),
            problems: vec![Problem::new("/dialog", e.to_string())],
        })?;
        let mut problems = Vec::new();
        let values = values::values(raw.dialog, base, &mut problems);
        if !problems.is_empty() {
            return Err(ConfigError::Invalid { origin, problems });
        }
        Ok(Self { origin, base: base.to_path_buf(), values, warnings, on_embedded })
    }

    /// Checks that every file the config names is there.
    ///
    /// # Errors
    /// [`ConfigError::Files`] with the absolute path of each file that is not.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        let values = &self.values;
        let mut files = vec![("/dialog/tokenizer/path".to_owned(), &values.tokenizer, Wanted::Tokenizer)];
        let main = (&values.engine, &values.backend);
        for (engine, backend) in std::iter::once(main).chain(values.second.iter().map(|two| (&two.0, &two.1))) {
            let (bins, at) = (engine.ctx_bins.iter().enumerate(), &engine.at);
            files
                .extend(bins.map(|(i, path)| (format!("{at}/model/binary/ctx-bins/{i}"), path, Wanted::ContextBinary)));
            let extensions = format!("{at}/backend/extensions");
            files.extend(backend.extensions.iter().map(|path| (extensions.clone(), path, Wanted::Extensions)));
        }
        let tables = values.engine.embedding.iter();
        files.extend(tables.map(|table| ("/dialog/embedding/lut-path".to_owned(), &table.path, Wanted::Table)));
        let grammar = values.grammar.iter();
        files.extend(grammar.map(|g| ("/dialog/context/grammar/file".to_owned(), &g.path, Wanted::Grammar)));
        files.extend(values.engine.scoring_networks().map(|(at, path)| (at, path, Wanted::ContextBinary)));
        files.extend(values.engine.lora.files().map(|(at, path)| (at, path, Wanted::Section)));
        let problems: Vec<Problem> = files
            .into_iter()
            .filter_map(|(at, path, wanted)| named_files::problem(at, path, wanted, &self.base))
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(ConfigError::Files { origin: self.origin.clone(), problems })
    }

    /// Where the config came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The dialog's kind: its `type`.
    pub fn kind(&self) -> &str {
        &self.values.kind
    }

    /// The config's folder, where relative paths start.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Special tokens and the context's size.
    pub fn context(&self) -> &ContextSettings {
        &self.values.context
    }

    /// How tokens are drawn; the default where the block is absent.
    pub fn sampler(&self) -> &SamplerSettings {
        &self.values.sampler
    }

    /// The Hugging Face `tokenizer.json`, absolute if the base was.
    pub fn tokenizer(&self) -> &Path {
        &self.values.tokenizer
    }

    /// What the engine is to be opened with; of two, the one that answers first (`primary`, `target`).
    pub fn engine(&self) -> &EngineSettings {
        &self.values.engine
    }

    /// The grammar of replies, if there is one.
    pub fn grammar(&self) -> Option<&GrammarSettings> {
        self.values.grammar.as_ref()
    }

    /// The file that says which id of a draft model is which of the target's, whichever engine names it.
    pub fn draft_token_map(&self) -> Option<&Path> {
        let own = self.values.engine.draft_token_map.as_deref();
        own.or_else(|| self.values.second.as_ref()?.0.draft_token_map.as_deref())
    }

    /// The same config with the other engine of two (`secondary`, `draft`) as its only one.
    #[must_use]
    pub fn of_second_engine(&self) -> Option<Self> {
        let (engine, backend) = self.values.second.as_deref()?.clone();
        let values = Values { engine, backend, second: None, ..self.values.clone() };
        Some(Self { values, ..self.clone() })
    }

    /// What the blocks of the dialog kinds say.
    pub fn kind_blocks(&self) -> &KindBlocks {
        &self.values.kinds
    }

    /// What is written to files as the model runs, if anything.
    pub fn debug(&self) -> Option<&DebugSettings> {
        self.values.debug.as_ref()
    }

    /// The streams of a `multistream` dialog.
    pub fn multistream(&self) -> Option<MultiStreamSettings> {
        self.values.multistream
    }

    /// What the QNN library is to be opened with.
    pub fn backend(&self) -> &BackendSettings {
        &self.values.backend
    }

    /// Texts that end a turn; none is empty.
    pub fn stop_sequences(&self) -> &[String] {
        &self.values.stop_sequences
    }

    /// Most tokens to generate in a turn, if limited.
    pub fn max_num_tokens(&self) -> Option<usize> {
        self.values.max_num_tokens
    }

    /// The response format of replies that are messages.
    pub fn harmony(&self) -> Option<HarmonySettings> {
        self.values.harmony
    }

    /// Keys that are valid but do nothing, or something else than the writer may expect.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Keys that act on other backends, but not on this one; beside [`Self::warnings`].
    pub fn warnings_on(&self, target: Target) -> &[Problem] {
        match target {
            Target::Embedded => &self.on_embedded,
            Target::Htp => &[],
        }
    }
}

/// All violations of Genie's schema and rules in a document of any kind of dialog, supported here or not.
pub fn validate(document: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !document.is_object() {
        schema::check(&schema::Type::Block(&tables::ROOT), document, "", &tables::ROOT, &mut problems);
        return problems;
    }
    if document.get("dialog").is_none()
        && let Some(other) = tables::OTHER_ROOTS.iter().find(|r| document.get(**r).is_some())
    {
        let message = format!("this is a config for `{other}`, expected one for `dialog`");
        return vec![Problem::new("", message)];
    }
    schema::check_block(&tables::ROOT, document, "", &tables::ROOT, &mut problems);
    rules::check(&Node::root(document), &mut problems);
    problems
}

#[cfg(test)]
mod tests;

//! The config of a text encoder: Genie's root `embedding`, checked as a dialog's is.
//!
//! Text becomes a vector, or one vector a token. What each key does: docs/text-encoder.md.

use std::path::{Path, PathBuf};

use genie_types::{PositionKind, TokenId};
use serde::Deserialize;
use serde_json::Value;

use super::named_files::{self, Wanted};
use super::node::Node;
use super::problem::{ConfigError, Origin, Problem};
use super::raw::{OneOrMany, RawBinary};
use super::settings::BackendSettings;
use super::values::resolve;
use super::{schema, tables, text};

/// The root key of an encoder's config.
const ROOT: &str = "embedding";

/// A text encoder's config that has passed every check.
#[derive(Clone, Debug)]
pub struct EncoderConfig {
    origin: Origin,
    base: PathBuf,
    settings: EncoderSettings,
    warnings: Vec<Problem>,
}

/// The values of an encoder's config, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderSettings {
    /// Put before each text.
    pub bos: Option<TokenId>,
    /// Fills the columns before a text.
    pub pad: TokenId,
    /// Entries of the vocabulary.
    pub n_vocab: usize,
    /// Most tokens of a text, special tokens included; at least 1.
    pub context_size: usize,
    /// Numbers of one vector.
    pub width: usize,
    /// Written before and behind each text.
    pub template: (String, String),
    /// A text that is too long loses its end; otherwise it is refused.
    pub truncate: bool,
    /// One vector for the text instead of one for each token.
    pub pooled: bool,
    /// How positions enter the graphs; Genie's default asks for `position_ids`.
    pub positions: PositionKind,
    /// The Hugging Face `tokenizer.json`, absolute if the base was.
    pub tokenizer: PathBuf,
    /// Context binaries, absolute if the base was.
    pub ctx_bins: Vec<PathBuf>,
    /// What concerns the QNN library rather than the model.
    pub backend: BackendSettings,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Raw {
    context: RawContext,
    tokenizer: RawTokenizer,
    engine: RawEngine,
    prompt: Option<RawPrompt>,
    #[serde(default)]
    truncate_input: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawContext {
    n_vocab: usize,
    ctx_size: usize,
    embed_size: usize,
    pad_token: i64,
    #[serde(default = "unset")]
    bos_token: i64,
}

fn unset() -> i64 {
    -1
}

#[derive(Deserialize)]
struct RawTokenizer {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawPrompt {
    #[serde(default)]
    prompt_template: Vec<String>,
}

#[derive(Deserialize)]
struct RawEngine {
    backend: RawBackend,
    model: RawModel,
}

#[derive(Deserialize)]
struct RawBackend {
    extensions: Option<OneOrMany<String>>,
    #[serde(rename = "QnnHtp")]
    htp: RawHtp,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawHtp {
    spill_fill_bufsize: u64,
    use_mmap: bool,
    pooled_output: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawModel {
    binary: RawBinary,
}

impl EncoderConfig {
    /// Whether a document is an encoder's config rather than a dialog's.
    pub fn is_one(document: &Value) -> bool {
        document.get("dialog").is_none() && document.get(ROOT).is_some()
    }

    /// Reads and checks a config file, and that the files it names are there.
    ///
    /// # Errors
    /// Unreadable, not JSON, not valid, not supported, or files missing; see [`ConfigError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let read = |source| ConfigError::Read { path: path.to_path_buf(), source };
        let text = text::read(path).map_err(read)?;
        let full = std::path::absolute(path).map_err(read)?;
        let config = Self::parse(&text, full.parent().unwrap_or(Path::new("/")), Origin::file(path))?;
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

    fn parse(json: &str, base: &Path, origin: Origin) -> Result<Self, ConfigError> {
        let document = text::parse(json).map_err(|source| ConfigError::Syntax { origin: origin.clone(), source })?;
        let invalid = |problems| ConfigError::Invalid { origin: origin.clone(), problems };
        let problems = validate(&document);
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        let root = Node::root(&document);
        let encoder = root.get(ROOT).expect("the schema asks for it");
        let problems = unsupported(&encoder);
        if !problems.is_empty() {
            return Err(ConfigError::Unsupported { origin, problems });
        }
        let warnings = warnings(&encoder);
        let positions = positions(&encoder);
        let raw: Raw = serde_json::from_value(document[ROOT].clone())
            .map_err(|e| invalid(vec![Problem::new("/embedding", e.to_string())]))?;
        let mut problems = Vec::new();
        let settings = settings(raw, positions, base, &mut problems);
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        Ok(Self { origin, base: base.to_path_buf(), settings, warnings })
    }

    /// Checks that every file the config names is there.
    ///
    /// # Errors
    /// [`ConfigError::Files`] with the absolute path of each file that is not.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        const BINS: &str = "/embedding/engine/model/binary/ctx-bins";
        const EXTENSIONS: &str = "/embedding/engine/backend/extensions";
        let settings = &self.settings;
        let mut files = vec![("/embedding/tokenizer/path".to_owned(), &settings.tokenizer, Wanted::Tokenizer)];
        let bins = settings.ctx_bins.iter().enumerate();
        files.extend(bins.map(|(i, path)| (format!("{BINS}/{i}"), path, Wanted::ContextBinary)));
        files.extend(settings.backend.extensions.iter().map(|path| (EXTENSIONS.to_owned(), path, Wanted::Extensions)));
        let problem =
            |(at, path, wanted): (String, &PathBuf, Wanted)| named_files::problem(at, path, wanted, &self.base);
        let problems: Vec<Problem> = files.into_iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Files { origin: self.origin.clone(), problems }) }
    }

    /// Where the config came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Its values.
    pub fn settings(&self) -> &EncoderSettings {
        &self.settings
    }

    /// Keys that are valid but do nothing.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

/// All violations of the schema in an encoder's config.
fn validate(document: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    if document.get(ROOT).is_none() && document.get("dialog").is_some() {
        return vec![
            Problem::new("", "this is a config for `dialog`, expected one for `embedding`")
                .hint("`genie run` takes it; a text encoder's config has the root key `embedding`"),
        ];
    }
    let root = &tables::ENCODER_ROOT;
    schema::check(&schema::Type::Block(root), document, "", root, &mut problems);
    problems
}

fn unsupported(e: &Node<'_>) -> Vec<Problem> {
    let mut out = Vec::new();
    let mut not_yet = |node: &Node<'_>, key: &str, what: String| {
        out.push(node.problem_at(key, format!("{what} is not yet supported")));
    };
    if let Some(kind) = e.str("type").filter(|kind| *kind != "text-encoder") {
        not_yet(e, "type", format!("encoder type `{kind}`"));
    }
    let Some(engine) = e.get("engine") else { return out };
    if let Some(backend) = engine.get("backend")
        && let Some(kind) = backend.str("type").filter(|kind| *kind != "QnnHtp")
    {
        not_yet(&backend, "type", format!("backend `{kind}`"));
    }
    if let Some(model) = engine.get("model") {
        if let Some(kind) = model.str("type").filter(|kind| *kind != "binary") {
            not_yet(&model, "type", format!("model type `{kind}`"));
        }
        if let Some(at) = model.get("positional-encoding")
            && let Some(kind @ ("rope" | "alibi")) = at.str("type")
        {
            not_yet(&at, "type", format!("positional encoding `{kind}` of a text encoder"));
        }
    }
    out
}

/// `none` feeds no positions; everything else fills `position_ids`.
fn positions(e: &Node<'_>) -> PositionKind {
    let model = e.get("engine").and_then(|engine| engine.get("model"));
    let kind = model.and_then(|model| model.get("positional-encoding")).and_then(|p| p.str("type"));
    if kind == Some("none") { PositionKind::None } else { PositionKind::Absolute }
}

fn warnings(e: &Node<'_>) -> Vec<Problem> {
    let mut out = Vec::new();
    if let Some(context) = e.get("context") {
        for key in ["eos-token", "add-eos"].into_iter().filter(|key| context.has(key)) {
            out.push(context.problem_at(key, "has no effect, as in Genie: no end token is put behind a text"));
        }
    }
    if let Some(htp) = e.get("engine").and_then(|e| e.get("backend")).and_then(|b| b.get("QnnHtp")) {
        for key in ["disable-kv-cache", "batch-size", "batch-multiplier", "direct-io", "data-alignment-size"] {
            if htp.has(key) {
                out.push(htp.problem_at(key, "has no effect: an encoder runs one text at a time and has no cache"));
            }
        }
        if htp.is_true("allow-async-init") {
            out.push(htp.problem_at("allow-async-init", "has no effect: the binary is loaded before the first text"));
        }
    }
    out
}

fn settings(raw: Raw, positions: PositionKind, base: &Path, problems: &mut Vec<Problem>) -> EncoderSettings {
    for (key, n) in [("ctx-size", raw.context.ctx_size), ("embed-size", raw.context.embed_size)] {
        if n == 0 {
            problems.push(Problem::new(format!("/embedding/context/{key}"), "expected at least 1, found 0"));
        }
    }
    let mut token = |key: &str, id: i64| match (id, u32::try_from(id)) {
        (-1, _) => None,
        (_, Ok(id)) => Some(TokenId(id)),
        _ => {
            let message = format!("expected a token id, or -1 for unset, found {id}");
            problems.push(Problem::new(format!("/embedding/context/{key}"), message));
            None
        }
    };
    let (bos, pad) = (token("bos-token", raw.context.bos_token), token("pad-token", raw.context.pad_token));
    let mut template = raw.prompt.map_or(Vec::new(), |prompt| prompt.prompt_template);
    if template.len() > 2 {
        let message = format!("expected at most 2 texts, before and behind the input, found {}", template.len());
        problems.push(Problem::new("/embedding/prompt/prompt-template", message));
    }
    template.resize(2, String::new());
    let [before, behind] = [0, 1].map(|i| std::mem::take(&mut template[i]));
    let RawBackend { extensions, htp } = raw.engine.backend;
    let extensions = extensions.as_ref().map_or(&[][..], OneOrMany::as_slice);
    EncoderSettings {
        bos,
        pad: pad.unwrap_or(TokenId(0)),
        n_vocab: raw.context.n_vocab,
        context_size: raw.context.ctx_size,
        width: raw.context.embed_size,
        template: (before, behind),
        truncate: raw.truncate_input,
        pooled: htp.pooled_output,
        positions,
        tokenizer: resolve(base, &raw.tokenizer.path),
        ctx_bins: raw.engine.model.binary.ctx_bins.iter().map(|p| resolve(base, p)).collect(),
        backend: BackendSettings {
            extensions: extensions.iter().filter(|p| !p.trim().is_empty()).map(|p| resolve(base, p)).collect(),
            use_mmap: htp.use_mmap,
            mmap_budget_mb: 0,
            spill_fill_bytes: htp.spill_fill_bufsize,
            graph_switching: false,
            async_init: false,
            data_alignment: 0,
            retention_order: Vec::new(),
            cpu_mask: 0,
            poll: false,
            kv_dim: None,
            batch_size: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Value {
        json!({"embedding": {
            "version": 1,
            "context": {"version": 1, "n-vocab": 512, "ctx-size": 32, "embed-size": 64, "pad-token": 258},
            "tokenizer": {"version": 1, "path": "tokenizer.json"},
            "engine": {
                "version": 1, "n-threads": 1,
                "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {"version": 1, "spill-fill-bufsize": 0,
                    "use-mmap": true, "pooled-output": true, "allow-async-init": false}},
                "model": {"version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": ["m.bin"]},
                    "positional-encoding": {"type": "none"}},
            },
        }})
    }

    #[test]
    fn values_and_defaults() {
        let read = EncoderConfig::from_json(&config().to_string(), "/b").unwrap();
        let found = read.settings();
        assert_eq!((found.bos, found.pad, found.context_size, found.width), (None, TokenId(258), 32, 64));
        assert_eq!((found.truncate, found.pooled, found.positions), (false, true, PositionKind::None));
        assert_eq!((found.tokenizer.as_path(), found.ctx_bins.len()), (Path::new("/b/tokenizer.json"), 1));
        let mut other = config();
        other["embedding"]["prompt"] = json!({"prompt-template": ["query: ", "!"]});
        other["embedding"]["context"]["bos-token"] = json!(256);
        other["embedding"]["context"]["add-eos"] = json!(true);
        other["embedding"]["engine"]["model"].as_object_mut().unwrap().remove("positional-encoding");
        let read = EncoderConfig::from_json(&other.to_string(), "/b").unwrap();
        assert_eq!(read.settings().template, ("query: ".into(), "!".into()));
        assert_eq!((read.settings().bos, read.settings().positions), (Some(TokenId(256)), PositionKind::Absolute));
        assert_eq!(read.warnings().len(), 1, "{:?}", read.warnings());
    }

    #[test]
    fn what_is_wrong_is_named() {
        type Edit = (&'static str, fn(&mut Value), &'static str);
        let edits: [Edit; 5] = [
            ("kind", |c| c["type"] = json!("image-encoder"), "/embedding/type: encoder type `image-encoder`"),
            ("size", |c| c["context"]["ctx-size"] = json!(0), "/embedding/context/ctx-size: expected at least 1"),
            ("unknown", |c| c["pool"] = json!(1), "/embedding/pool"),
            (
                "template",
                |c| c["prompt"] = json!({"prompt-template": ["a", "b", "c"]}),
                "/embedding/prompt/prompt-template: expected at most 2 texts",
            ),
            (
                "rope",
                |c| c["engine"]["model"]["positional-encoding"]["type"] = json!("rope"),
                "positional encoding `rope` of a text encoder",
            ),
        ];
        for (what, edit, wanted) in edits {
            let mut document = config();
            edit(&mut document["embedding"]);
            let error = EncoderConfig::from_json(&document.to_string(), "/b").unwrap_err().to_string();
            assert!(error.contains(wanted), "{what}: {error}");
        }
        let error = EncoderConfig::from_json(r#"{"dialog": {}}"#, "/b").unwrap_err().to_string();
        assert!(error.contains("this is a config for `dialog`, expected one for `embedding`"), "{error}");
    }
}

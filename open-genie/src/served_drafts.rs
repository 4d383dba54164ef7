//! Which drafts the replies of a served model have: what a config's dialog type, or `--spec`, comes to beside other requests.
//!
//! A draft is rows of one sequence. A step of several requests holds no trees of tokens, so the types whose drafts are trees are
//! served with other drafts or none: their replies are the same. A `--spec` that asks for trees is refused, as nothing would be as asked.

use dialog::DialogError;
use dialog::config::DialogConfig;
use dialog::kinds::{LadeSettings, LookupSettings, VocabularyMap};

use crate::Error;
use crate::speculation::Speculation;

/// Where drafts come from.
#[derive(Debug)]
pub(crate) enum Drafts {
    /// Nowhere.
    None,
    /// As the request's settings say, which are the config's.
    OfConfig,
    /// What followed the last tokens before.
    Lookup(LookupSettings),
    /// Up to `len` tokens of the second model.
    Model {
        /// Tokens of a draft.
        len: usize,
        /// Its ids are others.
        map: Option<VocabularyMap>,
    },
}

/// Drafts, and what a user should know of them.
#[derive(Debug)]
pub(crate) struct ServedDrafts {
    pub(crate) drafts: Drafts,
    pub(crate) note: Option<String>,
}

impl ServedDrafts {
    /// Those of a config, or of what was asked for in its place.
    ///
    /// # Errors
    /// [`Error::Dialog`]: a kind that cannot be served; a `draft-token-map` that cannot be read.
    pub(crate) fn of(speculation: &Speculation, config: &DialogConfig) -> Result<Self, Error> {
        let plain = |drafts| Self { drafts, note: None };
        Ok(match (speculation, config.kind()) {
            (Speculation::Lookup(settings), _) => plain(Drafts::Lookup(*settings)),
            (Speculation::Off, _) => plain(Drafts::None),
            (Speculation::Draft { len, .. }, _) => plain(Drafts::Model { len: *len, map: None }),
            (Speculation::OfConfig, "basic" | "lookup") => plain(Drafts::OfConfig),
            (Speculation::OfConfig, "spd") => {
                let map = VocabularyMap::of_config(config).map_err(Error::Dialog)?;
                plain(Drafts::Model { len: config.kind_blocks().draft_len.unwrap_or(0), map })
            }
            (Speculation::OfConfig, "lade") => Self {
                drafts: Drafts::Lookup(of_text(LadeSettings::of_config(config))),
                note: Some(format!("{} Drafts are n-grams of the text, as of `--spec lookup`.", trees("lade"))),
            },
            (Speculation::OfConfig, kind @ ("ssd-q1" | "eaglet")) => Self {
                drafts: Drafts::None,
                note: Some(format!(
                    "{} There are no drafts; `--spec lookup` and `--spec draft:BUNDLE` make some.",
                    trees(kind)
                )),
            },
            (speculation, kind) => return Err(refused(speculation, kind)),
        })
    }
}

fn trees(kind: &str) -> String {
    format!(
        "`{kind}` drafts trees of tokens, which a step of several requests does not hold: replies are those of `basic`."
    )
}

/// The n-grams that `lade` keeps of a text, without its window.
fn of_text(settings: LadeSettings) -> LookupSettings {
    LookupSettings { draft_len: settings.ngram.saturating_sub(1).max(1), ..LookupSettings::default() }
}

/// Drafts of this kind cannot be rows of one sequence beside others'.
fn refused(speculation: &Speculation, kind: &str) -> Error {
    let of_trees = "steps hold a tree of tokens, and rows of other requests cannot be beside it";
    let found = match speculation {
        Speculation::Lade(_) => format!("`lade`, whose {of_trees}"),
        Speculation::Ssd { .. } => format!("`ssd`, whose {of_trees}"),
        Speculation::Eaglet { .. } => format!("`eaglet`, whose {of_trees}"),
        Speculation::Script(_) => "drafts of a script".to_owned(),
        _ => format!("`{kind}`"),
    };
    let expected =
        "a dialog that answers one request with one reply, or the drafts of `lookup` or `draft:BUNDLE`".into();
    Error::Dialog(DialogError::Kind { kind: "serving", expected, found })
}

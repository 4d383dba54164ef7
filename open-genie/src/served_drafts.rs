//! Which drafts the replies of a served model have: what a config's dialog type, or `--spec`, comes to beside other requests.
//!
//! A draft is rows of one sequence in a step that others share: tokens behind each other, or a tree of them. A model whose steps hold no
//! trees serves the types that draft some with other drafts or none: their replies are the same. A `--spec` that asks for drafts that are
//! not there is refused.

use dialog::DialogError;
use dialog::config::DialogConfig;
use dialog::kinds::{EagletSettings, LadeSettings, LookupSettings, SsdSettings, TreeKind, VocabularyMap};
use engine::TokenModel;
use serving::Scheduler;

use crate::Error;
use crate::speculation::{Speculation, ssd_settings};

/// Where drafts come from.
#[derive(Debug)]
pub(crate) enum Drafts {
    /// Nowhere.
    None,
    /// As the request's settings say, which are the config's.
    OfConfig,
    /// What followed the last tokens before.
    Lookup(LookupSettings),
    /// Trees; a model may not take them.
    Trees(TreeKind),
    /// Trees that the second model makes of hidden states; a model may not take them.
    TreeModel {
        /// What trees there are.
        settings: EagletSettings,
        /// Its ids are others.
        map: Option<VocabularyMap>,
    },
    /// Up to `len` tokens of the second model.
    Model {
        /// Tokens of a draft.
        len: usize,
        /// Its ids are others.
        map: Option<VocabularyMap>,
    },
}

impl Drafts {
    /// Those of a config, or of what was asked for in its place.
    ///
    /// # Errors
    /// [`Error::Dialog`]: a kind that cannot be served; a `draft-token-map` that cannot be read.
    pub(crate) fn of(speculation: &Speculation, config: &DialogConfig) -> Result<Self, Error> {
        Ok(match (speculation, config.kind()) {
            (Speculation::Lookup(settings), _) => Self::Lookup(*settings),
            (Speculation::Off, _) => Self::None,
            (Speculation::Draft { len, .. }, _) => Self::Model { len: *len, map: None },
            (Speculation::OfConfig, "basic" | "lookup") => Self::OfConfig,
            (Speculation::OfConfig, "spd") => {
                let map = VocabularyMap::of_config(config).map_err(Error::Dialog)?;
                Self::Model { len: config.kind_blocks().draft_len.unwrap_or(0), map }
            }
            (Speculation::Lade(settings), _) => Self::Trees(TreeKind::Lade(*settings)),
            (Speculation::Ssd { prefix, branches }, _) => {
                Self::Trees(TreeKind::Ssd(ssd_settings(prefix.as_deref(), branches, config)))
            }
            (Speculation::OfConfig, "lade") => Self::Trees(TreeKind::Lade(LadeSettings::of_config(config))),
            (Speculation::OfConfig, "ssd-q1") => Self::Trees(TreeKind::Ssd(SsdSettings::of_config(config))),
            (Speculation::Eaglet { len, .. }, _) => {
                let settings = EagletSettings { draft_len: *len, ..EagletSettings::default() };
                Self::TreeModel { settings, map: None }
            }
            (Speculation::OfConfig, "eaglet") => {
                let map = VocabularyMap::of_config(config).map_err(Error::Dialog)?;
                Self::TreeModel { settings: EagletSettings::of_config(config), map }
            }
            (speculation, kind) => return Err(refused(speculation, kind)),
        })
    }
}

/// Has a scheduler draft trees where its model takes them; what a user should know where not.
///
/// # Errors
/// [`Error::Serving`]: the kind's settings, or its prefix; `asked` for by `--spec` and not taken.
pub(crate) fn set_trees(scheduler: &mut Scheduler, kind: TreeKind, asked: bool) -> Result<Option<String>, Error> {
    if asked || scheduler.takes_trees_of(&kind) {
        scheduler.set_trees(Some(kind))?;
        return Ok(None);
    }
    let name = kind.name();
    let lookup = match kind {
        TreeKind::Lade(settings) => Some(of_text(settings)),
        TreeKind::Ssd(_) => None,
    };
    scheduler.set_base(scheduler.base().clone().with_lookup(lookup));
    Ok(Some(note(name, lookup.is_some())))
}

/// Has a second model draft for a scheduler's replies where its cache keeps several sequences; what a user should know where not.
///
/// # Errors
/// [`Error::Serving`]: the models do not go together; `asked` for by `--spec` and not possible.
pub(crate) fn set_draft_model(
    scheduler: &mut Scheduler,
    mut model: Box<dyn TokenModel>,
    (len, map): (usize, Option<VocabularyMap>),
    asked: bool,
) -> Result<Option<String>, Error> {
    if asked || Scheduler::takes_drafts_of(&mut *model) {
        scheduler.set_draft_model(model, len, map)?;
        return Ok(None);
    }
    let note = "the draft model of `spd` has one sequence at a time in its cache: replies are those of `basic`. There are no drafts; \
                `--spec lookup` makes some.";
    Ok(Some(note.to_owned()))
}

/// As [`set_trees`], with a second model that makes them.
///
/// # Errors
/// [`Error::Serving`]: the models do not go together; `asked` for by `--spec` and not taken.
pub(crate) fn set_tree_model(
    scheduler: &mut Scheduler,
    model: Box<dyn TokenModel>,
    (settings, map): (EagletSettings, Option<VocabularyMap>),
    asked: bool,
) -> Result<Option<String>, Error> {
    if asked || scheduler.takes_trees() {
        scheduler.set_tree_model(model, settings, map)?;
        return Ok(None);
    }
    Ok(Some(note("eaglet", false)))
}

fn note(kind: &str, has_ngrams: bool) -> String {
    let drafts = match has_ngrams {
        true => "Drafts are n-grams of the text, as of `--spec lookup`.",
        false => "There are no drafts; `--spec lookup` and `--spec draft:BUNDLE` make some.",
    };
    format!(
        "`{kind}` drafts trees of tokens, which the steps of this model do not hold: replies are those of `basic`. {drafts}"
    )
}

/// The n-grams that `lade` keeps of a text, without its window.
fn of_text(settings: LadeSettings) -> LookupSettings {
    LookupSettings { draft_len: settings.ngram.saturating_sub(1).max(1), ..LookupSettings::default() }
}

/// Drafts of this kind cannot be rows of one sequence beside others'.
fn refused(speculation: &Speculation, kind: &str) -> Error {
    let found = match speculation {
        Speculation::Script(_) => "drafts of a script".to_owned(),
        _ => format!("`{kind}`"),
    };
    let expected =
        "a dialog that answers one request with one reply, or the drafts of `lookup`, `lade`, `ssd`, `draft:BUNDLE` or `eaglet:BUNDLE`"
            .into();
    Error::Dialog(DialogError::Kind { kind: "serving", expected, found })
}

//! Dialog kinds: who decides which tokens the model processes next.
//!
//! A kind is one file in this folder and one row of [`KINDS`]. It drives a [`Decoding`], which does what all kinds share:
//! history, sampling, stop rules, limits. How to add one: `docs/add-a-dialog-kind.md`.

pub mod backoff;
mod basic;
mod eaglet;
mod kv_share;
mod lade;
mod lookup;
mod multistream;
mod scripted;
mod spd;
mod ssd;
mod time_budget;
pub(crate) mod tree_drafts;
mod tree_kind;
mod vocabulary_map;

use engine::TokenModel;

use crate::config::DialogConfig;
use crate::conversation::codes::{SentenceCode, StopReason};
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::kpi::Speculation;

pub use basic::Basic;
pub use eaglet::{Eaglet, EagletSettings, EagletTrees, EarlyStop, TreeWish};
pub use kv_share::{CacheRoute, KvShare};
pub use lade::{Lade, LadeSettings, UpdateMode};
pub use lookup::{Lookup, LookupSettings};
pub use multistream::MultiStream;
pub use scripted::{Script, Scripted};
pub use spd::Spd;
pub use ssd::{BranchMode, Branches, Ssd, SsdSettings};
pub use tree_kind::TreeKind;
pub use vocabulary_map::VocabularyMap;

/// A way to generate a reply. One value serves all queries of a dialog.
pub trait DialogKind: Send {
    /// Genie's name for it, as in a config's `type`.
    fn name(&self) -> &'static str;

    /// One step of the reply: delivers at least one token, or returns why the reply ends. The first step of a query
    /// processes its input. The caller gives out what was delivered and checks signals between steps.
    ///
    /// # Errors
    /// Whatever the model, the sampler or the tokenizer refuses.
    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError>;

    /// The reply is over, for whatever reason: sequences beside the dialog's are given back.
    ///
    /// # Errors
    /// The model refuses.
    fn clean_up(&mut self, _decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        Ok(())
    }

    /// Whether token queries are taken; libGenie refuses them for some kinds.
    fn takes_tokens(&self, _as_genie: bool) -> bool {
        true
    }

    /// Refuses models that it cannot work with. Asked as the dialog gets the kind, and once more as it gets a second model.
    ///
    /// # Errors
    /// [`DialogError::Kind`].
    fn check(&self, _models: &Models<'_>) -> Result<(), DialogError> {
        Ok(())
    }

    /// Refuses two models whose caches do not go together. Asked as [`check`](Self::check) is, once there are two.
    ///
    /// # Errors
    /// A model whose cache cannot be saved; caches of other shapes.
    fn check_caches(&self, _main: &mut dyn TokenModel, _second: &mut dyn TokenModel) -> Result<(), DialogError> {
        Ok(())
    }

    /// Most tokens that the models hold for a dialog of this kind.
    fn context_size(&self, models: &Models<'_>) -> usize {
        models.main.context_size()
    }

    /// Puts into the model what the kind needs there beside the dialog. Asked as the dialog gets the kind, and before every query:
    /// a reset may have taken it away.
    ///
    /// # Errors
    /// What is needed cannot be read; the model refuses it.
    fn prepare(&mut self, _model: &mut dyn TokenModel) -> Result<(), DialogError> {
        Ok(())
    }

    /// Rows of the cache that [`prepare`](Self::prepare) takes, by which the context is shorter.
    fn n_reserved(&self) -> usize {
        0
    }

    /// Whether a reply begins with an empty chunk, which counts as a token; libGenie does so for some kinds.
    fn begins_empty(&self, _as_genie: bool) -> bool {
        false
    }

    /// Whether a later turn begins with a BOS alone, without the reply's last token and a stop token, as libGenie has it for some
    /// kinds.
    fn turns_begin_with_bos(&self, _as_genie: bool) -> bool {
        false
    }

    /// The sentence code of a reply's first chunk.
    fn first_code(&self) -> SentenceCode {
        SentenceCode::Begin
    }

    /// Counts at the beginning of a query, for a kind that drafts.
    fn speculation(&self) -> Option<Speculation> {
        None
    }

    /// The model has processed the input of a query that wants no reply.
    ///
    /// # Errors
    /// Whatever the other model refuses.
    fn prefilled(&mut self, _decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        Ok(())
    }

    /// The reply is over: nothing more is drawn.
    ///
    /// # Errors
    /// Whatever the other model refuses.
    fn finished(&mut self, _decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        Ok(())
    }

    /// The dialog is reset, or another one is restored: what was learnt from it is forgotten.
    fn forget(&mut self) {}
}

/// The models of a dialog, as a kind sees them before the first query.
#[derive(Clone, Copy)]
pub struct Models<'m> {
    /// The one that answers.
    pub main: &'m dyn TokenModel,
    /// The other one of two; a dialog whose kind needs one may get it a moment later.
    pub second: Option<&'m dyn TokenModel>,
}

/// A row of the table: Genie's name, and how a kind is made from a config.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// Genie's name.
    pub name: &'static str,
    /// Makes it.
    pub open: fn(&DialogConfig) -> Result<Box<dyn DialogKind>, DialogError>,
}

/// The kinds that this build has.
pub const KINDS: &[KindRow] = &[
    KindRow { name: "basic", open: |_| Ok(Box::new(Basic)) },
    KindRow {
        name: "eaglet",
        open: |config| {
            Ok(Box::new(Eaglet::new(EagletSettings::of_config(config))?.with_map(VocabularyMap::of_config(config)?)))
        },
    },
    KindRow { name: "kv-share", open: |config| Ok(Box::new(KvShare::new(CacheRoute::of_config(config)))) },
    KindRow { name: "lade", open: |config| Ok(Box::new(Lade::new(LadeSettings::of_config(config)))) },
    KindRow {
        name: "multistream",
        open: |config| {
            let found = config.multistream().map_or((1, 0.0), |streams| (streams.n_streams, streams.p_threshold));
            Ok(Box::new(MultiStream::new(found.0, found.1)?))
        },
    },
    KindRow {
        name: "spd",
        open: |config| {
            Ok(Box::new(
                Spd::new(config.kind_blocks().draft_len.unwrap_or(0)).with_map(VocabularyMap::of_config(config)?),
            ))
        },
    },
    KindRow { name: "ssd-q1", open: |config| Ok(Box::new(Ssd::new(SsdSettings::of_config(config))?)) },
];

/// Opens the kind that a config's `type` names.
///
/// # Errors
/// [`DialogError::UnknownKind`]; whatever the kind refuses.
pub fn open(config: &DialogConfig) -> Result<Box<dyn DialogKind>, DialogError> {
    match KINDS.iter().find(|row| row.name == config.kind()) {
        Some(row) => (row.open)(config),
        None => Err(DialogError::UnknownKind { kind: config.kind().to_owned(), supported: names() }),
    }
}

fn names() -> Vec<&'static str> {
    KINDS.iter().map(|row| row.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_configs_may_ask_for() {
        assert_eq!(names(), genie_bundle::config::DIALOG_KINDS);
    }
}

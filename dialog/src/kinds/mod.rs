//! Dialog kinds: who decides which tokens the model processes next.
//!
//! A kind is one file in this folder and one row of [`KINDS`]. It drives a [`Decoding`], which does what all kinds share:
//! history, sampling, stop rules, limits. How to add one: `docs/add-a-dialog-kind.md`.

mod basic;
mod multistream;

use crate::config::DialogConfig;
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;

pub use basic::Basic;
pub use multistream::MultiStream;

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
    fn finish(&mut self, _decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        Ok(())
    }

    /// Whether token queries are taken; libGenie refuses them for some kinds.
    fn takes_tokens(&self, _as_genie: bool) -> bool {
        true
    }
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
        name: "multistream",
        open: |config| {
            let found = config.multistream().map_or((1, 0.0), |streams| (streams.n_streams, streams.p_threshold));
            Ok(Box::new(MultiStream::new(found.0, found.1)?))
        },
    },
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

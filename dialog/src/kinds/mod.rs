//! Dialog kinds: who decides which tokens the model processes next.
//!
//! A kind is one file in this folder and one row of [`KINDS`]. It drives a [`Generation`], which does what all kinds share:
//! history, sampling, stop rules, callbacks, limits, KPIs. How to add one: `docs/add-a-dialog-kind.md`.

mod basic;

use crate::config::DialogConfig;
use crate::conversation::error::DialogError;
use crate::conversation::generation::Generation;
use crate::conversation::codes::StopReason;

pub use basic::Basic;

/// A way to generate a reply. One value serves all queries of a dialog.
pub trait DialogKind: Send {
    /// Genie's name for it, as in a config's `type`.
    fn name(&self) -> &'static str;

    /// Processes the input of a query and delivers the first token of the reply.
    ///
    /// # Errors
    /// Whatever the model, the sampler or the tokenizer refuses.
    fn start(&mut self, generation: &mut Generation<'_>) -> Result<Option<StopReason>, DialogError> {
        generation.start()
    }

    /// Delivers at least one more token, or stops.
    ///
    /// # Errors
    /// Whatever the model, the sampler or the tokenizer refuses.
    fn step(&mut self, generation: &mut Generation<'_>) -> Result<Option<StopReason>, DialogError>;
}

/// A row of the table: Genie's name, and how a kind is made from a config.
pub struct KindRow {
    /// Genie's name.
    pub name: &'static str,
    /// Makes it.
    pub open: fn(&DialogConfig) -> Result<Box<dyn DialogKind>, DialogError>,
}

/// The kinds that this build has.
pub const KINDS: &[KindRow] = &[KindRow { name: "basic", open: |_| Ok(Box::new(Basic)) }];

/// Opens the kind that a config's `type` names.
///
/// # Errors
/// [`DialogError::UnknownKind`]; whatever the kind refuses.
pub fn open(config: &DialogConfig) -> Result<Box<dyn DialogKind>, DialogError> {
    let row = KINDS.iter().find(|row| row.name == config.kind());
    let row = row.ok_or_else(|| DialogError::UnknownKind { kind: config.kind().to_owned(), supported: names() })?;
    (row.open)(config)
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

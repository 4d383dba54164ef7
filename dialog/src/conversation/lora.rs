//! LoRA adapters of a dialog: applying them, setting their strengths. The rules are the engine's.
//!
//! *The cache stays*: tokens that were processed keep the rows that the adapters before gave them, as in libGenie. The report says
//! how many there are; [`Dialog::reset`] forgets them.

use std::time::Instant;

use engine::{EngineError, LoraModel, LoraSwitch};

use super::dialog::Dialog;
use super::error::DialogError;

/// The engine of a dialog that has one.
pub const PRIMARY: &str = "primary";
/// Roles of the engine that answers.
const MAIN: &[&str] = &[PRIMARY, "target"];
/// Roles of the one beside it.
const OTHER: &[&str] = &["draft", "secondary"];

impl Dialog {
    /// Applies one adapter of an engine, named by its role, and no others: libGenie's `applyLora`.
    ///
    /// # Errors
    /// No such engine or adapter; sections that the backend does not take.
    pub fn apply_lora(&mut self, role: &str, adapter: &str) -> Result<LoraSwitch, DialogError> {
        self.apply_loras(role, &[(adapter, None)])
    }

    /// Applies several adapters at once, each with a strength of its own or the one it had, and no others; none of them is the
    /// model without adapters.
    ///
    /// # Errors
    /// As [`Self::apply_lora`]; two that cannot be applied at once.
    pub fn apply_loras(&mut self, role: &str, adapters: &[(&str, Option<f32>)]) -> Result<LoraSwitch, DialogError> {
        let began = Instant::now();
        let first = adapters.first().map_or("", |(name, _)| name);
        let switch = self.lora_of(role, first).and_then(|lora| Ok(lora.apply_lora(adapters)?));
        // libGenie leaves an event of a switch that failed, too.
        self.profile.applied_lora(began, began.elapsed());
        switch
    }

    /// Sets a strength by the name of its input: libGenie's `setLoraStrength`. It acts while an adapter that has it is applied,
    /// also one that is applied later.
    ///
    /// # Errors
    /// No such engine or input; a number that is not finite.
    pub fn set_lora_strength(&mut self, role: &str, alpha: &str, strength: f32) -> Result<(), DialogError> {
        Ok(self.lora_of(role, alpha)?.set_lora_strength(alpha, strength)?)
    }

    /// The adapters of an engine.
    ///
    /// # Errors
    /// No such engine; a model that can have none.
    pub fn lora(&mut self, role: &str) -> Result<&mut dyn LoraModel, DialogError> {
        self.lora_of(role, "")
    }

    fn lora_of(&mut self, role: &str, wanted: &str) -> Result<&mut dyn LoraModel, DialogError> {
        let has_second = self.second.is_some();
        let engine = match &mut self.second {
            _ if MAIN.contains(&role) => &mut self.model,
            Some(second) if OTHER.contains(&role) => second,
            _ => {
                let known = if has_second { [MAIN, OTHER].concat() } else { MAIN.to_vec() };
                return Err(DialogError::UnknownRole { role: role.into(), known });
            }
        };
        engine.lora().ok_or_else(|| EngineError::NoAdapters { wanted: wanted.into() }.into())
    }
}

//! Errors that a caller tells apart, whatever exactly they are.

use kvmanager::{KvError, PlanError};

use crate::EngineError;

impl EngineError {
    /// True where LoRA adapters cannot be applied or set.
    pub fn is_about_lora(&self) -> bool {
        matches!(
            self,
            Self::NoAdapters { .. }
                | Self::UnknownAdapter { .. }
                | Self::UnknownAlpha { .. }
                | Self::LoraStrength { .. }
                | Self::NoStrength { .. }
                | Self::SharedAlpha { .. }
                | Self::SectionCount { .. }
                | Self::Sections { .. }
                | Self::SectionsStay { .. }
        )
    }

    /// Whether the model has no place for that many rows at once, where fewer may fit.
    pub fn does_not_fit(&self) -> bool {
        let in_plan = |e: &PlanError| matches!(e, PlanError::NoRoom { .. } | PlanError::Shared);
        match self {
            Self::Overflow(_) | Self::DraftTooLong { .. } => true,
            Self::Plan(e) => in_plan(e),
            _ => false,
        }
    }

    /// Whether the cache cannot go back as far as was asked: the tokens have to be processed again.
    pub fn rows_are_gone(&self) -> bool {
        matches!(self, Self::Kv(KvError::Rewind { .. }))
    }
}

//! `basic`: one token at a time. Sample, deliver, process, and again.

use super::DialogKind;
use crate::conversation::codes::StopReason;
use crate::conversation::error::DialogError;
use crate::conversation::generation::Generation;

/// Genie's `basic` dialog.
#[derive(Clone, Copy, Debug, Default)]
pub struct Basic;

impl DialogKind for Basic {
    fn name(&self) -> &'static str {
        "basic"
    }

    fn step(&mut self, generation: &mut Generation<'_>) -> Result<Option<StopReason>, DialogError> {
        generation.advance()
    }
}

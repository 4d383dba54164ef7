//! `basic`: one token at a time. Process, sample, deliver, and again.

use super::DialogKind;
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;

/// Genie's `basic` dialog.
#[derive(Clone, Copy, Debug, Default)]
pub struct Basic;

impl DialogKind for Basic {
    fn name(&self) -> &'static str {
        "basic"
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        decoding.advance()
    }
}

//! Dialog kinds: who decides which tokens the model is asked about next.
//!
//! `basic` is the one there is. Others (`spd`, `lade`, `ssd-q1`, ...) implement [`DialogKind`] on the same [`Turn`],
//! which does what all kinds share: history, stop rules, callbacks, limits, KPIs.

use super::codes::StopReason;
use super::error::DialogError;
use super::turn::Turn;

/// A way to generate a reply.
pub trait DialogKind {
    /// Genie's name for it.
    fn name(&self) -> &'static str;

    /// Generates until something says stop.
    ///
    /// # Errors
    /// Whatever the model, the sampler or the tokenizer refuses.
    fn generate(&mut self, turn: &mut Turn<'_>) -> Result<StopReason, DialogError>;
}

/// One token at a time: sample, deliver, process, and again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Basic;

impl DialogKind for Basic {
    fn name(&self) -> &'static str {
        "basic"
    }

    fn generate(&mut self, turn: &mut Turn<'_>) -> Result<StopReason, DialogError> {
        let mut next = turn.start()?;
        loop {
            if let Some(reason) = turn.deliver(next)? {
                return Ok(reason);
            }
            match turn.advance()? {
                Some(token) => next = token,
                None => return Ok(StopReason::ContextLimit),
            }
        }
    }
}

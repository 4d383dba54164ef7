//! Dialog kinds: who decides which tokens the model is asked about next.
//!
//! `basic` is the one there is. Others (`spd`, `lade`, `ssd-q1`, ...) implement [`DialogKind`] on the same [`Turn`],
//! which does what all kinds share: history, stop rules, callbacks, limits, KPIs.

use super::codes::StopReason;
use super::error::DialogError;
use super::turn::Turn;

/// A way to generate a reply.
pub trait DialogKind: Send {
    /// Genie's name for it.
    fn name(&self) -> &'static str;

    /// One step of the reply: delivers at least one token, or returns why the reply ends. The caller checks limits and
    /// signals between steps.
    ///
    /// # Errors
    /// Whatever the model, the sampler or the tokenizer refuses.
    fn step(&mut self, turn: &mut Turn<'_>) -> Result<Option<StopReason>, DialogError>;
}

/// One token at a time: sample, deliver, process, and again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Basic;

impl DialogKind for Basic {
    fn name(&self) -> &'static str {
        "basic"
    }

    fn step(&mut self, turn: &mut Turn<'_>) -> Result<Option<StopReason>, DialogError> {
        match turn.next_token()? {
            Some(token) => turn.deliver(token),
            None => Ok(Some(StopReason::ContextLimit)),
        }
    }
}

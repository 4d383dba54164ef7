//! What the real Genie does with a prompt that its rule has no place for, under the policy that gives up where it does.

use genie_types::{TokenId, Variant};
use kvmanager::Policy;

use crate::run::Want;
use crate::{Engine, EngineError, Executor};

impl<X: Executor> Engine<X> {
    /// What the real one does before it answers status 4: the pieces that fit, then the one that does not, on the largest
    /// CL; nobody sees its logits. Then back to where the call began, which the real one does not do.
    pub(crate) fn give_up(&mut self, tokens: &[TokenId], n_past: usize, n_piece: usize) -> EngineError {
        let before = self.mark();
        let (len, pos) = (before.len, before.pos);
        self.books[0].extend(tokens, pos);
        let done = self.run_doomed(len, pos, n_past, n_piece);
        self.repair(before, done.err().unwrap_or(EngineError::GenieGivesUp { n_past, n_piece }))
    }

    fn run_doomed(&mut self, len: usize, pos: usize, n_past: usize, n_piece: usize) -> Result<(), EngineError> {
        let fitting = self.kv.plan(n_past - pos, &Policy::Genie)?;
        self.run_steps(fitting.steps(), len, len, Want::Nothing)?;
        // Where even the start of the piece lies beyond that graph's past, the real one reads nonsense; ours leaves it.
        let whole = self.kv.plan(n_piece, &Policy::Lenient)?;
        let doomed = doomed_variant(&self.layout.variants, n_piece);
        match whole.steps() {
            [step, ..] if step.n_process == n_piece && Some(step.spec) == doomed => {
                let at = len + n_past - pos;
                let is_last = at + n_piece == self.books[0].len();
                self.step(step, at, if is_last { n_piece - 1..n_piece } else { 0..0 }, None)
            }
            _ => Ok(()),
        }
    }
}

/// The graph that the real one takes for a piece that fits none: of the largest CL, the smallest AR that holds the piece,
/// else the largest.
fn doomed_variant(variants: &[Variant], n_piece: usize) -> Option<Variant> {
    let cl = variants.iter().map(|v| v.cl()).max()?;
    let of_cl = || variants.iter().copied().filter(|v| v.cl() == cl);
    let holds = of_cl().filter(|v| v.ar().get() >= n_piece).min_by_key(|v| v.ar());
    holds.or_else(|| of_cl().max_by_key(|v| v.ar()))
}

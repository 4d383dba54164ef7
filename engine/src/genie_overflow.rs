//! Emulates libGenie's behaviour when no graph fits a chunk of a prompt (`--policy genie`).

use genie_types::Variant;
use kvmanager::{LogitsRequest, Overflow, Policy};

use crate::run::{SeqTokens, Stepping};
use crate::{Engine, EngineError, Executor};

impl<X: Executor> Engine<X> {
    /// Runs what libGenie runs before it returns status 4: the chunks that fit, then the one that does not, on the largest
    /// CL, whose logits are discarded. Then back to where the call began, which libGenie does not do.
    pub(crate) fn genie_overflow(&mut self, input: SeqTokens<'_>, n_past: usize, n_piece: usize) -> EngineError {
        let before = self.mark(input.seq);
        self.sequences.of_mut(input.seq).extend(input.tokens, before.pos);
        let done = self.run_overflow(&before, n_past, n_piece);
        let error = match done {
            Ok(()) => Overflow::GenieGivesUp { n_past, n_piece }.into(),
            Err(EngineError::Stopped { n_new, .. }) => EngineError::Stopped { n_processed: 0, n_new },
            Err(error) => error,
        };
        self.rollback(&[before], error)
    }

    fn run_overflow(
        &mut self,
        before: &crate::rollback::Mark,
        n_past: usize,
        n_piece: usize,
    ) -> Result<(), EngineError> {
        let mut discard = |_: usize, _: usize, _: &[f32]| ();
        let fitting = self.kv.plan(&[(before.seq, n_past - before.pos)], &Policy::Genie)?;
        self.run_steps(fitting.steps(), &[*before], Stepping::GoOn, LogitsRequest::Nothing.into(), &mut discard)?;
        // Where even the start of the chunk lies beyond that graph's past, libGenie reads nonsense; ours leaves it.
        let whole = self.kv.plan(&[(before.seq, n_piece)], &Policy::Lenient)?;
        let chosen = overflow_variant(&self.graphs.layout.variants, n_piece);
        match whole.steps() {
            [step, ..] if step.n_process() == n_piece && Some(step.variant) == chosen => {
                let (step, before) = (std::slice::from_ref(step), [*before]);
                self.run_steps(step, &before, Stepping::GoOn, LogitsRequest::Last.into(), &mut discard)
            }
            _ => Ok(()),
        }
    }
}

/// The graph that libGenie takes for a chunk that fits none: of the largest CL, the smallest AR that holds the chunk, else
/// the largest.
fn overflow_variant(variants: &[Variant], n_piece: usize) -> Option<Variant> {
    let cl = variants.iter().map(|v| v.cl()).max()?;
    let of_cl = || variants.iter().copied().filter(|v| v.cl() == cl);
    let holds = of_cl().filter(|v| v.ar().get() >= n_piece).min_by_key(|v| v.ar());
    holds.or_else(|| of_cl().max_by_key(|v| v.ar()))
}

//! Steps that take tokens of several sequences at once, prefill and decode mixed.

use super::{InferenceStep, KvState, PlanError, Policy, Variants, plan};

/// Tokens of one sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the sequence in the request.
    pub index: usize,
    /// Its tokens in this step.
    pub n: usize,
}

/// One step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchStep {
    /// The shape and the rows; `n_past` counts rows here, since every sequence has positions of its own.
    pub step: InferenceStep,
    /// Whose tokens fill it, in column order.
    pub spans: Vec<Span>,
}

/// Plans the new tokens of several sequences that share a cache of `n_rows` rows. `sequences` holds each one's past
/// and new tokens; earlier ones come first, so put those that decode before those that prefill.
///
/// # Errors
/// [`PlanError::ContextExceeded`] for the first sequence that would pass the limit, and as [`plan()`] for the rows of
/// all; [`PlanError::Shared`] when only a graph without past could take them.
pub fn plan_batch(
    n_rows: usize,
    sequences: &[(usize, usize)],
    variants: &Variants,
    policy: &Policy,
) -> Result<Vec<BatchStep>, PlanError> {
    let limit = variants.limit();
    if let Some(&(n_past, n_new)) = sequences.iter().find(|&&(past, new)| past + new > limit) {
        return Err(PlanError::ContextExceeded { n_past, n_new, limit });
    }
    let total = sequences.iter().map(|&(_, new)| new).sum();
    let strategy = plan(&KvState::at(n_rows), variants, total, policy)?;
    if strategy.first() != n_rows || strategy.steps().iter().any(|s| s.spec.is_full_context() && n_rows > 0) {
        return Err(PlanError::Shared);
    }
    let mut queue = sequences.iter().enumerate().map(|(index, &(_, n))| Span { index, n }).filter(|s| s.n > 0);
    let mut current = queue.next();
    let mut steps = Vec::with_capacity(strategy.steps().len());
    for &step in strategy.steps() {
        let mut spans = Vec::new();
        let mut room = step.n_process;
        while let Some(span) = current.as_mut().filter(|_| room > 0) {
            let n = span.n.min(room);
            spans.push(Span { index: span.index, n });
            room -= n;
            span.n -= n;
            if span.n == 0 {
                current = queue.next();
            }
        }
        steps.push(BatchStep { step, spans });
    }
    Ok(steps)
}

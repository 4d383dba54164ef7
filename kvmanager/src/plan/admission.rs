//! Admission: how many tokens a cache can still take, and what stops it, before any of them is processed.

use super::{KvState, Request, Variants, crowding};
use core::fmt;

/// What stops a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextLimit {
    /// Positions end: `min(size, largest CL)`.
    Context {
        /// The limit.
        limit: usize,
    },
    /// Rows end: no graph sees more than these with the rows there are.
    Rows {
        /// Rows that the best graph sees, new ones included.
        reach: usize,
    },
}

/// How many tokens fit, and why no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Tokens that fit: a plan for this many exists, for one more none does.
    pub n_fit: usize,
    /// What stops the next one.
    pub bound: ContextLimit,
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            ContextLimit::Context { limit } => write!(f, "{} tokens fit; the context ends at {limit}", self.n_fit),
            ContextLimit::Rows { reach } => {
                write!(f, "{} tokens fit; no graph that holds the rows there are sees more than {reach}", self.n_fit)
            }
        }
    }
}

/// How many tokens of one sequence [`plan`](super::plan()) accepts from a state.
pub fn admit(state: &KvState, variants: &Variants) -> Admission {
    let &KvState { n_past, n_valid_kv, own_rows, .. } = state;
    let variants = variants.with_logits();
    let endless = Request { n_past, n_new: usize::MAX / 2, own_rows, ..Request::default() };
    let ends = crowding::crowded(state, &[endless], variants);
    let variants = ends.as_ref().unwrap_or(variants);
    let left = variants.limit().saturating_sub(n_past);
    let with_past = variants.candidates().iter().filter(|s| n_valid_kv <= s.cap && !s.variant.is_full_context());
    let with_past = with_past.map(|s| s.cap.saturating_add(s.ar()) - n_valid_kv).max().unwrap_or(0);
    // A graph without past takes the whole history again.
    let without = variants.all().iter().filter(|s| s.is_full_context());
    let without = without.map(|s| s.ar().get().saturating_sub(n_past)).max().unwrap_or(0);
    let rows = with_past.max(without);
    if left <= rows {
        Admission { n_fit: left, bound: ContextLimit::Context { limit: variants.limit() } }
    } else {
        Admission { n_fit: rows, bound: ContextLimit::Rows { reach: n_valid_kv + rows } }
    }
}

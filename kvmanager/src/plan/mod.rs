//! Plans new tokens of some sequences as a list of graph executions. Pure: numbers in, numbers out.
//!
//! *Units*: tokens. *Variants*: a concat graph sees `cl - ar` rows of past, a scatter graph `cl`.
//!
//! *What fits*. A step runs when the rows in the cache fit the past of its graph as it starts (`n_valid_kv <=
//! cl - ar`, both forms), and when positions stay below the limit (`n_past + n <= min(size, largest CL)`).
//! So AR-1 at CL-128 runs with 127 rows and yields the logits of token 128: a context of 128 serves a prompt of 128.
//! The rows of such a last step lie beyond its own graph's past; the cache keeps them by widening (see
//! [`Step::commit`](crate::Step::commit)), so that rewinding and saving stay exact.
//!
//! *Several sequences* share the rows of the cache: the steps take the requests in order, prefill and decode mixed. Put
//! those that decode before those that prefill.
//!
//! *Invariants*: the steps' columns are the tokens asked for (the whole sequence when it is processed again, see
//! [`Plan::is_reprocess`]); `0 < n_process <= AR`; the same input gives the same plan.
//!
//! *Source*: the rules measured on libGenie 1.21 (recordings in `testdata/`); names follow Genie's `InferenceStep`.

mod admission;
mod columns;
mod cost;
mod crowding;
mod logits;
mod overflow;
mod policy;
pub mod serve;
mod step;
mod tree;
mod variants;
mod walk;

#[cfg(test)]
mod edge_tests;
#[cfg(test)]
mod tests;

pub use crate::geometry::KvForm;
pub use admission::{Admission, ContextLimit, admit};
pub use columns::{Column, Columns, SequenceSlice};
pub use cost::CostTable;
pub use crowding::GroupRows;
pub use logits::{LogitsRequest, plan_into};
pub use overflow::Overflow;
pub use policy::Policy;
pub use step::{FmtWriter, InferenceStep, MaskCol, Numbered, Plan};
pub use tree::{Tree, TreeColumn, TreeFault};
pub use variants::Variants;

use crate::cells::SeqId;
use crate::group::{CacheGroup, Eviction, MAX_GROUPS};
use genie_types::Variant;
use walk::Walk;

/// What the cache holds, and where one sequence stands in it.
///
/// The two numbers differ once long context has evicted rows, or while other sequences have rows in the cache too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvState {
    /// Tokens the sequence has seen: the position of its next one.
    pub n_past: usize,
    /// Rows filled in the cache, of all sequences.
    pub n_valid_kv: usize,
    /// The variant the cache is laid out for; `None` before the first step. Only `FixedVariant` and `Cost` look at it.
    pub variant: Option<Variant>,
    /// Other sequences have rows too, so that a graph without past cannot start over.
    pub shared: bool,
    /// Rows of each cache group with a window that other sequences have, or this one together with others.
    pub other_rows: GroupRows,
    /// Rows of each cache group with a window that are this sequence's alone. Only [`admit`] looks at it.
    pub own_rows: GroupRows,
}

impl KvState {
    /// One sequence of which nothing was evicted, and no variant yet.
    pub const fn at(n_past: usize) -> Self {
        Self {
            n_past,
            n_valid_kv: n_past,
            variant: None,
            shared: false,
            other_rows: GroupRows::NONE,
            own_rows: GroupRows::NONE,
        }
    }
}

/// New tokens of one sequence, to be planned for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The sequence.
    pub seq: SeqId,
    /// Position of its next token.
    pub n_past: usize,
    /// Its new tokens.
    pub n_new: usize,
    /// Rows of each cache group with a window that are this sequence's alone, where several have rows.
    pub own_rows: GroupRows,
}

/// Why no plan was made. Nothing has run and nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An empty set of variants.
    #[error("no variants to plan with: the bundle holds no decoder graph")]
    NoVariants,
    /// `context.size` is zero or asks for more than the widest graph sees.
    #[error("context size {size} does not fit the graphs: expected 1 to {max_ctx}, the largest CL loaded")]
    BadSize {
        /// The size asked for.
        size: usize,
        /// The largest CL there is.
        max_ctx: usize,
    },
    /// A cache group that cannot work with the variants there are.
    #[error("cache group {index} (`{prefix}`): {why}")]
    BadGroup {
        /// Its number; 0 is the default group.
        index: usize,
        /// Its prefix.
        prefix: String,
        /// The reason.
        why: String,
    },
    /// The tokens do not fit the context.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// A sequence number that no cache has.
    #[error("sequence {} does not exist: expected 0 to {}", .seq.0, SeqId::COUNT - 1)]
    UnknownSequence {
        /// The number.
        seq: SeqId,
    },
    /// The same sequence twice in one plan.
    #[error("sequence {} is requested twice, at places {first} and {second}", .seq.0)]
    SequenceTwice {
        /// The sequence.
        seq: SeqId,
        /// Its first place.
        first: usize,
        /// Its second place.
        second: usize,
    },
    /// The context has room, but no graph's past holds the rows that are there.
    #[error(
        "no graph can go on: {n_valid_kv} rows of past and {n_new} new tokens, but the graphs that reach \
         {} rows hold at most {widest_past} of past", .n_valid_kv + .n_new
    )]
    NoRoom {
        /// Rows in the cache.
        n_valid_kv: usize,
        /// Tokens asked for.
        n_new: usize,
        /// The widest past among the graphs long enough, 0 if there are none.
        widest_past: usize,
    },
    /// A cache group with a window cannot hold the windows of all sequences.
    #[error(
        "cache group `{prefix}` is full: other sequences have {n_other} rows there, and a step can start with at most {room}"
    )]
    GroupFull {
        /// Its prefix.
        prefix: String,
        /// Rows of other sequences.
        n_other: usize,
        /// The most rows with which a step can start.
        room: usize,
    },
    /// Only a graph without past (AR == CL) could take the tokens, and it would drop the rows of other sequences.
    #[error("no graph with a past can take these tokens, and one without past would drop the rows of other sequences")]
    Shared,
    /// The cost table lacks a variant.
    #[error("the cost table has no time for {variant}: calibrate again or choose policy `lenient`")]
    MissingCost {
        /// The variant without a time.
        variant: Variant,
    },
    /// A time or rate that is negative, infinite or not a number.
    #[error("cost of {what} is {value}: expected a finite number of at least 0")]
    BadCost {
        /// What the number was for.
        what: String,
        /// The number, as text.
        value: String,
    },
}

/// What must hold for the cache groups of a set of variants.
fn check_groups(variants: &[Variant], groups: &[CacheGroup]) -> Result<(), PlanError> {
    let bad = |index: usize, why: String| {
        let prefix = groups.get(index).map_or_else(String::new, |g| g.prefix.clone());
        Err(PlanError::BadGroup { index, prefix, why })
    };
    if groups.is_empty() || groups.len() > MAX_GROUPS {
        return bad(0, format!("found {} groups, expected 1 to {MAX_GROUPS}", groups.len()));
    }
    for (index, group) in groups.iter().enumerate() {
        match group.long {
            Eviction::Window { size: 0, .. } | Eviction::FirstFit { size: 0, .. } => {
                return bad(index, "window size 0, expected at least 1".to_owned());
            }
            Eviction::KeyDiff { update_every: 0, .. } => {
                return bad(index, "0 steps between scorings, expected at least 1".to_owned());
            }
            _ => {}
        }
        let narrow = variants.iter().find(|&&s| group.ctx_of(s) < s.ar().get());
        if let Some(variant) = narrow {
            return bad(index, format!("context of {} is shorter than the step of {variant}", group.ctx_of(*variant)));
        }
    }
    Ok(())
}

/// Plans new tokens of one or more sequences. Of `state`, only the rows count; positions are those of the requests.
///
/// Allocates the returned list, the columns of steps that mix sequences and, under `Cost`, its tables; nothing else.
///
/// # Errors
/// [`PlanError`]; tokens for which any sequence of steps exists are planned by every policy except `Genie`.
pub fn plan(state: &KvState, requests: &[Request], variants: &Variants, policy: &Policy) -> Result<Plan, PlanError> {
    let mut plan = Plan::default();
    plan_into(state, requests, variants, policy, LogitsRequest::Last, &mut plan)?;
    Ok(plan)
}

/// Plans over all of a set, whichever variants have logits. The tokens fit the context.
fn plan_any(
    state: &KvState,
    requests: &[Request],
    variants: &Variants,
    policy: &Policy,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let n_new = requests.iter().map(|request| request.n_new).sum();
    if n_new == 0 {
        *plan = Plan::new(plan.take_steps());
        return Ok(());
    }
    let (n_valid_kv, target) = (state.n_valid_kv, state.n_valid_kv + n_new);
    let alone = requests.len() == 1 && !state.shared;
    let gate = variants.widest_past(target);
    let gate = match gate {
        Some(gate) if n_valid_kv <= gate && !variants.is_full_context_only() => gate,
        _ => {
            let widest_past = gate.unwrap_or(0);
            // Only a graph without past can take this, with all tokens from the first on.
            let n = requests.iter().map(|request| request.n_past + request.n_new).sum();
            let variant = variants.full_context(n).ok_or(PlanError::NoRoom { n_valid_kv, n_new, widest_past })?;
            let again = requests.iter().any(|request| request.n_past > 0);
            if !alone && (again || n_valid_kv > 0) {
                return Err(PlanError::Shared);
            }
            let whole = |r: &Request| SequenceSlice { seq: r.seq, first: 0, n: r.n_past + r.n_new };
            *plan = Plan::without_past(plan.take_steps(), variant, requests.iter().map(whole).collect(), again);
            return Ok(());
        }
    };
    *plan = Plan::new(plan.take_steps());
    walk_to((target, gate), state, requests, variants, policy, plan)?;
    if !alone && n_valid_kv > 0 && plan.steps().iter().any(|step| step.variant.is_full_context()) {
        *plan = Plan::default();
        return Err(PlanError::Shared);
    }
    Ok(())
}

/// Adds the steps from the rows there are to the target. Each ends at the target or at most at the gate.
fn walk_to(
    (target, gate): (usize, usize),
    state: &KvState,
    requests: &[Request],
    variants: &Variants,
    policy: &Policy,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let mut walk = Walk::new(state, requests, variants, target, gate, core::mem::take(plan).into_steps());
    match policy {
        Policy::Lenient => walk.lenient(),
        // Where its default group drops rows, libGenie takes its older loop.
        Policy::Genie if variants.groups()[0].evicts() => walk.fixed(state.variant),
        Policy::Genie => walk.genie()?,
        Policy::FixedVariant => walk.fixed(state.variant),
        Policy::Cost(table) => cost::run(&mut walk, state.variant, table)?,
    }
    *plan = walk.finish();
    Ok(())
}

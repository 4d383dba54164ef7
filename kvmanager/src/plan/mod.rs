//! Plans one turn as a list of graph executions. Pure: numbers in, numbers out.
//!
//! *Units*: tokens. *Shapes*: a concat graph sees `cl - ar` rows of past, a scatter graph `ctx_size`.
//!
//! *What fits*. A step runs when the rows in the cache fit the past of its graph as it starts (`n_valid_kv <=
//! cl - ar`, both forms), and when positions stay below the limit (`n_past + n <= min(size, largest CL)`).
//! So AR-1 at CL-128 runs with 127 rows and yields the logits of token 128: a context of 128 serves a prompt of 128.
//! The rows of such a last step lie beyond its own graph's past; the cache keeps them by widening (see
//! [`KvCache::commit`](crate::KvCache::commit)), so that rewinding and saving stay exact.
//!
//! *Invariants*: the steps' `n_process` add up to the tokens asked for (to the whole history when it is
//! reprocessed, see [`Plan::first`]); `0 < n_process <= variant`; the same input gives the same plan.
//!
//! *Source*: the rules measured on libGenie 1.21 (recordings in `testdata/`); names follow Genie's `InferenceStep`.

mod admission;
mod batch;
mod cost;
mod policy;
mod step;
mod variants;
mod walk;

#[cfg(test)]
mod tests;

pub use crate::geometry::KvForm;
pub use admission::{Admission, Bound, admit};
pub use batch::{BatchStep, Span, plan_batch};
pub use cost::CostTable;
pub use policy::Policy;
pub use step::{InferenceStep, MaskCol, Plan};
pub use variants::Variants;

use crate::group::{CacheGroup, LongContext, MAX_GROUPS};
use genie_types::Variant;
use walk::Walk;

/// How far the dialog has come.
///
/// The two numbers differ once long context has evicted rows, or while other sequences have rows in the cache too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvState {
    /// Tokens the dialog has seen: the position of the next one.
    pub n_past: usize,
    /// Rows filled in the cache.
    pub n_valid_kv: usize,
    /// The shape the cache has now; `None` before the first step. Only `FixedVariant` and `Cost` look at it.
    pub variant: Option<Variant>,
}

impl KvState {
    /// A state that has evicted nothing and holds no shape yet.
    pub const fn at(n_past: usize) -> Self {
        Self { n_past, n_valid_kv: n_past, variant: None }
    }
}

/// Why no plan was made. Nothing has run and nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An empty set of shapes.
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
    /// A cache group that cannot work with the shapes there are.
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
    #[error("context limit exceeded: {n_past} past + {n_new} new tokens > {limit}")]
    ContextExceeded {
        /// Tokens seen before.
        n_past: usize,
        /// Tokens asked for.
        n_new: usize,
        /// The limit: `min(size, largest CL)`.
        limit: usize,
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
    /// `Genie` only: the real library executes this piece and then gives up with status 4.
    #[error("libGenie gives up at {n_past} past tokens with a chunk of {n_piece}; policy `lenient` goes on")]
    GenieGivesUp {
        /// Tokens processed before the piece.
        n_past: usize,
        /// Tokens of the piece.
        n_piece: usize,
    },
    /// Other sequences have rows in a group that evicts, or only a graph without past could go on.
    #[error("other sequences have rows in this cache, and no plan for one alone keeps them: run the steps as batches")]
    Shared,
    /// The cost table lacks a shape.
    #[error("the cost table has no time for {spec}: calibrate again or choose policy `lenient`")]
    MissingCost {
        /// The shape without a time.
        spec: Variant,
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

/// What must hold for the cache groups of a set of shapes.
fn check_groups(specs: &[Variant], groups: &[CacheGroup]) -> Result<(), PlanError> {
    let bad = |index: usize, why: String| {
        let prefix = groups.get(index).map_or_else(String::new, |g| g.prefix.clone());
        Err(PlanError::BadGroup { index, prefix, why })
    };
    if groups.is_empty() || groups.len() > MAX_GROUPS {
        return bad(0, format!("found {} groups, expected 1 to {MAX_GROUPS}", groups.len()));
    }
    for (index, group) in groups.iter().enumerate() {
        match group.long {
            LongContext::Window { size: 0, .. } => return bad(index, "window size 0, expected at least 1".to_owned()),
            LongContext::KeyDiff { update_every: 0, .. } => {
                return bad(index, "0 steps between scorings, expected at least 1".to_owned());
            }
            _ => {}
        }
        let narrow = specs.iter().find(|&&s| group.ctx_of(s) < s.ar().get());
        if let Some(spec) = narrow {
            return bad(index, format!("context of {} is shorter than the step of {spec}", group.ctx_of(*spec)));
        }
    }
    Ok(())
}

/// Plans `n_inputs` new tokens from `state`.
///
/// Allocates the returned list and, under `Cost`, its tables; nothing else.
///
/// # Errors
/// [`PlanError`]; a prompt for which any sequence of steps exists is served by every policy but `Genie`.
pub fn plan(state: &KvState, variants: &Variants, n_inputs: usize, policy: &Policy) -> Result<Plan, PlanError> {
    let mut strategy = Plan::default();
    plan_into(state, variants, n_inputs, policy, &mut strategy)?;
    Ok(strategy)
}

/// The same into a strategy that is there already: allocates nothing while its list is long enough (but for `Cost`).
///
/// # Errors
/// As [`plan`]; the strategy is then as it was or empty.
pub fn plan_into(
    state: &KvState,
    variants: &Variants,
    n_inputs: usize,
    policy: &Policy,
    strategy: &mut Plan,
) -> Result<(), PlanError> {
    let &KvState { n_past, n_valid_kv, .. } = state;
    if n_inputs == 0 {
        *strategy = Plan::new(strategy.take_steps(), n_past);
        return Ok(());
    }
    let limit = variants.limit();
    let end = n_past.checked_add(n_inputs).filter(|&end| end <= limit).ok_or(PlanError::ContextExceeded {
        n_past,
        n_new: n_inputs,
        limit,
    })?;

    let target = n_valid_kv + n_inputs;
    let gate = variants.widest_past(target);
    if variants.is_full_context_only() || gate.is_none_or(|gate| n_valid_kv > gate) {
        // Only a graph without past can serve this: it takes the whole history again.
        return match variants.full_context(end) {
            Some(spec) => {
                *strategy = Plan::reprocess(strategy.take_steps(), spec, end);
                Ok(())
            }
            None => Err(PlanError::NoRoom { n_valid_kv, n_new: n_inputs, widest_past: gate.unwrap_or(0) }),
        };
    }
    let mut walk = Walk::new(state, variants, target, gate.unwrap_or(0), strategy.take_steps());
    match policy {
        Policy::Lenient => walk.serve(),
        Policy::Genie => walk.genie()?,
        Policy::FixedVariant => walk.fixed(state.variant),
        Policy::Cost(table) => cost::run(&mut walk, state.variant, table)?,
    }
    *strategy = walk.finish();
    Ok(())
}

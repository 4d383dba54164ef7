//! Plans for sets in which some variants end in cache rows and have no logits.
//!
//! All but the last tokens of a prompt may run on any variant; the last token needs one with logits. So a prompt is cut in
//! two: its body is planned over all variants, its end over those with logits. The end is the last chunk where one such
//! graph holds all of it, else the last token alone, and never so short that no graph with logits reaches it.

use super::{KvState, Overflow, Plan, PlanError, Policy, Request, Variants, crowding, plan_any, walk_to};

/// Which new tokens' logits are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogitsRequest {
    /// None: any variant may run.
    Nothing,
    /// Those of the last token of each sequence.
    #[default]
    Last,
    /// Those of every token.
    Each,
}

/// Plans new tokens of one or more sequences into a plan that exists; for one sequence it allocates nothing while the
/// list is long enough (except under `Cost`).
///
/// # Errors
/// As [`plan`](super::plan()); the plan is then as it was or empty.
pub fn plan_into(
    state: &KvState,
    requests: &[Request],
    variants: &Variants,
    policy: &Policy,
    wanted: LogitsRequest,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let limit = variants.limit();
    // No new tokens fit anywhere, even behind a shift beyond the limit.
    for &Request { n_past, n_new, .. } in requests.iter().filter(|request| request.n_new > 0) {
        if n_past.checked_add(n_new).is_none_or(|end| end > limit) {
            return Err(Overflow::ContextExceeded { n_past, n_new, limit }.into());
        }
    }
    let Some(ends) = crowding::crowded(state, requests, variants) else {
        return plan_in_two(state, requests, variants, policy, wanted, plan);
    };
    plan_in_two(state, requests, &ends, policy, wanted, plan).map_err(|error| match error {
        PlanError::NoRoom { .. } | PlanError::Shared => crowding::full_group(state, variants).unwrap_or(error),
        error => error,
    })
}

/// Plans tokens whose positions are within the limit: the body, then the end.
fn plan_in_two(
    state: &KvState,
    requests: &[Request],
    variants: &Variants,
    policy: &Policy,
    wanted: LogitsRequest,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let ending = variants.with_logits();
    let (only, n_body) = match (wanted, requests) {
        (LogitsRequest::Nothing, _) => return plan_any(state, requests, variants, policy, plan),
        (LogitsRequest::Last, &[only]) if !core::ptr::eq(ending, variants) => {
            (only, only.n_new - n_end(state, only.n_new, variants, ending))
        }
        _ => return plan_any(state, requests, ending, policy, plan),
    };
    let body = [Request { n_new: n_body, ..only }];
    let planned = if n_body > 0 { plan_any(state, &body, variants, policy, plan) } else { Ok(()) };
    match planned {
        Err(PlanError::Overflow(stop)) => return Err(stop.into()),
        Ok(()) if n_body > 0 && !plan.is_reprocess() => {}
        // A body that has no plan of its own: the graphs with logits take everything.
        _ => return plan_any(state, requests, ending, policy, plan),
    }
    let variant = plan.steps().last().map(|step| step.variant);
    let rows = state.n_valid_kv + n_body;
    let there = KvState { n_valid_kv: rows, variant, ..*state };
    let end = [Request { n_past: only.n_past + n_body, n_new: only.n_new - n_body, ..only }];
    let target = rows + end[0].n_new;
    let gate = ending.widest_past(target).expect("the end was chosen so that a graph with logits reaches it");
    walk_to((target, gate), &there, &end, ending, policy, plan)
}

/// How many of the last new tokens run on variants with logits; all of them if there is no other way.
fn n_end(state: &KvState, n_new: usize, variants: &Variants, ending: &Variants) -> usize {
    let target = state.n_valid_kv + n_new;
    let gate = ending.widest_past(target).filter(|&gate| state.n_valid_kv <= gate && !ending.is_full_context_only());
    let (Some(gate), true) = (gate, n_new > 0) else { return n_new };
    let chunk = (n_new - 1) % variants.ar_max() + 1;
    let holds = ending.candidates().iter().any(|s| s.ar() >= chunk && target - chunk <= s.cap);
    let least = if holds { chunk } else { 1 };
    least.max(target.saturating_sub(gate)).min(n_new)
}

#[cfg(test)]
mod tests {
    use genie_types::Variant;

    use super::*;
    use crate::geometry::KvForm;
    use crate::plan::CostTable;

    fn variant(ar: u32, cl: u32) -> Variant {
        Variant::new(ar, cl).unwrap()
    }

    /// `all`, of which `silent` have no logits.
    fn variants(all: &[(u32, u32)], silent: &[(u32, u32)]) -> Variants {
        let set = Variants::new(all.iter().map(|&(ar, cl)| variant(ar, cl)), KvForm::Concat, None).unwrap();
        let silent: Vec<Variant> = silent.iter().map(|&(ar, cl)| variant(ar, cl)).collect();
        set.giving_logits(|v| !silent.contains(&v)).unwrap()
    }

    fn steps(set: &Variants, n_past: usize, n_new: usize, wanted: LogitsRequest) -> Vec<(usize, usize, usize)> {
        let (state, request) = (KvState::at(n_past), Request { n_past, n_new, ..Request::default() });
        let mut plan = Plan::default();
        plan_into(&state, &[request], set, &Policy::Lenient, wanted, &mut plan).unwrap();
        let mut at = n_past;
        for step in plan.steps() {
            assert_eq!((step.n_past(), step.n_valid_kv), (at, at), "{plan:?}");
            at += step.n_process();
        }
        assert_eq!(at, n_past + n_new, "{plan:?}");
        plan.steps().iter().map(|s| (s.variant.ar().get(), s.variant.cl().get(), s.n_process())).collect()
    }

    #[test]
    fn a_prompt_ends_on_a_graph_with_logits() {
        use LogitsRequest::{Each, Last, Nothing};
        let two = variants(&[(1, 128), (32, 128)], &[(32, 128)]);
        let three = variants(&[(1, 128), (8, 128), (32, 128)], &[(32, 128)]);
        type Case<'a> = (&'a Variants, usize, usize, LogitsRequest, &'a [(usize, usize, usize)]);
        // No wide graph with logits holds what is there: one token is left to the narrow one, not a whole chunk.
        let short = variants(&[(1, 128), (8, 16), (32, 128)], &[(32, 128)]);
        let cases: [Case<'_>; 9] = [
            (&short, 0, 68, Last, &[(32, 128, 32), (32, 128, 32), (32, 128, 3), (1, 128, 1)]),
            (&two, 0, 1, Last, &[(1, 128, 1)]),
            (&two, 0, 33, Last, &[(32, 128, 32), (1, 128, 1)]),
            (&two, 0, 64, Last, &[(32, 128, 32), (32, 128, 31), (1, 128, 1)]),
            (&two, 0, 64, Nothing, &[(32, 128, 32), (32, 128, 32)]),
            (&two, 40, 3, Each, &[(1, 128, 1), (1, 128, 1), (1, 128, 1)]),
            (&three, 0, 40, Last, &[(32, 128, 32), (8, 128, 8)]),
            (&three, 0, 41, Last, &[(32, 128, 32), (8, 128, 8), (1, 128, 1)]),
            (&three, 0, 12, Last, &[(32, 128, 11), (1, 128, 1)]),
        ];
        for (set, n_past, n_new, wanted, want) in cases {
            assert_eq!(steps(set, n_past, n_new, wanted), want, "{n_new} after {n_past}, {wanted:?}");
        }
    }

    #[test]
    fn where_libgenie_gives_up_in_the_body_the_prompt_is_refused() {
        // Two graphs with logits could take it token by token; libGenie does not try.
        let set = variants(&[(1, 128), (32, 64)], &[(32, 64)]);
        let (state, request) = (KvState::at(60), Request { n_past: 60, n_new: 40, ..Request::default() });
        let made =
            |policy: &Policy| plan_into(&state, &[request], &set, policy, LogitsRequest::Last, &mut Plan::default());
        assert_eq!(made(&Policy::Lenient), Ok(()));
        let refused = made(&Policy::Genie);
        assert!(matches!(refused, Err(PlanError::Overflow(Overflow::GenieGivesUp { n_past: 60, .. }))), "{refused:?}");
    }

    #[test]
    fn every_prompt_that_the_graphs_with_logits_reach_has_a_plan_under_every_policy() {
        let sets = [
            variants(&[(1, 64), (16, 64)], &[(16, 64)]),
            variants(&[(1, 64), (8, 64), (16, 64), (1, 96), (16, 96)], &[(16, 64), (16, 96)]),
            variants(&[(8, 64), (16, 64)], &[(16, 64)]),
            variants(&[(1, 64), (16, 64), (4, 96)], &[(1, 64), (16, 64)]),
            variants(&[(1, 64), (16, 64), (64, 64)], &[(16, 64), (64, 64)]),
        ];
        for set in &sets {
            let table = CostTable::new(set.all().iter().map(|&v| (v, 10.0 + v.ar().get() as f64)), 1.0, 0.1).unwrap();
            let ending = set.with_logits();
            for policy in [Policy::Lenient, Policy::FixedVariant, Policy::Cost(table.into())] {
                for n_past in [0, 1, 17, 47, 60] {
                    let fit = crate::plan::admit(&KvState::at(n_past), set).n_fit;
                    for n_new in (1..=fit + 1).step_by(if cfg!(miri) { 16 } else { 1 }) {
                        let (state, request) = (KvState::at(n_past), Request { n_past, n_new, ..Request::default() });
                        let mut plan = Plan::default();
                        let made = plan_into(&state, &[request], set, &policy, LogitsRequest::Last, &mut plan);
                        assert_eq!(made.is_ok(), n_new <= fit, "{set:?} {policy:?}: {n_new} after {n_past}: {made:?}");
                        let Ok(()) = made else { continue };
                        let last = plan.steps().last().unwrap();
                        assert!(ending.contains(last.variant), "{plan:?}");
                        let mut at = n_past;
                        for step in plan.steps() {
                            assert!(step.n_process() <= step.variant.ar().get() && at <= step.variant.past_capacity());
                            at += step.n_process();
                        }
                        assert_eq!(at, n_past + n_new);
                    }
                }
            }
        }
    }

    #[test]
    fn sequences_together_run_on_graphs_with_logits() {
        let set = variants(&[(1, 64), (8, 64), (32, 64)], &[(32, 64)]);
        let requests =
            [(0, 1), (1, 11)].map(|(seq, n_new)| Request { seq: crate::SeqId(seq), n_new, ..Request::default() });
        let mut plan = Plan::default();
        let state = KvState { shared: true, ..KvState::default() };
        plan_into(&state, &requests, &set, &Policy::Lenient, LogitsRequest::Last, &mut plan).unwrap();
        assert!(plan.steps().iter().all(|step| step.variant.ar().get() <= 8), "{plan:?}");
        assert_eq!(plan.n_tokens(), 12);
    }

    #[test]
    fn a_set_without_logits_is_refused() {
        let set = Variants::new([variant(1, 64)], KvForm::Concat, None).unwrap();
        assert_eq!(set.giving_logits(|_| false).unwrap_err(), PlanError::NoVariants);
    }
}

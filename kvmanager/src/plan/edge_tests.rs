//! The planner at its edges: exact bounds, refusals of every kind, and what its small functions say.

use super::*;
use std::sync::Arc;

fn spec(ar: u32, cl: u32) -> Variant {
    Variant::new(ar, cl).unwrap()
}

fn specs(list: &[(u32, u32)]) -> Variants {
    Variants::new(list.iter().map(|&(ar, cl)| spec(ar, cl)), KvForm::Concat, None).unwrap()
}

fn with_group(list: &[(u32, u32)], group: CacheGroup, size: Option<usize>) -> Result<Variants, PlanError> {
    Variants::with_groups(list.iter().map(|&(ar, cl)| spec(ar, cl)), vec![group], size)
}

fn evicting(long: Eviction) -> CacheGroup {
    CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) }
}

fn one(state: &KvState, variants: &Variants, n_new: usize, policy: &Policy) -> Result<Plan, PlanError> {
    plan(state, &[Request { n_past: state.n_past, n_new, ..Request::default() }], variants, policy)
}

#[test]
fn rows_stop_a_dialog_before_positions_do() {
    // 80 rows fit the past of AR-1 CL-100 alone, which sees 100; the wide graph would see 128 but holds 64 of past.
    let variants = specs(&[(1, 100), (64, 128)]);
    let found = admit(&KvState::at(80), &variants);
    assert_eq!(found, Admission { n_fit: 20, bound: ContextLimit::Rows { reach: 100 } });
    // With fewer rows than tokens, what is left of the graph counts from the rows.
    let found = admit(&KvState { n_valid_kv: 70, ..KvState::at(80) }, &variants);
    assert_eq!(found, Admission { n_fit: 30, bound: ContextLimit::Rows { reach: 100 } });
    assert_eq!(admit(&KvState::at(64), &variants).bound, ContextLimit::Context { limit: 128 });
    // Only a graph without past is left: it takes the whole history again.
    let found = admit(&KvState::at(20), &specs(&[(1, 16), (64, 64)]));
    assert_eq!(found, Admission { n_fit: 44, bound: ContextLimit::Context { limit: 64 } });
    let past_end = KvState { n_valid_kv: 3, ..KvState::at(200) };
    assert_eq!(admit(&past_end, &variants).n_fit, 0);
}

#[test]
fn cost_tables_refuse_what_is_no_time() {
    let table = |step: f64, switch: f64, per_row: f64| {
        CostTable::new([(spec(8, 128), 2.0), (spec(1, 128), step)], switch, per_row).map_err(|e| e.to_string())
    };
    let expected = "expected a finite number of at least 0";
    assert_eq!(table(-1.0, 0.0, 0.0).unwrap_err(), format!("cost of ar1_cl128 is -1: {expected}"));
    assert_eq!(table(f64::INFINITY, 0.0, 0.0).unwrap_err(), format!("cost of ar1_cl128 is inf: {expected}"));
    assert_eq!(table(0.0, -0.5, 0.0).unwrap_err(), format!("cost of switch_us is -0.5: {expected}"));
    assert_eq!(table(0.0, 0.0, f64::NAN).unwrap_err(), format!("cost of switch_us_per_row is NaN: {expected}"));
    let table = table(0.0, 7.0, 0.5).unwrap();
    assert_eq!(table.steps(), [(spec(1, 128), 0.0), (spec(8, 128), 2.0)], "sorted");
    assert_eq!([table.step_us(spec(8, 128)), table.step_us(spec(9, 128))], [Some(2.0), None]);
    assert_eq!([table.switch_us(0), table.switch_us(10)], [7.0, 12.0]);
    assert_eq!((table.n_expected(), table.expecting(3).n_expected()), (0, 3));
}

#[test]
fn the_time_of_a_plan_counts_steps_and_changes() {
    let variants = specs(&[(1, 128), (8, 128)]);
    let plan = one(&KvState::at(10), &variants, 17, &Policy::Lenient).unwrap();
    // 8, 8 and 1 tokens; the last step starts with 26 rows.
    let table = CostTable::new([(spec(1, 128), 3.0), (spec(8, 128), 5.0)], 100.0, 2.0).unwrap();
    assert_eq!(table.total_us(plan.steps(), None), Ok(13.0 + 100.0 + 52.0));
    assert_eq!(table.total_us(plan.steps(), Some(spec(8, 128))), Ok(13.0 + 100.0 + 52.0));
    assert_eq!(table.total_us(plan.steps(), Some(spec(1, 128))), Ok(13.0 + 200.0 + 20.0 + 52.0));
    let short = CostTable::new([(spec(8, 128), 5.0)], 0.0, 0.0).unwrap();
    assert_eq!(short.total_us(plan.steps(), None), Err(PlanError::MissingCost { variant: spec(1, 128) }));
}

#[test]
fn policies_have_the_names_of_the_command_line() {
    let cost = Policy::Cost(Arc::new(CostTable::default()));
    let names = [Policy::Lenient, Policy::Genie, Policy::FixedVariant, cost].map(|policy| policy.name());
    assert_eq!(names, ["lenient", "genie", "fixed-variant", "cost"]);
}

#[test]
fn variants_say_what_they_are() {
    let variants = specs(&[(32, 64), (1, 128), (8, 64), (8, 64), (4, 128)]);
    assert_eq!(variants.all(), [spec(8, 64), spec(32, 64), spec(1, 128), spec(4, 128)]);
    assert_eq!((variants.ar_max(), variants.max_ctx(), variants.limit()), (32, 128, 128));
    assert!(variants.contains(spec(1, 128)) && !variants.contains(spec(2, 128)));
    assert!(!variants.is_full_context_only() && specs(&[(8, 8), (16, 16)]).is_full_context_only());
    assert_eq!((variants.form(), variants.groups().len()), (KvForm::Concat, 1));
    assert_eq!(Variants::new([], KvForm::Concat, None).unwrap_err(), PlanError::NoVariants);
}

#[test]
fn sizes_and_groups_are_checked_at_their_bounds() {
    let sized = |size| Variants::new([spec(1, 128)], KvForm::Concat, Some(size)).map(|variants| variants.limit());
    assert_eq!([sized(1), sized(128)], [Ok(1), Ok(128)]);
    assert_eq!(sized(0), Err(PlanError::BadSize { size: 0, max_ctx: 128 }));
    assert_eq!(sized(129), Err(PlanError::BadSize { size: 129, max_ctx: 128 }));
    // Where rows are evicted, positions may go on; a size of 0 is none still.
    let ring = |size| with_group(&[(1, 128)], evicting(Eviction::Ring { sinks: 4 }), Some(size));
    assert_eq!(ring(1000).unwrap().limit(), 1000);
    assert_eq!(ring(0).unwrap_err(), PlanError::BadSize { size: 0, max_ctx: 128 });

    let groups = |n: usize| {
        let groups = vec![CacheGroup::plain(KvForm::Concat); n];
        Variants::with_groups([spec(1, 128)], groups, None).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(groups(MAX_GROUPS), Ok(()));
    assert_eq!(groups(0).unwrap_err(), "cache group 0 (``): found 0 groups, expected 1 to 4");
    assert_eq!(groups(5).unwrap_err(), "cache group 0 (`past_`): found 5 groups, expected 1 to 4");
    let refused = |group| with_group(&[(8, 128)], group, None).map(drop).map_err(|e| e.to_string());
    let window = |size| evicting(Eviction::Window { size, sinks: 0 });
    assert_eq!(refused(window(0)).unwrap_err(), "cache group 0 (`past_`): window size 0, expected at least 1");
    assert_eq!(refused(window(1)), Ok(()));
    let scored = |update_every| evicting(Eviction::KeyDiff { sinks: 1, update_every });
    assert_eq!(
        refused(scored(0)).unwrap_err(),
        "cache group 0 (`past_`): 0 steps between scorings, expected at least 1"
    );
    assert_eq!(refused(scored(1)), Ok(()));
    let narrow = |ctx| CacheGroup { ctx: vec![(spec(8, 128), ctx)], ..CacheGroup::plain(KvForm::Concat) };
    assert_eq!(
        refused(narrow(7)).unwrap_err(),
        "cache group 0 (`past_`): context of 7 is shorter than the step of ar8_cl128"
    );
    assert_eq!(refused(narrow(8)), Ok(()));
}

#[test]
fn a_group_that_evicts_starts_each_step_with_what_is_left() {
    let variants = with_group(&[(8, 32)], evicting(Eviction::Ring { sinks: 4 }), Some(1000)).unwrap();
    let plan = one(&KvState::at(20), &variants, 17, &Policy::Lenient).unwrap();
    let found: Vec<_> = plan.steps().iter().map(|s| (s.n_past(), s.n_valid_kv, s.n_process(), s.new_idx.0)).collect();
    assert_eq!(found, [(20, 20, 8, 24), (28, 24, 8, 24), (36, 24, 1, 24)]);
}

#[test]
fn nothing_to_do_is_a_plan_without_steps() {
    let variants = specs(&[(8, 32)]);
    let mut plan = one(&KvState::default(), &variants, 3, &Policy::Lenient).unwrap();
    plan_into(&KvState::default(), &[], &variants, &Policy::Lenient, LogitsRequest::Last, &mut plan).unwrap();
    assert!(plan.steps().is_empty() && !plan.is_reprocess() && plan.n_tokens() == 0);
    let at_end = one(&KvState::at(32), &variants, 0, &Policy::Lenient).unwrap();
    assert!(at_end.steps().is_empty());
    // A sum that no number holds is refused as any other that is too long.
    let request = Request { n_past: usize::MAX, n_new: 2, ..Request::default() };
    let refused = super::plan(&KvState::default(), &[request], &variants, &Policy::Lenient);
    assert_eq!(refused, Err(Overflow::ContextExceeded { n_past: usize::MAX, n_new: 2, limit: 32 }.into()));
}

#[test]
fn graphs_without_past_take_all_tokens_at_the_first_column() {
    for (form, first_step) in [(KvForm::Concat, 0), (KvForm::Scatter, 0)] {
        let variants = Variants::new([spec(16, 16), spec(64, 64)], form, None).unwrap();
        let fresh = one(&KvState::default(), &variants, 16, &Policy::Lenient).unwrap();
        assert_eq!((fresh.steps()[0].variant, fresh.is_reprocess()), (spec(16, 16), false));
        let again = one(&KvState::at(16), &variants, 1, &Policy::Lenient).unwrap();
        let step = &again.steps()[0];
        assert_eq!(
            (step.variant, step.n_process(), step.n_valid_kv, again.is_reprocess()),
            (spec(64, 64), 17, 0, true)
        );
        assert_eq!((step.past_idx.0, step.new_idx.0), (0, first_step));
        // Beside a graph with a past, a walk may begin with the one without.
        let variants = Variants::new([spec(1, 64), spec(64, 64)], form, None).unwrap();
        let fresh = one(&KvState::default(), &variants, 40, &Policy::Lenient).unwrap();
        let found: Vec<_> = fresh.steps().iter().map(|s| (s.variant, s.n_process(), s.new_idx.0)).collect();
        assert!(found.iter().all(|&(v, _, new)| !v.is_full_context() || new == 0), "{found:?}");
    }
}

#[test]
fn a_change_of_level_starts_from_the_one_there_is() {
    let variants = specs(&[(1, 64), (8, 64), (1, 128), (8, 128)]);
    let on = |cl: Option<u32>, past: usize, n: usize| {
        let state = KvState { variant: cl.map(|cl| spec(8, cl)), ..KvState::at(past) };
        let plan = one(&state, &variants, n, &Policy::FixedVariant).unwrap();
        plan.steps().iter().map(|s| (s.ar(), s.cl(), s.n_process())).collect::<Vec<_>>()
    };
    assert_eq!(on(None, 10, 1), [(1, 64, 1)]);
    assert_eq!(on(Some(64), 10, 1), [(1, 64, 1)]);
    assert_eq!(on(Some(128), 10, 1), [(1, 128, 1)], "it never goes down");
    assert_eq!(on(Some(64), 48, 9), [(8, 64, 8), (1, 128, 1)], "full at 56 rows");
}

#[test]
fn a_step_without_columns_stands_at_0() {
    let step = InferenceStep {
        variant: spec(8, 32),
        columns: Columns::default(),
        n_valid_kv: 5,
        past_idx: MaskCol(1),
        new_idx: MaskCol(2),
    };
    assert_eq!((step.ar(), step.cl(), step.n_past(), step.n_process()), (8, 32, 0, 0));
    assert_eq!(step.columns.slices().count(), 0, "not even an empty slice");
    assert_eq!(step.to_string(), "AR-8 CL-32 n_past=0 n_kv=5 n_process=0 @ past_idx=1 new_idx=2");
}

#[test]
fn policy_genie_takes_the_older_loop_where_rows_are_dropped() {
    let list = [(1, 64), (8, 64)];
    let window = with_group(&list, evicting(Eviction::Window { size: 16, sinks: 0 }), None).unwrap();
    let plain = with_group(&list, CacheGroup::plain(KvForm::Concat), None).unwrap();
    let graphs = |variants: &Variants, policy: &Policy| -> Vec<usize> {
        let request = Request { n_past: 0, n_new: 9, ..Request::default() };
        plan(&KvState::at(0), &[request], variants, policy).unwrap().steps().iter().map(|s| s.ar()).collect()
    };
    assert_eq!(graphs(&plain, &Policy::Genie), [8, 1]);
    assert_eq!(graphs(&window, &Policy::Genie), [8, 8], "one AR for all");
}

/// Policy `genie` never cuts a chunk: it runs it whole or gives up.
#[test]
fn policy_genie_runs_whole_chunks() {
    let mut n_refused = 0;
    for list in [
        vec![(1, 64), (8, 64)],
        vec![(8, 64), (32, 64)],
        vec![(1, 32), (8, 32), (8, 64)],
        vec![(32, 64), (1, 96), (4, 96)],
    ] {
        let variants = Variants::new(list.iter().map(|&(ar, cl)| spec(ar, cl)), KvForm::Concat, None).unwrap();
        let stride = if cfg!(miri) { 31 } else { 1 };
        for n_past in (0..96).step_by(stride) {
            for n_new in (1..=(96 - n_past)).step_by(stride) {
                let request = Request { n_past, n_new, ..Request::default() };
                let Ok(made) = plan(&KvState::at(n_past), &[request], &variants, &Policy::Genie) else {
                    n_refused += 1;
                    continue;
                };
                let mut left = n_new;
                for step in made.steps() {
                    assert_eq!(step.n_process(), left.min(variants.ar_max()), "{n_new} after {n_past}: {made:?}");
                    left -= step.n_process();
                }
            }
        }
    }
    assert!(n_refused > 0);
}

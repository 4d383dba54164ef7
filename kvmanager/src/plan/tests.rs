//! The planner against recordings of libGenie, against hand-made cases, and against its own promises.

use super::{Plan, *};
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_assume, proptest};
use proptest::strategy::Strategy as Generator;
use std::sync::Arc;

fn spec(ar: u32, cl: u32) -> Variant {
    Variant::new(ar, cl).unwrap()
}

fn grid(ars: &[u32], cls: &[u32]) -> Variants {
    let specs = cls.iter().flat_map(|&cl| ars.iter().map(move |&ar| spec(ar, cl)));
    Variants::new(specs, KvForm::Concat, None).unwrap()
}

fn specs(list: &[(u32, u32)]) -> Variants {
    Variants::new(list.iter().map(|&(ar, cl)| spec(ar, cl)), KvForm::Concat, None).unwrap()
}

/// Graphs of a plan as `AR/CL`, repeats as `xN`.
fn graphs(strategy: &Plan) -> String {
    let mut runs: Vec<(Variant, usize)> = Vec::new();
    for step in strategy.steps() {
        match runs.last_mut() {
            Some((last, n)) if *last == step.variant => *n += 1,
            _ => runs.push((step.variant, 1)),
        }
    }
    let text = runs.iter().map(|(spec, n)| {
        let repeats = if *n > 1 { format!("x{n}") } else { String::new() };
        format!("{}/{}{repeats}", spec.ar(), spec.cl())
    });
    text.collect::<Vec<_>>().join(" ")
}

/// Plans tokens of one sequence that stands where the state says.
fn plan_one(state: &KvState, variants: &Variants, n_new: usize, policy: &Policy) -> Result<Plan, PlanError> {
    plan(state, &[Request { n_past: state.n_past, n_new, ..Request::default() }], variants, policy)
}

fn planned(variants: &Variants, n_past: usize, n: usize, policy: &Policy) -> String {
    match plan_one(&KvState::at(n_past), variants, n, policy) {
        Ok(strategy) => graphs(&strategy),
        Err(e) => e.to_string(),
    }
}

#[test]
fn second_turns_run_the_graphs_that_were_recorded() {
    let variants = grid(&[1, 8, 32], &[128, 256]);
    let mut n_cases = 0;
    for line in include_str!("../../testdata/scheduler_two_turns.txt").lines().filter(|l| !l.starts_with('#')) {
        let (head, expected) = line.match_indices(' ').nth(2).map(|(i, _)| (&line[..i], &line[i + 1..])).unwrap();
        let head: Vec<usize> = head.split(' ').map(|n| n.parse().unwrap()).collect();
        let &[n_past, n_new, status] = head.as_slice() else { panic!("{line}") };
        // Where libGenie gives up (status 4) it has run the same graphs first.
        assert_eq!(planned(&variants, n_past, n_new, &Policy::Lenient), expected, "{line}");
        let strict = plan_one(&KvState::at(n_past), &variants, n_new, &Policy::Genie);
        assert_eq!(strict.is_err(), status == 4, "{line}: {strict:?}");
        n_cases += 1;
    }
    assert_eq!(n_cases, 226);
}

#[test]
fn first_turns_run_the_graphs_that_were_recorded() {
    // {1,8,32} x {128,256}: tokens with BOS, graphs. Measured on libGenie 1.21.
    let whole = |n32: usize, n32_256: usize, tail: &str| {
        let times = |graph: &str, n: usize| match n {
            0 => String::new(),
            1 => format!("{graph} "),
            _ => format!("{graph}x{n} "),
        };
        format!("{}{}{tail}", times("32/128", n32), times("32/256", n32_256)).trim().to_owned()
    };
    let cases = [
        (2..=8, whole(0, 0, "8/128")),
        (9..=32, whole(1, 0, "")),
        (33..=33, whole(1, 0, "1/128")),
        (34..=40, whole(1, 0, "8/128")),
        (41..=64, whole(2, 0, "")),
        (65..=65, whole(2, 0, "1/128")),
        (66..=72, whole(2, 0, "8/128")),
        (73..=96, whole(3, 0, "")),
        (97..=97, whole(3, 0, "1/128")),
        (98..=104, whole(3, 0, "8/128")),
        (105..=128, whole(3, 1, "")),
        (129..=129, whole(3, 1, "1/256")),
        (130..=136, whole(3, 1, "8/256")),
        (225..=225, whole(3, 4, "1/256")),
        (226..=232, whole(3, 4, "8/256")),
    ];
    let variants = grid(&[1, 8, 32], &[128, 256]);
    for (tokens, expected) in cases {
        for n in tokens {
            assert_eq!(planned(&variants, 0, n, &Policy::Genie), expected, "{n} tokens");
            assert_eq!(planned(&variants, 0, n, &Policy::Lenient), expected, "{n} tokens");
        }
    }
    for n in 233..=256 {
        let refused = planned(&variants, 0, n, &Policy::Genie);
        assert!(refused.starts_with("libGenie gives up at 224 past tokens"), "{refused}");
        assert_eq!(planned(&variants, 0, n, &Policy::Lenient), whole(3, 5, ""), "ours serves {n} tokens");
    }
}

#[test]
fn decoding_goes_down_to_the_small_context_again() {
    // 119 tokens: the last piece needs CL-256, then AR-1 fits CL-128 for 8 steps. Measured.
    let variants = grid(&[1, 8, 32], &[128, 256]);
    assert_eq!(planned(&variants, 0, 119, &Policy::Lenient), "32/128x3 32/256");
    let decode: Vec<_> = (119..129).map(|past| planned(&variants, past, 1, &Policy::Lenient)).collect();
    assert_eq!(decode, [vec!["1/128"; 8], vec!["1/256"; 2]].concat());
}

#[test]
fn cases_made_by_hand() {
    struct Case {
        variants: Variants,
        past: usize,
        n: usize,
        policy: Policy,
        expected: &'static str,
    }
    let case = |variants, past, n, policy, expected| Case { variants, past, n, policy, expected };
    let cases = [
        // The three examples of the planner's issue.
        case(grid(&[1, 8, 64], &[512]), 0, 50, Policy::Lenient, "64/512"),
        case(grid(&[1, 8, 64], &[512]), 0, 200, Policy::Lenient, "64/512x3 8/512"),
        case(grid(&[1, 8, 64], &[512]), 50, 1, Policy::Lenient, "1/512"),
        // The older loop pads the tail on the same graph and never goes down.
        case(grid(&[1, 8, 64], &[512]), 0, 200, Policy::FixedVariant, "64/512x4"),
        case(grid(&[1, 32], &[128, 256]), 0, 119, Policy::FixedVariant, "32/128x3 32/256"),
        case(grid(&[1, 32], &[128, 256]), 96, 1, Policy::FixedVariant, "1/128"),
        // Served where libGenie gives up: a tail too wide for the last CL runs as its last step,
        case(grid(&[1, 32], &[128]), 0, 98, Policy::Lenient, "32/128x4"),
        case(grid(&[1, 32], &[128]), 0, 128, Policy::Lenient, "32/128x4"),
        case(grid(&[1, 32], &[128]), 127, 1, Policy::Lenient, "1/128"),
        // is split when no such step is possible,
        case(grid(&[1, 32], &[128]), 100, 20, Policy::Lenient, "1/128x20"),
        case(grid(&[1, 8, 32], &[128]), 100, 28, Policy::Lenient, "8/128x3 1/128x4"),
        // and an AR-8 graph is never fed 32 tokens.
        case(specs(&[(8, 128), (1, 256), (32, 256)]), 0, 34, Policy::Lenient, "8/128x5"),
        // Six tokens first, or the last 32 would have no graph.
        case(specs(&[(32, 128), (1, 64)]), 90, 38, Policy::Lenient, "32/128x2"),
        // A wide graph without past serves a first prompt; later only the whole history fits it.
        case(specs(&[(1, 64), (128, 128)]), 0, 50, Policy::Lenient, "1/64x50"),
        case(specs(&[(1, 64), (128, 128)]), 0, 65, Policy::Lenient, "128/128"),
        case(specs(&[(1, 64), (128, 128)]), 64, 1, Policy::Lenient, "128/128"),
        case(specs(&[(16, 16), (64, 64)]), 10, 1, Policy::Lenient, "16/16"),
        case(specs(&[(16, 16), (64, 64)]), 16, 1, Policy::Lenient, "64/64"),
        // Refusals name the numbers.
        case(grid(&[1, 32], &[128]), 0, 129, Policy::Lenient, "context limit exceeded: 0 past + 129 new tokens > 128"),
        case(
            grid(&[32], &[128]),
            100,
            1,
            Policy::Lenient,
            "no graph can go on: 100 rows of past and 1 new tokens, but the graphs that reach 101 rows hold at most 96 of past",
        ),
    ];
    for Case { variants, past, n, policy, expected } in cases {
        assert_eq!(planned(&variants, past, n, &policy), expected, "{n} tokens at {past} over {:?}", variants.all());
    }
}

#[test]
fn a_size_below_the_context_limits_the_dialog() {
    let variants = Variants::new([spec(1, 256), spec(32, 256)], KvForm::Concat, Some(128)).unwrap();
    assert!(plan_one(&KvState::at(127), &variants, 1, &Policy::Lenient).is_ok());
    let err = plan_one(&KvState::at(128), &variants, 1, &Policy::Lenient).unwrap_err();
    assert_eq!(err, Overflow::ContextExceeded { n_past: 128, n_new: 1, limit: 128 }.into());
    let err = Variants::new([spec(1, 128)], KvForm::Concat, Some(256)).unwrap_err();
    assert_eq!(err.to_string(), "context size 256 does not fit the graphs: expected 1 to 128, the largest CL loaded");
}

#[test]
fn steps_print_as_genie_logs_them() {
    let strategy = plan_one(&KvState::default(), &grid(&[1, 32], &[128]), 33, &Policy::Lenient).unwrap();
    let lines: Vec<_> = strategy.steps().iter().enumerate().map(|(i, s)| s.numbered(i).to_string()).collect();
    assert_eq!(
        lines,
        [
            "Step 0: AR-32 CL-128 n_past=0 n_kv=0 n_process=32 @ past_idx=0 new_idx=96",
            "Step 1: AR-1 CL-128 n_past=32 n_kv=32 n_process=1 @ past_idx=0 new_idx=127",
        ]
    );
    assert_eq!(strategy.steps()[0].to_string(), lines[0]["Step 0: ".len()..]);
    assert_eq!(strategy.to_string(), lines.join("\n") + "\n");
}

/// A writer into a fixed buffer: what a logger without a heap would use.
struct Fixed([u8; 128], usize);

impl ufmt::uWrite for Fixed {
    type Error = core::convert::Infallible;

    fn write_str(&mut self, s: &str) -> Result<(), Self::Error> {
        self.0[self.1..self.1 + s.len()].copy_from_slice(s.as_bytes());
        self.1 += s.len();
        Ok(())
    }
}

#[test]
fn steps_print_without_a_heap() {
    let strategy = plan_one(&KvState::default(), &grid(&[1, 32], &[128]), 1, &Policy::Lenient).unwrap();
    let mut out = Fixed([0; 128], 0);
    ufmt::uwrite!(out, "{:?}", strategy.steps()[0]).unwrap();
    assert_eq!(
        std::str::from_utf8(&out.0[..out.1]).unwrap(),
        "AR-1 CL-128 n_past=0 n_kv=0 n_process=1 @ past_idx=0 new_idx=127"
    );
}

#[test]
fn scatter_graphs_put_new_columns_behind_the_past() {
    let variants = Variants::new([spec(1, 128), spec(32, 128)], KvForm::Scatter, None).unwrap();
    let strategy = plan_one(&KvState::default(), &variants, 34, &Policy::Lenient).unwrap();
    let columns: Vec<_> = strategy.steps().iter().map(|s| s.new_idx.0).collect();
    assert_eq!(columns, [0, 32]);
}

#[test]
fn cost_prefers_what_is_cheap() {
    let variants = grid(&[1, 8, 64], &[512]);
    let times = [(spec(1, 512), 10.0), (spec(8, 512), 25.0), (spec(64, 512), 100.0)];
    let policy = |switch| Policy::Cost(Arc::new(CostTable::new(times, switch, 0.0).unwrap()));
    // 72 = 64 + 8; with a dear switch the second AR-64 step is cheaper than changing to AR-8.
    assert_eq!(planned(&variants, 0, 72, &policy(0.0)), "64/512 8/512");
    assert_eq!(planned(&variants, 0, 72, &policy(80.0)), "64/512x2");
    // Landing exactly at a graph's capacity saves six AR-1 steps.
    let variants = grid(&[1, 32], &[128]);
    let table = CostTable::new([(spec(1, 128), 10.0), (spec(32, 128), 15.0)], 0.0, 0.0).unwrap();
    assert_eq!(planned(&variants, 90, 38, &Policy::Cost(Arc::new(table))), "32/128x2");
    let table = CostTable::new([(spec(1, 128), 10.0)], 0.0, 0.0).unwrap();
    let missing = planned(&variants, 0, 5, &Policy::Cost(Arc::new(table)));
    assert_eq!(missing, "the cost table has no time for ar32_cl128: calibrate again or choose policy `lenient`");
    let bad = CostTable::new([(spec(1, 128), f64::NAN)], 0.0, 0.0).unwrap_err();
    assert_eq!(bad.to_string(), "cost of ar1_cl128 is NaN: expected a finite number of at least 0");
}

#[test]
fn cost_demotes_where_it_pays() {
    // 40 rows in a cache of CL-512. A step of CL-128 saves 6 us, a change costs 100 us: it pays after 17 tokens.
    let variants = grid(&[1, 32], &[128, 512]);
    let times = [(spec(1, 128), 4.0), (spec(32, 128), 40.0), (spec(1, 512), 10.0), (spec(32, 512), 100.0)];
    let state = KvState { variant: Some(spec(1, 512)), ..KvState::at(40) };
    let first = |n_expected: usize, rows: usize| {
        let table = CostTable::new(times, 100.0, 0.0).unwrap().expecting(n_expected);
        assert_eq!(table.n_expected(), n_expected);
        let state = KvState { n_past: rows, n_valid_kv: rows, ..state };
        graphs(&plan_one(&state, &variants, 1, &Policy::Cost(Arc::new(table))).unwrap())
    };
    assert_eq!([0, 10, 15].map(|n| first(n, 40)), ["1/512"; 3], "too few tokens to pay for it");
    assert_eq!([16, 17, 80].map(|n| first(n, 40)), ["1/128"; 3]);
    // Near the end of the short context the saving is short too: the change would have to be undone.
    assert_eq!(first(1000, 120), "1/512");
    // And the other way: a prompt ends in the shape that its answer wants, here by promoting at once.
    let table = CostTable::new(times, 100.0, 0.0).unwrap().expecting(400);
    let state = KvState { variant: Some(spec(1, 128)), ..KvState::at(126) };
    assert_eq!(graphs(&plan_one(&state, &variants, 4, &Policy::Cost(Arc::new(table))).unwrap()), "1/128x2 1/512x2");
}

#[test]
fn admission_says_what_stops_it() {
    let says = |variants: &Variants, past| admit(&KvState::at(past), variants).to_string();
    assert_eq!(says(&grid(&[1, 32], &[128]), 100), "28 tokens fit; the context ends at 128");
    let only_wide = grid(&[32], &[128]);
    assert_eq!(says(&only_wide, 97), "0 tokens fit; no graph that holds the rows there are sees more than 97");
}

fn requests(sequences: &[(usize, usize)]) -> Vec<Request> {
    let request = |(i, &(n_past, n_new))| Request { seq: SeqId(i as u8), n_past, n_new, ..Request::default() };
    sequences.iter().enumerate().map(request).collect()
}

#[test]
fn decode_and_prefill_share_steps() {
    let variants = grid(&[1, 8, 32], &[128]);
    let plan = plan(&KvState::at(20), &requests(&[(10, 1), (10, 1), (0, 38)]), &variants, &Policy::Lenient).unwrap();
    let slices = |step: &InferenceStep| step.columns.slices().map(|s| (s.seq.0, s.first, s.n)).collect::<Vec<_>>();
    let found: Vec<_> = plan.steps().iter().map(slices).collect();
    assert_eq!(found, [vec![(0, 10, 1), (1, 10, 1), (2, 0, 30)], vec![(2, 30, 8)]]);
    assert_eq!(plan.steps()[1].variant, spec(8, 128));
    assert_eq!(plan.steps().iter().map(|s| s.columns.contiguous()).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_graph_without_past_drops_no_other_sequence() {
    let variants = specs(&[(1, 64), (128, 128)]);
    let both = requests(&[(0, 40), (0, 30)]);
    assert_eq!(plan(&KvState::at(0), &both, &variants, &Policy::Lenient).unwrap().n_tokens(), 70);
    assert_eq!(
        plan(&KvState::at(40), &requests(&[(40, 1), (0, 30)]), &variants, &Policy::Lenient),
        Err(PlanError::Shared)
    );
    let shared = KvState { shared: true, ..KvState::at(64) };
    assert_eq!(plan_one(&shared, &variants, 1, &Policy::Lenient), Err(PlanError::Shared));
    // Tokens whose rows are gone cannot be processed again beside another sequence.
    let whole_only = specs(&[(128, 128)]);
    let without_rows = KvState { shared: true, n_valid_kv: 0, ..KvState::at(5) };
    assert_eq!(plan_one(&without_rows, &whole_only, 1, &Policy::Lenient), Err(PlanError::Shared));
    let beside_rows = KvState { shared: true, n_valid_kv: 5, ..KvState::at(0) };
    assert_eq!(plan_one(&beside_rows, &whole_only, 10, &Policy::Lenient), Err(PlanError::Shared));
    assert!(plan_one(&KvState::at(64), &variants, 1, &Policy::Lenient).unwrap().is_reprocess());
}

/// The cheapest plan by trying every step length at every row.
fn brute_force_us(variants: &Variants, table: &CostTable, rows: usize, target: usize, last: Option<Variant>) -> f64 {
    let mut best = std::collections::HashMap::new();
    fn go(
        best: &mut std::collections::HashMap<(usize, Option<Variant>), f64>,
        (v, t): (&Variants, &CostTable),
        rows: usize,
        target: usize,
        last: Option<Variant>,
    ) -> f64 {
        if rows == target {
            return 0.0;
        }
        if let Some(&known) = best.get(&(rows, last)) {
            return known;
        }
        let mut least = f64::INFINITY;
        for &spec in v.all().iter().filter(|s| rows <= s.past_capacity()) {
            let switch = if last.is_none_or(|l| l == spec) { 0.0 } else { t.switch_us(rows) };
            for n in 1..=spec.ar().get().min(target - rows) {
                let rest = go(best, (v, t), rows + n, target, Some(spec));
                least = least.min(switch + t.step_us(spec).unwrap() + rest);
            }
        }
        best.insert((rows, last), least);
        least
    }
    go(&mut best, (variants, table), rows, target, last)
}

fn any_variants(max_cl: u32) -> impl Generator<Value = Variants> {
    let pair = (1..=max_cl).prop_flat_map(|cl| (1..=cl, Just(cl)));
    (prop::collection::vec(pair, 1..6), any::<bool>()).prop_map(|(pairs, scatter)| {
        let form = if scatter { KvForm::Scatter } else { KvForm::Concat };
        Variants::new(pairs.into_iter().map(|(ar, cl)| spec(ar, cl)), form, None).unwrap()
    })
}

/// What every plan promises; `rows` tells evicted dialogs from whole ones.
fn check(state: &KvState, variants: &Variants, n: usize, policy: &Policy, strategy: &Plan) {
    // A sequence without tokens begins at 0 in any case.
    let reprocessed = strategy.steps()[0].n_past() != state.n_past;
    assert_eq!(strategy.is_reprocess(), reprocessed);
    let (mut n_past, mut rows) = if reprocessed { (0, 0) } else { (state.n_past, state.n_valid_kv) };
    assert_eq!(strategy.n_tokens(), if reprocessed { state.n_past + n } else { n });
    for step in strategy.steps() {
        assert!(variants.contains(step.variant));
        assert!(0 < step.n_process() && step.n_process() <= step.ar(), "{step}");
        assert_eq!((step.n_past(), step.n_valid_kv), (n_past, rows), "{step}");
        assert!(step.variant.is_full_context() || step.n_valid_kv <= step.variant.past_capacity(), "{step}");
        assert!(!step.variant.is_full_context() || step.n_valid_kv == 0, "{step}");
        assert!(step.new_idx.0 + step.ar() <= step.cl(), "{step}");
        n_past += step.n_process();
        rows += step.n_process();
    }
    let again = plan_one(state, variants, n, policy).unwrap();
    assert_eq!(&again, strategy, "planning is deterministic");
}

/// Whether any sequence of steps at all serves the tokens, by trying all of them.
fn reachable(variants: &Variants, rows: usize, target: usize) -> bool {
    let mut seen = vec![false; target + 1];
    seen[rows] = true;
    for row in rows..target {
        if !seen[row] {
            continue;
        }
        for spec in variants.all().iter().filter(|s| row <= s.past_capacity()) {
            let to = (row + spec.ar().get()).min(target);
            seen[row + 1..=to].fill(true);
        }
    }
    seen[target]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 512 }))]

    #[test]
    fn every_policy_keeps_its_promises(
        variants in any_variants(96), past in 0usize..96, evicted in 0usize..40, n in 1usize..100, us in prop::collection::vec(0u32..100, 6),
        current in any::<prop::sample::Index>(),
    ) {
        let times = variants.all().iter().zip(&us).map(|(&spec, &us)| (spec, f64::from(us)));
        let table = Arc::new(CostTable::new(times, 7.0, 0.5).unwrap());
        let variant = Some(*current.get(variants.all()));
        let state = KvState { n_past: past, n_valid_kv: past.saturating_sub(evicted), variant, ..KvState::default() };
        let strict = plan_one(&state, &variants, n, &Policy::Genie);
        for policy in [Policy::Lenient, Policy::FixedVariant, Policy::Cost(table.clone())] {
            match plan_one(&state, &variants, n, &policy) {
                Ok(strategy) => {
                    check(&state, &variants, n, &policy, &strategy);
                    if let (Policy::Lenient, Ok(strict)) = (&policy, &strict) {
                        prop_assert_eq!(&strategy, strict, "where libGenie goes on, ours does the same");
                    }
                }
                Err(PlanError::Overflow(Overflow::ContextExceeded { .. })) => prop_assert!(past + n > variants.limit()),
                Err(PlanError::NoRoom { .. }) => {
                    // Nothing else could have served it either.
                    prop_assert!(!reachable(&variants, state.n_valid_kv, state.n_valid_kv + n));
                    prop_assert!(!variants.all().iter().any(|s| s.is_full_context() && s.ar().get() >= past + n));
                }
                Err(e) => prop_assert!(false, "{e}"),
            }
        }
    }

    #[test]
    fn a_fresh_prompt_that_fits_the_context_is_served(variants in any_variants(200), n in 1usize..200) {
        prop_assume!(n <= variants.limit());
        for policy in [Policy::Lenient, Policy::FixedVariant] {
            prop_assert!(plan_one(&KvState::default(), &variants, n, &policy).is_ok());
        }
    }

    #[test]
    fn admission_is_what_plans_accept(variants in any_variants(96), past in 0usize..96, evicted in 0usize..40) {
        let state = KvState { n_valid_kv: past.saturating_sub(evicted), ..KvState::at(past) };
        let admission = admit(&state, &variants);
        let accepts = |n| plan_one(&state, &variants, n, &Policy::Lenient).is_ok();
        prop_assert!(admission.n_fit == 0 || accepts(admission.n_fit), "{admission}");
        prop_assert!(!accepts(admission.n_fit + 1), "{admission}");
    }

    #[test]
    fn batches_serve_every_token_once(
        variants in any_variants(96), rows in 0usize..60, sequences in prop::collection::vec((0usize..60, 0usize..30), 1..6),
    ) {
        if let Ok(plan) = plan(&KvState::at(rows), &requests(&sequences), &variants, &Policy::Lenient) {
            let mut next: Vec<_> = sequences.iter().map(|s| if plan.is_reprocess() { 0 } else { s.0 }).collect();
            for step in plan.steps() {
                prop_assert_eq!(step.columns.slices().map(|s| s.n).sum::<usize>(), step.n_process());
                for column in step.columns.iter() {
                    prop_assert_eq!(column.pos, next[usize::from(column.seq.0)]);
                    next[usize::from(column.seq.0)] += 1;
                }
            }
            prop_assert_eq!(next, sequences.iter().map(|s| s.0 + s.1).collect::<Vec<_>>());
        }
    }

    #[test]
    fn cost_is_never_beaten(
        variants in any_variants(24), past in 0usize..20, n in 1usize..24, us in prop::collection::vec(1u32..50, 6),
        switch in 0u32..40, per_row in 0u32..3, current in any::<prop::sample::Index>(),
    ) {
        let times = variants.all().iter().zip(&us).map(|(&spec, &us)| (spec, f64::from(us)));
        let table = Arc::new(CostTable::new(times, f64::from(switch), f64::from(per_row)).unwrap());
        let state = KvState { variant: Some(*current.get(variants.all())), ..KvState::at(past) };
        if let Ok(best) = plan_one(&state, &variants, n, &Policy::Cost(table.clone())) && (!best.is_reprocess()) && best.steps()[0].n_past() == past && !variants.is_full_context_only() {
            let us = table.total_us(best.steps(), state.variant).unwrap();
            if per_row == 0 {
                let least = brute_force_us(&variants, &table, past, past + n, state.variant);
                prop_assert!((us - least).abs() < 1e-6, "{us} is not the least, {least}");
            }
            for policy in [Policy::Lenient, Policy::FixedVariant] {
                let other = plan_one(&state, &variants, n, &policy).unwrap();
                prop_assert!(us <= table.total_us(other.steps(), state.variant).unwrap() + 1e-6);
            }
        }
    }
}

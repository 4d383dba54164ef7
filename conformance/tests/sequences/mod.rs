//! Random sequences of all cache operations through the engine on the host backend, held against a naive cache in double
//! precision, and against full recomputation wherever a sequence is a plain dialog.
//!
//! *Tolerances*, relative to the largest logit: float32 1e-4; float16 2e-2; uint8 caches 3e-2, since a code that falls on
//! the other side of a rounding is a whole step. The naive cache rounds keys and values as the graph does, and turns
//! shifted keys as the cache does.

mod ops;

use conformance::backends;
use engine::{Engine, EngineConfig, Eviction, ModeKind};
use genie_types::Dtype;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::{CacheType, Decoder, Form, Rule, Size};

use ops::{Op, Pair, any_op};

const VARIANTS: &[(usize, usize)] = &[(1, 16), (4, 16), (1, 32), (4, 32)];

struct Case {
    form: Form,
    modes: [ModeKind; 2],
    rules: Vec<Rule>,
    tolerance: f64,
}

/// What a whole run has seen.
#[derive(Default)]
struct Tally {
    n_checked: usize,
    n_whole: usize,
    n_refused: usize,
}

/// Engines for both modes, over the same binaries.
fn with_engines<R>(case: &Case, run: impl FnOnce(&mut [Engine; 2], &Decoder) -> R) -> R {
    let decoder = Decoder::for_type(Size::TINY, 5, case.form.dtype);
    let (backend, folder) = (backends::linked(), tempfile::tempdir().unwrap());
    let bins = case.form.save(&decoder, &backend, folder.path());
    let mut n_threads = 0;
    let mut engines = case.modes.map(|mode| {
        let mut config = EngineConfig { kv_mode: Some(mode), n_threads, ..case.form.config(&decoder, bins.clone()) };
        for (rule, group) in case.rules.iter().zip(&case.form.groups) {
            if let Rule::Window { size, sinks } = *rule {
                config.long_context.push((format!("{}_", group.prefix), Eviction::Window { size, sinks }));
            }
        }
        n_threads += 2;
        Engine::open(&config, &backend).unwrap_or_else(|e| panic!("{:?}: {e}", case.form))
    });
    assert_eq!(engines.each_ref().map(Engine::kv_mode), case.modes);
    run(&mut engines, &decoder)
}

fn play(
    case: &Case,
    engines: &mut [Engine; 2],
    decoder: &Decoder,
    ops: &[Op],
    tally: &mut Tally,
) -> Result<(), TestCaseError> {
    let specs = engines[0].variants().all().to_vec();
    let mut pair = Pair::new(engines, decoder, &case.form, &case.rules, case.tolerance);
    ops.iter().try_for_each(|op| pair.apply(op, &specs))?;
    tally.n_checked += pair.n_checked;
    tally.n_whole += pair.n_whole;
    tally.n_refused += pair.n_refused;
    Ok(())
}

fn check(case: &Case, cases: u32) {
    with_engines(case, |engines, decoder| {
        let mut tally = Tally::default();
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let strategy = prop::collection::vec(any_op(), 1..20);
        let cell = std::cell::RefCell::new((engines, &mut tally));
        let done = runner.run(&strategy, |ops| {
            let (engines, tally) = &mut *cell.borrow_mut();
            play(case, engines, decoder, &ops, tally)
        });
        if let Err(e) = done {
            panic!("{:?}, {:?}: {e}", case.form, case.modes);
        }
        // A run that compares nothing, or that the cache refuses, would prove nothing.
        let Tally { n_checked, n_whole, n_refused } = tally;
        let most = n_checked > 3 * cases as usize && n_refused < n_checked;
        assert!(most && n_whole > cases as usize, "{n_checked} checked, {n_whole} recomputed, {n_refused} refused");
    });
}

fn plain(form: Form, modes: [ModeKind; 2], tolerance: f64) -> Case {
    Case { rules: form.groups.iter().map(|_| Rule::All).collect(), form, modes, tolerance }
}

const FLAT: [[ModeKind; 2]; 2] =
    [[ModeKind::SMART_MASK, ModeKind::SHIFT_CONCAT], [ModeKind::POINTER_SHIFT, ModeKind::SMART_MASK]];
const SMART: [ModeKind; 2] = [ModeKind::SMART_MASK, ModeKind::SMART_MASK];

#[test]
fn float32_concat_in_every_mode() {
    for modes in FLAT {
        check(&plain(Form::new(VARIANTS), modes, 1e-4), 64);
        check(&plain(Form::new(VARIANTS).cut(2), modes, 1e-4), 32);
    }
}

#[test]
fn float16_concat_in_every_mode() {
    for modes in FLAT {
        check(&plain(Form { dtype: Dtype::F16, ..Form::new(VARIANTS) }, modes, 2e-2), 48);
    }
}

#[test]
fn uint8_concat_in_every_mode() {
    for modes in FLAT {
        let form = Form { cache: CacheType::U8 { scale: 10.0 / 255.0 }, ..Form::new(VARIANTS) };
        check(&plain(form, modes, 3e-2), 48);
    }
}

#[test]
fn scatter_in_every_type() {
    let form = Form { scatter: true, ..Form::new(VARIANTS) };
    check(&plain(form.clone(), SMART, 1e-4), 64);
    check(&plain(Form { dtype: Dtype::F16, ..form.clone() }, SMART, 2e-2), 32);
    check(&plain(Form { cache: CacheType::U8 { scale: 10.0 / 255.0 }, ..form }, SMART, 3e-2), 32);
}

/// Shrunk: a shift led beyond the context. Nothing more fits, but no tokens do, and the state is saved and restored.
#[test]
fn a_shift_beyond_the_context() {
    let full = [Op::Process(11), Op::Process(11), Op::Process(11), Op::Shift(0, 0, 32, 1)];
    let ops =
        [&full[..], &[Op::Process(1), Op::Rows(1), Op::Prefill(2), Op::Move, Op::Rewind(20), Op::Process(1)]].concat();
    for scatter in [false, true] {
        let case = plain(Form { scatter, ..Form::new(VARIANTS) }, SMART, 1e-4);
        let played = with_engines(&case, |engines, decoder| play(&case, engines, decoder, &ops, &mut Tally::default()));
        assert!(played.is_ok(), "scatter {scatter}: {played:?}");
    }
}

#[test]
fn a_window_group_beside_a_global_one() {
    for (scatter, size) in [(false, 5), (true, 5), (true, 4), (false, 1)] {
        let form = Form { scatter, ..Form::new(VARIANTS).with_window_group(12) };
        let rules = vec![Rule::All, Rule::Window { size, sinks: 0 }];
        check(&Case { form, modes: SMART, rules, tolerance: 1e-4 }, 32);
    }
}

/// Shrunk: rows that were moved ahead of where their sequence goes on, beside a window.
#[test]
fn a_shift_ahead_beside_a_window() {
    let ops = [
        Op::Batch(vec![(2, 1), (1, 3)]),
        Op::Process(4),
        Op::Rows(4),
        Op::Shift(0, 0, 7, 3),
        Op::Rows(1),
        Op::Process(2),
        Op::Process(1),
    ];
    for (scatter, size) in [(false, 4), (false, 5), (true, 4), (true, 5)] {
        let form = Form { scatter, ..Form::new(VARIANTS).with_window_group(12) };
        let case =
            Case { form, modes: SMART, rules: vec![Rule::All, Rule::Window { size, sinks: 0 }], tolerance: 1e-4 };
        let played = with_engines(&case, |engines, decoder| play(&case, engines, decoder, &ops, &mut Tally::default()));
        assert!(played.is_ok(), "scatter {scatter}, window {size}: {played:?}");
    }
}

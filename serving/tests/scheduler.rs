//! Many requests over a model that counts: the same replies alone and in company, nothing lost, everything given back.

mod fake;

use std::time::Duration;

use dialog::kinds::{LadeSettings, LookupSettings, TreeKind, UpdateMode};
use dialog::sampler::TokenPenalty;
use dialog::{Grammar, GrammarKind, RequestSettings, SamplerSettings, StopReason};
use fake::{Fake, POISON, base};
use genie_types::TokenId;
use proptest::prelude::*;
use serving::{
    Event, Finished, Parking, Policy, Request, RequestId, Scheduler, ServeError, ServeOptions, Server, StepTime,
    StepTimes,
};

const CONTEXT: usize = 96;

fn sampled(seed: u32) -> RequestSettings {
    let sampler = SamplerSettings::default().with_seed(Some(seed)).with_top_k(8).with_temp(0.9).expect("it is good");
    let penalty = TokenPenalty { last_n: 6, repetition: 1.3, ..TokenPenalty::default() };
    RequestSettings::new(sampler.with_penalty(penalty).expect("it is good"))
}

#[derive(Clone, Debug)]
struct Case {
    at: u64,
    prompt: Vec<u32>,
    seed: u32,
    max_tokens: usize,
    lookup: bool,
    stop: bool,
    grammar: bool,
    priority: i32,
}

impl Case {
    fn request(&self) -> Request {
        let mut settings = sampled(self.seed);
        settings.max_tokens = Some(self.max_tokens);
        settings.lookup = self.lookup.then(|| LookupSettings { shortest: 1, ..LookupSettings::default() });
        settings.stop_sequences = if self.stop { vec!["cd".into(), "b".into()] } else { vec![] };
        if self.grammar {
            settings.grammar = Some(Grammar::new(GrammarKind::Regex, "[a-m]{3,9}").expect("it is a grammar"));
        }
        Request { prompt: self.prompt.iter().map(|t| TokenId(*t)).collect(), settings, priority: self.priority }
    }
}

fn case() -> impl Strategy<Value = Case> {
    // Few beginnings, so that prompts share them; few tokens, so that drafts are found.
    let prompt = (0_u32..3, 0_usize..20, prop::collection::vec(0_u32..6, 1..12))
        .prop_map(|(beginning, n, rest)| (0..n as u32).map(|i| (beginning + i) % 5).chain(rest).collect::<Vec<_>>());
    (0_u64..40, prompt, any::<u32>(), 0_usize..30, any::<bool>(), any::<bool>(), prop::bool::weighted(0.15), -1_i32..2)
        .prop_map(|(at, prompt, seed, max_tokens, lookup, stop, grammar, priority)| Case {
            at,
            prompt,
            seed,
            max_tokens,
            lookup,
            stop,
            grammar,
            priority,
        })
}

fn lade() -> impl Strategy<Value = TreeKind> {
    let modes = [UpdateMode::AlwaysForwardOne, UpdateMode::ForwardLevel, UpdateMode::ForwardMaxHit];
    // At most 16 rows, the widest step's.
    (1_usize..4, 2_usize..5, 0_usize..4, prop::sample::select(modes.to_vec())).prop_map(
        |(window, ngram, gcap, update_mode)| {
            let gcap = if ngram == 4 { gcap.min(5 - window) } else { gcap };
            TreeKind::Lade(LadeSettings { window, ngram, gcap, update_mode })
        },
    )
}

/// Runs until nothing is left; a step takes a unit of time. Returns what became of each request, in their order.
fn serve(scheduler: &mut Scheduler, cases: &[Case]) -> Vec<Finished> {
    serve_at(scheduler, cases.iter().map(|case| (case.at, case.request())).collect())
}

/// The same with requests that are all there at the beginning.
fn serve_requests(scheduler: &mut Scheduler, requests: Vec<Request>) -> Vec<Finished> {
    serve_at(scheduler, requests.into_iter().map(|request| (0, request)).collect())
}

fn serve_at(scheduler: &mut Scheduler, requests: Vec<(u64, Request)>) -> Vec<Finished> {
    let mut ids: Vec<Option<RequestId>> = vec![None; requests.len()];
    let mut done: Vec<Option<Finished>> = vec![None; requests.len()];
    let mut streamed = vec![String::new(); requests.len()];
    for now in 0_u64.. {
        assert!(now < 100_000, "it does not end: {scheduler:?}");
        for ((at, request), id) in requests.iter().zip(&mut ids).filter(|((at, _), id)| id.is_none() && *at <= now) {
            *id = Some(scheduler.submit(request.clone(), now).unwrap_or_else(|e| panic!("the one of {at}: {e}")));
        }
        scheduler.tick(now).expect("it runs");
        for event in scheduler.take_events() {
            let place = ids.iter().position(|id| *id == Some(event.id())).expect("it is known");
            assert!(done[place].is_none(), "nothing comes after the end");
            match event {
                Event::Piece { piece, .. } => streamed[place] += &piece.text,
                Event::Done(finished) => done[place] = Some(*finished),
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        if done.iter().all(Option::is_some) {
            break;
        }
    }
    let done: Vec<Finished> = done.into_iter().flatten().collect();
    for (finished, streamed) in done.iter().zip(streamed) {
        assert_eq!(finished.reply.text, streamed, "pieces make the reply");
    }
    done
}

fn alone(case: &Case) -> Finished {
    let options = ServeOptions { share_prefixes: false, policy: Policy::OneAtATime, ..ServeOptions::default() };
    let mut scheduler =
        Scheduler::new(Box::new(Fake::new(CONTEXT, CONTEXT)), base(CONTEXT), options).expect("it opens");
    let mut without = case.clone();
    (without.at, without.lookup) = (0, false);
    serve(&mut scheduler, &[without]).remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Sampled with seeds of their own, with penalties, stop texts and drafts, also trees; rows so few that requests are parked; on a model
    /// that runs sequences together, in pairs or one at a time.
    #[test]
    fn replies_are_the_same_alone_and_in_company(
        cases in prop::collection::vec(case(), 1..10),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        (rows, slots, reserve, share) in (CONTEXT..240, 1_usize..7, 0_usize..30, any::<bool>()),
        recompute in any::<bool>(),
        together in prop::bool::weighted(0.8),
        evicts in any::<bool>(),
        turn in prop::option::of(1_usize..9),
        trees in prop::option::weighted(0.4, lade()),
        pairs in prop::option::weighted(0.4, 0_usize..40),
    ) {
        let options = ServeOptions {
            policy,
            max_slots: slots,
            reserve,
            share_prefixes: share,
            turn,
            parking: if recompute { Parking::Recompute } else { Parking::Snapshot },
            ..ServeOptions::default()
        };
        let mut fake = Fake::new(rows, CONTEXT);
        if !together {
            fake = if evicts { fake.evicting() } else { fake.one_at_a_time() };
        } else if let Some(long) = pairs {
            fake = fake.in_pairs(long);
        }
        let mut scheduler = Scheduler::new(Box::new(fake), base(CONTEXT), options).expect("it opens");
        // Fused graphs hold no trees.
        scheduler.set_trees(trees.filter(|_| pairs.is_none())).expect("the model takes trees");
        let found = serve(&mut scheduler, &cases);
        for (case, finished) in cases.iter().zip(&found) {
            let want = alone(case);
            prop_assert_eq!(&finished.reply.tokens, &want.reply.tokens, "{:?}", case);
            prop_assert_eq!((&finished.reply.text, &finished.reply.stop), (&want.reply.text, &want.reply.stop), "{:?}", case);
        }
        let counts = scheduler.counts();
        prop_assert_eq!((counts.running, counts.waiting), (0, 0));
        prop_assert!(share || counts.rows.used == 0, "{:?}", counts);
        prop_assert!(found.iter().map(|finished| finished.n_parked).sum::<usize>() == counts.n_parked);
    }
}

/// Replies that repeat themselves, several at once: guesses hold, so there are fewer steps; the tokens are the same.
#[test]
fn trees_are_rows_of_shared_steps() {
    let cases: Vec<Case> = (0..2)
        .map(|i| Case {
            at: u64::from(i),
            prompt: vec![i, 1, 2],
            seed: i,
            max_tokens: 60,
            lookup: false,
            stop: false,
            grammar: false,
            priority: 0,
        })
        .collect();
    let run = |trees: Option<TreeKind>| {
        let fake = Fake::new(300, CONTEXT).seeing(1);
        let n_trees = fake.n_trees.clone();
        let base = base(CONTEXT).without_end_tokens();
        let mut scheduler = Scheduler::new(Box::new(fake), base, ServeOptions::default()).expect("it opens");
        scheduler.set_trees(trees).expect("the model takes trees");
        let requests = cases.iter().map(|case| {
            let mut request = case.request();
            request.settings.sampler = SamplerSettings::argmax();
            request
        });
        let found = serve_requests(&mut scheduler, requests.collect());
        (found, scheduler.counts().n_steps, n_trees.load(std::sync::atomic::Ordering::Relaxed))
    };
    let (plain, n_steps, n_none) = run(None);
    let settings = LadeSettings { window: 2, ngram: 3, gcap: 2, ..LadeSettings::default() };
    let (found, n_fewer, n_trees) = run(Some(TreeKind::Lade(settings)));
    for (with, without) in found.iter().zip(&plain) {
        assert_eq!(with.reply.tokens, without.reply.tokens);
        let counts = with.reply.kpis.speculation.as_ref().expect("it drafts");
        assert!(counts.n_accepted > 20, "{counts:?}");
    }
    assert!(n_none == 0 && n_trees > 20 && 3 * n_fewer < 2 * n_steps, "{n_trees} trees, {n_fewer} of {n_steps} steps");
}

/// Where rows are evicted what does not hold of a draft is never kept; what holds makes fewer steps.
#[test]
fn drafts_hold_where_nothing_can_be_taken_back() {
    let run = |lookup: bool, draft_model: bool| {
        let base = base(CONTEXT).without_end_tokens();
        let fake = Fake::new(300, CONTEXT).seeing(2).evicting();
        let mut scheduler = Scheduler::new(Box::new(fake), base, ServeOptions::default()).expect("it opens");
        if draft_model {
            scheduler.set_draft_model(Box::new(Fake::new(300, CONTEXT).seeing(2)), 3, None).expect("it suits");
        }
        let requests = (0..2).map(|seed| {
            let mut settings = sampled(seed);
            settings.max_tokens = Some(60);
            settings.lookup = lookup.then(|| LookupSettings { shortest: 1, ..LookupSettings::default() });
            Request { prompt: vec![TokenId(seed), TokenId(1), TokenId(2)], settings, priority: 0 }
        });
        let found = serve_requests(&mut scheduler, requests.collect());
        let counts = found.iter().filter_map(|done| done.reply.kpis.speculation.as_ref());
        let (n, held) = counts.fold((0, 0), |(n, held), of| (n + of.n_drafted, held + of.n_accepted));
        let tokens: Vec<_> = found.into_iter().map(|done| done.reply.tokens).collect();
        (tokens, n, held, scheduler.counts().n_steps)
    };
    let (plain, _, _, n_steps) = run(false, false);
    for (lookup, draft_model) in [(true, false), (false, true)] {
        let (found, n, held, n_fewer) = run(lookup, draft_model);
        assert_eq!(found, plain);
        assert!(0 < held && held < n && n_fewer < n_steps, "{held} of {n} held, {n_fewer} of {n_steps} steps");
    }
}

/// A tree is many rows: where steps were measured and wide ones take longer than what holds is worth, there is none.
#[test]
fn trees_that_are_not_worth_their_rows_are_left() {
    let run = |us_of_16: f64| {
        let fake = Fake::new(300, CONTEXT);
        let n_trees = fake.n_trees.clone();
        let step_times = StepTimes::new([(1, 10.0), (4, 10.0), (16, us_of_16)].map(|(n, us)| StepTime::new(n, us)));
        let options = ServeOptions { step_times, ..ServeOptions::default() };
        let mut scheduler = Scheduler::new(Box::new(fake), base(CONTEXT), options).expect("it opens");
        let settings = LadeSettings { window: 4, ngram: 3, gcap: 4, ..LadeSettings::default() };
        scheduler.set_trees(Some(TreeKind::Lade(settings))).expect("the model takes trees");
        let mut request = Request { prompt: vec![TokenId(1)], settings: sampled(1), priority: 0 };
        (request.settings.max_tokens, request.settings.ignore_end_tokens) = (Some(60), true);
        serve_requests(&mut scheduler, vec![request]);
        n_trees.load(std::sync::atomic::Ordering::Relaxed)
    };
    let (cheap, dear) = (run(10.0), run(1_000.0));
    assert!(cheap >= 4 && dear < cheap, "{cheap} trees of cheap rows, {dear} of dear ones");
}

#[test]
fn requests_are_parked_and_nothing_is_lost() {
    // Four replies of 40 tokens and 100 rows.
    let cases: Vec<Case> = (0..4)
        .map(|i| Case {
            at: 0,
            prompt: vec![i, 1, 2],
            seed: i,
            max_tokens: 40,
            lookup: false,
            stop: false,
            grammar: false,
            priority: 0,
        })
        .collect();
    for parking in [Parking::Snapshot, Parking::Recompute] {
        let options = ServeOptions { reserve: 4, parking, ..ServeOptions::default() };
        let base = base(CONTEXT).without_end_tokens();
        let mut scheduler = Scheduler::new(Box::new(Fake::new(100, CONTEXT)), base.clone(), options).expect("it opens");
        let found = serve(&mut scheduler, &cases);
        assert!(scheduler.counts().n_parked > 0, "the rows do not suffice for all");
        for (case, finished) in cases.iter().zip(&found) {
            let options = ServeOptions::default();
            let mut own = Scheduler::new(Box::new(Fake::new(100, CONTEXT)), base.clone(), options).expect("it opens");
            assert_eq!(finished.reply.tokens, serve(&mut own, std::slice::from_ref(case))[0].reply.tokens);
            assert_eq!(finished.reply.tokens.len(), 40);
        }
    }
}

#[test]
fn a_prompt_that_begins_alike_shares_rows() {
    let prompt: Vec<u32> = (0..20).map(|i| i % 7).collect();
    let case = |seed, at| Case {
        at,
        prompt: prompt.iter().copied().chain([seed]).collect(),
        seed,
        max_tokens: 6,
        lookup: false,
        stop: false,
        grammar: false,
        priority: 0,
    };
    let mut scheduler =
        Scheduler::new(Box::new(Fake::new(200, CONTEXT)), base(CONTEXT), ServeOptions::default()).expect("it opens");
    // The second comes while the first runs, the third when both are over.
    let found = serve(&mut scheduler, &[case(1, 0), case(2, 4), case(3, 60)]);
    let shared: Vec<_> = found.iter().map(|finished| finished.n_shared).collect();
    assert_eq!((shared[0], shared[2]), (0, 20));
    assert!(shared[1] >= 4, "what the first had by then: {shared:?}");
    assert_eq!(found[2].reply.kpis.n_restored, 20);
}

#[test]
fn a_full_queue_says_what_is_missing() {
    let options = ServeOptions { max_waiting: 1, max_slots: 1, reserve: 10, ..ServeOptions::default() };
    let mut scheduler = Scheduler::new(Box::new(Fake::new(40, CONTEXT)), base(CONTEXT), options).expect("it opens");
    let request = |n: usize| {
        let mut settings = sampled(1);
        settings.max_tokens = Some(20);
        Request { prompt: vec![TokenId(1); n], settings, priority: 0 }
    };
    scheduler.submit(request(15), 0).expect("it has the slot");
    scheduler.submit(request(3), 0).expect("it waits");
    let error = scheduler.submit(request(10), 0).expect_err("one waits").to_string();
    let want =
        "queue full: 1 of at most 1 requests wait, and 18 rows are missing to start this one (20 rows needed, 2 free)";
    assert_eq!(error, want);
    let error = scheduler.submit(request(41), 0).expect_err("it never fits").to_string();
    assert_eq!(error, "a prompt of 41 tokens does not fit: expected at most 40, and one row is for the reply");
    scheduler.tick(0).expect("the first starts");
    assert!(scheduler.submit(request(10), 1).is_err(), "the second waits still");
}

/// A queue of no places: requests that have a slot are taken, also several before a step.
#[test]
fn requests_that_have_a_slot_do_not_wait() {
    let options = ServeOptions { max_waiting: 0, max_slots: 2, ..ServeOptions::default() };
    let mut scheduler = Scheduler::new(Box::new(Fake::new(200, CONTEXT)), base(CONTEXT), options).expect("it opens");
    let request = || {
        let mut settings = sampled(1);
        settings.max_tokens = Some(3);
        Request { prompt: vec![TokenId(1); 5], settings, priority: 0 }
    };
    for _ in 0..2 {
        scheduler.submit(request(), 0).expect("there is a slot");
        scheduler.submit(request(), 0).expect("there is another");
        let error = scheduler.submit(request(), 0).expect_err("there is none").to_string();
        assert!(error.starts_with("queue full: 0 of at most 0 requests wait"), "{error}");
        for now in 0..20 {
            scheduler.tick(now).expect("it runs");
        }
        assert!(scheduler.is_idle());
    }
}

#[test]
fn prompts_only_end_with_their_prompt() {
    let options = ServeOptions { prefill_only: true, ..ServeOptions::default() };
    let mut scheduler = Scheduler::new(Box::new(Fake::new(200, CONTEXT)), base(CONTEXT), options).expect("it opens");
    let case = Case {
        at: 0,
        prompt: (0..30).map(|i| i % 9).collect(),
        seed: 1,
        max_tokens: 5,
        lookup: false,
        stop: false,
        grammar: false,
        priority: 0,
    };
    let found = serve(&mut scheduler, &[case.clone(), Case { at: 10, ..case }]);
    assert!(found.iter().all(|f| f.reply.stop == StopReason::Prefilled && f.reply.tokens.is_empty()));
    assert_eq!(found[1].n_shared, 29, "the rows stay");
}

/// A thousand requests, of which many are cancelled or poisoned: slots, rows and lists return to where they were.
#[test]
fn a_thousand_requests_leave_nothing_behind() {
    let options = ServeOptions { share_prefixes: false, max_slots: 6, reserve: 8, ..ServeOptions::default() };
    let fake = Fake::new(160, CONTEXT).losing_all_every(97);
    let mut scheduler = Scheduler::new(Box::new(fake), base(CONTEXT), options).expect("it opens");
    let (mut dice, mut live, mut now) = (1_u64, Vec::new(), 0_u64);
    let mut roll = |n: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % n
    };
    let (mut done, mut aborted, mut failed) = (0, 0, 0);
    for number in 0..1_000_u32 {
        let mut prompt: Vec<_> = (0..1 + roll(30)).map(|_| TokenId(roll(20) as u32)).collect();
        if roll(12) == 0 {
            prompt.push(POISON);
        }
        let mut settings = sampled(number);
        settings.max_tokens = Some(roll(25) as usize);
        live.push(scheduler.submit(Request { prompt, settings, priority: 0 }, now).expect("the queue is long"));
        for _ in 0..roll(12) {
            if roll(10) == 0
                && let Some(id) = live.get(live.len().saturating_sub(1 + roll(6) as usize))
            {
                scheduler.cancel(*id);
            }
            now += 1;
            scheduler.tick(now).expect("it runs");
        }
    }
    while !scheduler.is_idle() {
        now += 1;
        assert!(now < 1_000_000, "it ends");
        scheduler.tick(now).expect("it runs");
    }
    for event in scheduler.take_events() {
        match event {
            Event::Done(finished) if finished.reply.stop == StopReason::Aborted => aborted += 1,
            Event::Done(_) => done += 1,
            Event::Failed { .. } => failed += 1,
            _ => {}
        }
    }
    assert_eq!(done + aborted + failed, 1_000, "each ends once");
    assert!(done > 500 && aborted > 30 && failed > 30, "{done} {aborted} {failed}");
    let counts = scheduler.counts();
    assert_eq!((counts.running, counts.waiting, counts.idle, counts.rows.used), (0, 0, 0, 0));
}

#[test]
fn a_server_answers_from_a_thread() {
    let fake = Fake::new(300, CONTEXT);
    let stop = fake.stop.clone();
    let scheduler = Scheduler::new(Box::new(fake), base(CONTEXT), ServeOptions::default()).expect("it opens");
    let server = Server::start(scheduler).expect("there is a thread");
    let request = |seed: u32| {
        let mut settings = sampled(seed);
        settings.max_tokens = Some(12);
        Request { prompt: vec![TokenId(seed % 9), TokenId(3)], settings, priority: 0 }
    };
    std::thread::scope(|scope| {
        for part in 0..4_u32 {
            let server = &server;
            scope.spawn(move || {
                for i in 0..20 {
                    let seed = part * 100 + i;
                    let handle = server.submit(request(seed)).expect("it is taken");
                    let found = handle.wait().expect("it is answered").reply;
                    let case = Case {
                        at: 0,
                        prompt: vec![seed % 9, 3],
                        seed,
                        max_tokens: 12,
                        lookup: false,
                        stop: false,
                        grammar: false,
                        priority: 0,
                    };
                    assert_eq!(found.tokens, alone(&case).reply.tokens);
                }
            });
        }
    });
    // A handle that is dropped cancels; one that waits while the server goes has an end.
    drop(server.submit(request(1)).expect("it is taken"));
    // No step runs from here on, so that none of them is over by then.
    stop.set();
    let mut long = request(2);
    long.settings.max_tokens = None;
    long.settings.ignore_end_tokens = true;
    let mut waiting: Vec<_> = (0..200).map(|_| server.submit(long.clone()).expect("it is taken")).collect();
    let last = waiting.pop().expect("there are some");
    drop(server);
    assert!(matches!(last.wait(), Err(ServeError::ShutDown)));
}

#[test]
fn the_first_waits_a_little_for_others() {
    let options = ServeOptions { coalesce: Duration::from_micros(50), ..ServeOptions::default() };
    let mut scheduler = Scheduler::new(Box::new(Fake::new(200, CONTEXT)), base(CONTEXT), options).expect("it opens");
    let request = || Request { prompt: vec![TokenId(1); 3], settings: sampled(1), priority: 0 };
    scheduler.submit(request(), 100).expect("it is taken");
    let report = scheduler.tick(110).expect("it runs");
    assert_eq!((report.rows.len(), report.wait_until_us), (0, Some(150)));
    scheduler.submit(request(), 120).expect("it is taken");
    assert_eq!(scheduler.tick(150).expect("it runs").rows.len(), 2);
}

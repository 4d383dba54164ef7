//! Random traces over the planner with a model that does nothing but count: everything ends, nothing is lost, gaps are bounded.

use proptest::prelude::*;

use super::*;

/// A request of a trace and how far it has come.
#[derive(Clone, Copy, Debug)]
struct Client {
    at_us: u64,
    prompt: usize,
    reply: usize,
    priority: i32,
    draft: usize,
    draft_is_whole: bool,
    phase: Phase,
    /// Rows it has.
    rows: usize,
    /// Tokens of prompt and reply that are to be processed again or for the first time.
    todo: usize,
    given: usize,
    started: u64,
    last_us: u64,
    over: bool,
    parked_since_token: bool,
}

struct World {
    clients: Vec<Client>,
    rules: ServeRules,
    times: StepTimes,
    rows: usize,
    slots: usize,
    reserve: usize,
    now: u64,
    n_started: u64,
    had_prefill: bool,
    longest_tick: u64,
    worst_gap: u64,
    n_parked: usize,
    n_full: usize,
}

impl World {
    fn used(&self) -> usize {
        self.clients.iter().map(|c| c.rows).sum()
    }

    fn tick(&mut self) -> Result<bool, TestCaseError> {
        let arrived = |c: &Client| c.at_us <= self.now && !c.over;
        let seen: Vec<ServeRequest> = self
            .clients
            .iter()
            .enumerate()
            .filter(|(_, c)| arrived(c))
            .map(|(i, c)| {
                let left = (c.reply - c.given).min(self.reserve);
                let todo = if c.phase == Phase::Decode { 1 } else { c.todo };
                ServeRequest {
                    id: i as u64,
                    phase: c.phase,
                    arrived_us: c.at_us,
                    priority: c.priority,
                    todo,
                    draft: c.draft.min(c.reply - c.given),
                    draft_is_whole: c.draft_is_whole,
                    own_rows: c.rows,
                    rows_ahead: (todo + left).min(self.rows),
                    started: c.started,
                    last_us: c.last_us,
                }
            })
            .collect();
        let running = seen.iter().filter(|r| matches!(r.phase, Phase::Prefill | Phase::Decode)).count();
        let state = ServeState {
            now_us: self.now,
            requests: &seen,
            free_rows: self.rows - self.used(),
            free_slots: self.slots - running,
            had_prefill: self.had_prefill,
        };
        let tick = plan_tick(&state, &self.rules, &self.times);
        prop_assert_eq!(&tick, &plan_tick(&state, &self.rules, &self.times), "the same state, the same tick");
        let oldest = seen.iter().filter(|r| matches!(r.phase, Phase::Prefill | Phase::Decode)).map(|r| r.started).min();
        for &id in &tick.park {
            let c = &mut self.clients[id as usize];
            prop_assert!(Some(c.started) != oldest, "the first that started is never parked");
            (c.phase, c.todo, c.rows, c.parked_since_token) = (Phase::Parked, c.prompt + c.given, 0, true);
            self.n_parked += 1;
        }
        for &id in &tick.start {
            let c = &mut self.clients[id as usize];
            prop_assert!(matches!(c.phase, Phase::Waiting | Phase::Parked));
            if c.phase == Phase::Waiting {
                self.n_started += 1;
                c.started = self.n_started;
            }
            c.phase = Phase::Prefill;
        }
        let in_cache =
            self.clients.iter().filter(|c| !c.over && matches!(c.phase, Phase::Prefill | Phase::Decode)).count();
        prop_assert!(in_cache <= self.slots.min(self.rules.most_running.max(1)));
        for &id in &tick.full {
            prop_assert_eq!(
                (self.used(), self.rows - self.clients[id as usize].rows),
                (self.rows, 0),
                "it has all rows"
            );
            self.clients[id as usize].over = true;
            self.clients[id as usize].rows = 0;
            self.n_full += 1;
        }
        if tick.rows.is_empty() {
            let waits = tick.wait_until_us.is_some_and(|until| until > self.now);
            let acted = !tick.full.is_empty() || !tick.park.is_empty();
            let next = self.clients.iter().filter(|c| c.at_us > self.now).map(|c| c.at_us).min();
            prop_assert!(waits || acted || seen.is_empty(), "requests are there and nothing happens: {:?}", seen);
            self.now = match tick.wait_until_us {
                Some(until) => next.map_or(until, |at| at.min(until)),
                None if acted => self.now,
                None => next.unwrap_or(self.now),
            };
            return Ok(self.clients.iter().any(|c| !c.over));
        }
        prop_assert!(tick.n_rows() <= tick.width && tick.n_rows() <= self.rows - self.used(), "{:?}", tick);
        prop_assert!(self.times.all().iter().any(|t| t.width == tick.width));
        let us = self.times.us_for(tick.width) as u64;
        // Ticks for which a reply waited.
        if self.clients.iter().any(|c| !c.over && c.given > 0 && c.phase == Phase::Decode) {
            self.longest_tick = self.longest_tick.max(us);
        }
        self.now += us;
        self.had_prefill = tick.rows.iter().any(|rows| rows.prefill);
        let mut ids: Vec<_> = tick.rows.iter().map(|rows| rows.id).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), tick.rows.len(), "a request is there once");
        let of_prompts = tick.rows.iter().filter(|rows| rows.prefill).count();
        if self.rules.row_for_reply && tick.width > 1 {
            let n: usize = tick.rows.iter().filter(|rows| rows.prefill).map(|rows| rows.n).sum();
            prop_assert!(n < tick.width, "the last row is a reply's: {:?}", tick);
        }
        prop_assert!(of_prompts <= self.rules.prompts_a_step, "{:?}", tick);
        prop_assert!(tick.rows.len() - of_prompts <= self.rules.replies_a_step, "{:?}", tick);
        for &TickRows { id, n, prefill } in &tick.rows {
            let c = &mut self.clients[id as usize];
            prop_assert_eq!(prefill, c.phase == Phase::Prefill);
            if c.draft_is_whole && !prefill {
                prop_assert!(n == 1 || n == 1 + c.draft.min(c.reply - c.given), "a part of a tree: {:?}", tick);
            }
            c.rows += n;
            let tokens = if prefill {
                prop_assert!(n <= c.todo);
                c.todo -= n;
                if c.todo > 0 {
                    continue;
                }
                c.phase = Phase::Decode;
                1
            } else {
                // Half of a draft holds.
                let held = (n - 1) / 2;
                c.rows -= n - 1 - held;
                1 + held
            };
            if c.given > 0 && !c.parked_since_token {
                self.worst_gap = self.worst_gap.max(self.now - c.last_us);
            }
            c.parked_since_token = false;
            c.given = (c.given + tokens).min(c.reply);
            c.last_us = self.now;
            if c.given == c.reply {
                (c.over, c.rows) = (true, 0);
            }
        }
        Ok(self.clients.iter().any(|c| !c.over))
    }
}

fn client() -> impl Strategy<Value = Client> {
    (0_u64..400_000, 1_usize..60, 1_usize..20, -2_i32..3, 0_usize..4, any::<bool>()).prop_map(
        |(at_us, prompt, reply, priority, draft, draft_is_whole)| Client {
            at_us,
            prompt,
            reply,
            priority,
            draft,
            draft_is_whole,
            phase: Phase::Waiting,
            rows: 0,
            todo: prompt,
            given: 0,
            started: 0,
            last_us: 0,
            over: false,
            parked_since_token: false,
        },
    )
}

/// Widths whose times grow with them, as those of graphs do.
fn step_times() -> impl Strategy<Value = StepTimes> {
    let widths = prop::sample::subsequence(vec![1_usize, 2, 4, 8, 16, 32], 1..6);
    (widths, 1_000.0_f64..40_000.0, 10.0_f64..4_000.0).prop_map(|(widths, fixed, each)| {
        let times = widths.into_iter().map(|width| StepTime::new(width, fixed + each * width as f64));
        StepTimes::new(times).expect("there are widths")
    })
}

fn rules() -> impl Strategy<Value = ServeRules> {
    let mixing = prop::sample::select(vec![Mixing::Fused, Mixing::Fused, Mixing::Alternating, Mixing::PrefillFirst]);
    let replies = prop::sample::select(vec![1, 2, usize::MAX]);
    let target = prop::option::of(5_000_u64..300_000);
    let prompts = prop::sample::select(vec![1, 2, usize::MAX]);
    (mixing, (replies, prompts, any::<bool>()), 1_usize..10, 1_usize..40, target, 0_u64..50_000, 0_u64..5_000).prop_map(
        |(
            mixing,
            (replies_a_step, prompts_a_step, row_for_reply),
            most_running,
            prefill_chunk,
            target_us,
            ageing_us,
            coalesce_us,
        )| {
            ServeRules {
                mixing,
                replies_a_step,
                prompts_a_step,
                row_for_reply,
                most_running,
                prefill_chunk,
                target_us,
                ageing_us,
                coalesce_us,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 10_000 }))]

    #[test]
    fn every_request_ends_and_no_reply_waits_too_long(
        clients in prop::collection::vec(client(), 1..12),
        (rules, times) in (rules(), step_times()),
        (rows, slots, reserve) in (80_usize..240, 1_usize..9, 0_usize..20),
    ) {
        let total: usize = clients.iter().map(|c| c.prompt + c.reply).sum();
        let (target, mixing) = (rules.target_us, rules.mixing);
        let mut world = World {
            clients, rules, times, rows, slots, reserve, now: 0, n_started: 0, had_prefill: false,
            longest_tick: 0, worst_gap: 0, n_parked: 0, n_full: 0,
        };
        let mut ticks = 0;
        while world.tick()? {
            ticks += 1;
            prop_assert!(ticks < 40 * total + 1_000, "it does not end");
        }
        prop_assert!(world.clients.iter().all(|c| c.over && c.rows == 0 && c.given == c.reply), "all rows suffice for one");
        prop_assert_eq!(world.n_full, 0);
        if let Some(target) = target.filter(|_| mixing != Mixing::PrefillFirst && admit::keeps_pace(1, &world.rules, &world.times)) {
            prop_assert!(
                world.worst_gap <= target + world.longest_tick,
                "gap {} beyond {} + {}", world.worst_gap, target, world.longest_tick
            );
        }
    }
}

fn request(id: u64, phase: Phase, todo: usize) -> ServeRequest {
    ServeRequest {
        id,
        phase,
        arrived_us: id,
        priority: 0,
        todo,
        draft: 0,
        draft_is_whole: false,
        own_rows: 10,
        rows_ahead: todo + 4,
        started: if matches!(phase, Phase::Waiting) { 0 } else { id },
        last_us: 0,
    }
}

fn plan(requests: &[ServeRequest], free_rows: usize, rules: &ServeRules) -> Tick {
    let times = StepTimes::assumed([1, 8, 32]).expect("there are widths");
    let state = ServeState { now_us: 1_000, requests, free_rows, free_slots: 8, had_prefill: false };
    plan_tick(&state, rules, &times)
}

#[test]
fn replies_come_before_prompts_in_one_step() {
    let requests = [request(1, Phase::Decode, 1), request(2, Phase::Prefill, 40), request(3, Phase::Waiting, 9)];
    let tick = plan(&requests, 200, &ServeRules::default());
    let rows: Vec<_> = tick.rows.iter().map(|r| (r.id, r.n, r.prefill)).collect();
    assert_eq!((tick.start, rows, tick.width), (vec![3], vec![(1, 1, false), (2, 31, true)], 32));
    let turns = ServeRules { mixing: Mixing::Alternating, ..ServeRules::default() };
    assert_eq!(plan(&requests, 200, &turns).rows, [TickRows { id: 2, n: 32, prefill: true }]);
}

#[test]
fn a_prompt_that_fits_no_step_of_replies_has_every_second_one() {
    // The wide step is not worth it for three rows, and the narrow one has no room beside a reply.
    let times = StepTimes::new([(1, 37.0), (128, 347.0)].map(|(width, us)| StepTime::new(width, us))).unwrap();
    let requests = [request(1, Phase::Decode, 1), request(2, Phase::Decode, 1), request(3, Phase::Prefill, 1)];
    let planned = |had_prefill| {
        let state = ServeState { now_us: 0, requests: &requests, free_rows: 200, free_slots: 8, had_prefill };
        let tick = plan_tick(&state, &ServeRules::default(), &times);
        tick.rows.iter().map(|rows| (rows.id, rows.prefill)).collect::<Vec<_>>()
    };
    assert_eq!(planned(false), [(3, true)]);
    assert_eq!(planned(true), [(1, false)]);
}

#[test]
fn a_prompt_leaves_the_last_row_to_a_reply_where_graphs_do() {
    let pairs = ServeRules { replies_a_step: 1, prompts_a_step: 1, row_for_reply: true, ..ServeRules::default() };
    for (todo, width, n) in [(7, 8, 7), (8, 8, 7), (40, 32, 31), (1, 1, 1)] {
        let tick = plan(&[request(2, Phase::Prefill, todo)], 200, &pairs);
        assert_eq!((tick.width, tick.rows), (width, vec![TickRows { id: 2, n, prefill: true }]), "{todo} tokens");
    }
}

/// A tree has all its rows or none: a step that is wide enough, if that is in time.
#[test]
fn whole_drafts_have_all_their_rows_or_none() {
    let times = StepTimes::new([(1, 10.0), (8, 15.0), (32, 80.0)].map(|(width, us)| StepTime::new(width, us))).unwrap();
    let tree = |id, draft| ServeRequest { draft, draft_is_whole: true, ..request(id, Phase::Decode, 1) };
    let planned = |requests: &[ServeRequest], target_us| {
        let rules = ServeRules { target_us, ..ServeRules::default() };
        let state = ServeState { now_us: 0, requests, free_rows: 200, free_slots: 8, had_prefill: true };
        let tick = plan_tick(&state, &rules, &times);
        (tick.width, tick.rows.iter().map(|rows| rows.n).collect::<Vec<_>>())
    };
    let two = [tree(1, 5), tree(2, 9)];
    assert_eq!(planned(&two, None), (32, vec![6, 10]));
    assert_eq!(planned(&two, Some(60)), (8, vec![1, 1]), "no step with all of them is in time");
    let with_prompt = [tree(1, 5), tree(2, 9), request(3, Phase::Prefill, 40)];
    assert_eq!(planned(&with_prompt, None), (32, vec![6, 10, 16]));
    let with_tokens = [tree(1, 5), ServeRequest { draft: 3, ..request(2, Phase::Decode, 1) }];
    assert_eq!(planned(&with_tokens, None), (8, vec![6, 2]), "tokens as far as they fit");
    let with_tokens = [ServeRequest { draft: 3, ..request(1, Phase::Decode, 1) }, tree(2, 5)];
    assert_eq!(planned(&with_tokens, None), (8, vec![2, 6]), "the tree has its rows first");
    assert_eq!(planned(&[tree(1, 40)], None), (1, vec![1]), "no step has as many");
}

#[test]
fn a_request_that_lacks_rows_is_not_overtaken() {
    let requests = [request(1, Phase::Decode, 1), request(2, Phase::Waiting, 40), request(3, Phase::Waiting, 2)];
    assert_eq!(plan(&requests, 30, &ServeRules::default()).start, [0_u64; 0]);
    assert_eq!(plan(&requests, 60, &ServeRules::default()).start, [2, 3]);
}

#[test]
fn rows_promised_to_others_are_not_given_away() {
    // The first has 5 rows ahead of it, the second 44, the third 6.
    let requests = [request(1, Phase::Decode, 1), request(2, Phase::Waiting, 40), request(3, Phase::Waiting, 2)];
    for (free, start) in [(48, &[][..]), (49, &[2]), (54, &[2]), (55, &[2, 3])] {
        assert_eq!(plan(&requests, free, &ServeRules::default()).start, start, "{free} rows");
    }
}

#[test]
fn a_prompt_has_the_rows_of_a_chunk_and_one_is_kept_for_it() {
    let chunk = ServeRules { prefill_chunk: 5, ..ServeRules::default() };
    assert_eq!(plan(&[request(1, Phase::Prefill, 40)], 200, &chunk).n_rows(), 5);
    // A reply and the first prompt need a row each.
    let requests = [request(1, Phase::Decode, 1), request(2, Phase::Prefill, 40)];
    assert_eq!(plan(&requests, 1, &ServeRules::default()).park, [2]);
    assert_eq!(plan(&requests, 2, &ServeRules::default()).park, [0_u64; 0]);
}

#[test]
fn parked_ones_start_first_and_no_one_waits_for_more_than_may_run() {
    let mut requests = [request(1, Phase::Waiting, 4), request(2, Phase::Parked, 4)];
    requests[0].priority = 9;
    let one = ServeRules { most_running: 1, coalesce_us: 5_000, ..ServeRules::default() };
    assert_eq!(plan(&requests, 100, &one).start, [2]);
    assert_eq!(plan(&requests[..1], 100, &one).start, [1]);
}

#[test]
fn who_waits_gains_priority() {
    let mut requests = [request(1, Phase::Waiting, 4), request(2, Phase::Waiting, 4)];
    requests[1].priority = 3;
    let one = ServeRules { most_running: 1, ageing_us: 0, ..ServeRules::default() };
    assert_eq!(plan(&requests, 100, &one).start, [2]);
    (requests[0].arrived_us, requests[1].arrived_us) = (0, 1_000);
    assert_eq!(plan(&requests, 100, &ServeRules { ageing_us: 100, ..one }).start, [1]);
}

#[test]
fn the_last_that_started_is_parked_first() {
    let requests = [request(1, Phase::Decode, 1), request(2, Phase::Decode, 1), request(3, Phase::Decode, 1)];
    let tick = plan(&requests, 1, &ServeRules::default());
    assert_eq!((tick.park, tick.rows.len()), (vec![3], 2));
    let tick = plan(&requests[..1], 0, &ServeRules::default());
    assert_eq!((tick.full, tick.rows.len()), (vec![1], 0));
}

#[test]
fn the_first_waits_for_others_while_nothing_runs() {
    let rules = ServeRules { coalesce_us: 5_000, ..ServeRules::default() };
    let requests = [request(1, Phase::Waiting, 4)];
    let tick = plan(&requests, 100, &rules);
    assert_eq!((tick.wait_until_us, tick.rows.len()), (Some(5_001), 0));
    assert_eq!(plan(&[request(2, Phase::Decode, 1), requests[0]], 100, &rules).start, [1]);
    // One that was parked goes on at once.
    assert_eq!(plan(&[request(1, Phase::Parked, 4)], 100, &rules).start, [1]);
}

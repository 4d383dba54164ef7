//! What a request may ask for beside its prompt, and what is reported of it: grammar, bias, log-probabilities, end tokens, times, slots,
//! events of steps.

mod fake;

use dialog::kinds::VocabularyMap;
use dialog::sampler::SamplerError;
use dialog::{DialogError, Grammar, GrammarKind, ReplyPiece, RequestSettings, SamplerSettings, StopReason};
use engine::{SeqId, Snapshot};
use fake::{EOS, Fake, POISON, VOCAB, base};
use genie_types::TokenId;
use serving::{Event, Finished, Request, Scheduler, ServeError, ServeOptions, Server, SlotState, StepTime, StepTimes};

const CONTEXT: usize = 96;

fn scheduler() -> Scheduler {
    Scheduler::new(Box::new(Fake::new(200, CONTEXT)), base(CONTEXT), ServeOptions::default()).expect("it opens")
}

fn request(prompt: &[u32], change: impl FnOnce(&mut RequestSettings)) -> Request {
    let mut settings = RequestSettings::new(SamplerSettings::argmax());
    settings.max_tokens = Some(12);
    change(&mut settings);
    Request { prompt: prompt.iter().map(|&token| TokenId(token)).collect(), settings, priority: 0 }
}

/// Runs to the end; the replies in the order of their requests, and the pieces of each.
fn serve(scheduler: &mut Scheduler, requests: Vec<Request>) -> Vec<(Finished, Vec<ReplyPiece>)> {
    let ids: Vec<_> = requests.into_iter().map(|request| scheduler.submit(request, 0).expect("it is taken")).collect();
    let mut found: Vec<(Option<Finished>, Vec<ReplyPiece>)> = ids.iter().map(|_| (None, Vec::new())).collect();
    for now in 0..10_000 {
        if scheduler.is_idle() {
            break;
        }
        scheduler.tick(now).expect("it runs");
        for event in scheduler.take_events() {
            let at = ids.iter().position(|id| *id == event.id()).expect("it is known");
            match event {
                Event::Piece { piece, .. } => found[at].1.push(piece),
                Event::Done(finished) => found[at].0 = Some(*finished),
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    found.into_iter().map(|(finished, pieces)| (finished.expect("it ends"), pieces)).collect()
}

#[test]
fn a_grammar_holds_in_company_and_each_request_has_its_own() {
    let with = |regex: &str| {
        let grammar = Grammar::new(GrammarKind::Regex, regex).expect("it is a grammar");
        request(&[1, 2, 3], |settings| settings.grammar = Some(grammar))
    };
    let requests = || vec![with("[c-f]{4}"), request(&[1, 2, 3], |_| ()), with("(ab|ba){2}")];
    let found = serve(&mut scheduler(), requests());
    let text = |at: usize| found[at].0.reply.text.replace(' ', "");
    assert!(text(0).len() == 4 && text(0).chars().all(|c| ('c'..='f').contains(&c)), "{:?}", found[0].0.reply);
    assert!(["abab", "abba", "baab", "baba"].contains(&text(2).as_str()), "{:?}", found[2].0.reply);
    for (at, request) in requests().into_iter().enumerate() {
        let alone = serve(&mut scheduler(), vec![request]).remove(0).0;
        assert_eq!(alone.reply.tokens, found[at].0.reply.tokens);
        assert_eq!(alone.reply.stop, found[at].0.reply.stop);
    }
}

#[test]
fn a_grammar_that_is_none_is_refused_before_anything_runs() {
    let bad = Grammar::new(GrammarKind::Regex, "[c-f");
    let refused = bad.is_err() || {
        let request = request(&[1], |settings| settings.grammar = bad.ok());
        matches!(scheduler().submit(request, 0), Err(ServeError::Dialog(DialogError::Grammar(_))))
    };
    assert!(refused);
}

#[test]
fn a_bias_forbids_and_forces() {
    let plain = serve(&mut scheduler(), vec![request(&[1, 2], |_| ())]).remove(0).0.reply;
    let first = plain.tokens[0];
    let without = request(&[1, 2], |settings| settings.logit_bias = vec![(first, f32::NEG_INFINITY)]);
    let forced = request(&[1, 2], |settings| settings.logit_bias = vec![(TokenId(9), 100.0)]);
    let found = serve(&mut scheduler(), vec![without, forced]);
    assert!(!found[0].0.reply.tokens.contains(&first));
    assert_eq!(found[1].0.reply.tokens, [TokenId(9); 12]);
    let all = (0..VOCAB as u32).map(|token| (TokenId(token), f32::NEG_INFINITY)).collect();
    let mut scheduler = scheduler();
    scheduler.submit(request(&[1], |settings| settings.logit_bias = all), 0).expect("it is taken");
    scheduler.tick(0).expect("it runs");
    let failed = scheduler.take_events().into_iter().find_map(|event| match event {
        Event::Failed { error, .. } => Some(error),
        _ => None,
    });
    let want =
        |error: &ServeError| matches!(error, ServeError::Dialog(DialogError::Sampler(SamplerError::AllMasked { .. })));
    assert!(failed.as_ref().is_some_and(want), "{failed:?}");
    let beyond = request(&[1], |settings| settings.logit_bias = vec![(TokenId(VOCAB as u32), 1.0)]);
    let error = scheduler.submit(beyond, 0).expect_err("it is refused");
    assert_eq!(error.to_string(), "a bias for token 24: expected a token below 24");
}

/// Each token of each piece has its own, also where drafts give several at a time; the likeliest is what argmax draws.
#[test]
fn log_probabilities_come_with_their_tokens() {
    let found = serve(
        &mut scheduler(),
        vec![
            request(&[1, 2, 1, 2, 1], |settings| {
                settings.logprobs = Some(3);
                settings.lookup = Some(Default::default());
                settings.ignore_end_tokens = true;
                settings.logit_bias = vec![(TokenId(4), 50.0)];
            }),
            request(&[1], |settings| settings.logprobs = Some(0)),
            request(&[1], |_| ()),
        ],
    );
    let given: Vec<_> = found[0].1.iter().flat_map(|piece| piece.logprobs.clone()).collect();
    assert_eq!(given.iter().map(|one| one.token).collect::<Vec<_>>(), found[0].0.reply.tokens);
    assert!(found[0].1.iter().any(|piece| piece.tokens.len() > 1), "a draft held");
    for one in &given {
        // The bias is no part of what the model says.
        assert_eq!((one.token, one.top.len()), (TokenId(4), 3));
        assert!(one.top[0].1 >= one.top[1].1 && one.logprob <= Some(one.top[0].1) && one.top[0].1 <= 0.0, "{one:?}");
    }
    assert!(given.iter().any(|one| one.top[0].0 != one.token));
    assert!(found[1].1.iter().all(|piece| piece.logprobs.len() == piece.tokens.len() && !piece.tokens.is_empty()));
    assert!(found[1].1.iter().flat_map(|piece| &piece.logprobs).all(|one| one.top.is_empty()));
    assert!(found[2].1.iter().all(|piece| piece.logprobs.is_empty()));
}

#[test]
fn end_tokens_can_be_tokens_like_others() {
    let forced = |ignore: bool| {
        request(&[1], |settings| {
            settings.logit_bias = vec![(EOS, 100.0)];
            settings.ignore_end_tokens = ignore;
        })
    };
    let found = serve(&mut scheduler(), vec![forced(false), forced(true)]);
    assert_eq!((&found[0].0.reply.stop, found[0].0.reply.tokens.len()), (&StopReason::Eos, 0));
    assert_eq!((&found[1].0.reply.stop, found[1].0.reply.tokens.len()), (&StopReason::MaxTokens, 12));
}

#[test]
fn what_a_request_cost_is_reported() {
    let mut scheduler = scheduler();
    let first = serve(&mut scheduler, vec![request(&[1, 2, 3, 4, 5, 6, 7, 8], |_| ())]).remove(0).0;
    let again = serve(&mut scheduler, vec![request(&[1, 2, 3, 4, 5, 6, 7, 9], |_| ())]).remove(0).0;
    assert_eq!((first.n_prompt, first.n_shared, again.n_prompt, again.n_shared), (8, 0, 8, 7));
    assert!(first.times.prefill > std::time::Duration::ZERO && first.times.decode > std::time::Duration::ZERO);
}

#[test]
fn slots_are_listed_saved_restored_and_erased() {
    let mut scheduler = scheduler();
    let id = scheduler.submit(request(&[5; 20], |settings| settings.max_tokens = Some(40)), 0).expect("it is taken");
    scheduler.tick(0).expect("it runs");
    let slot = scheduler.slots()[0];
    assert_eq!((slot.state, slot.request, slot.n_past, slot.n_prompt), (SlotState::Prefill, Some(id), 16, 20));
    scheduler.tick(1).expect("it runs");
    scheduler.tick(2).expect("it runs");
    let slot = scheduler.slots()[0];
    assert_eq!((slot.state, slot.n_past, slot.n_generated), (SlotState::Decode, 21, 2));
    // A slot of a request is saved as it is, and not touched otherwise.
    let saved = scheduler.save_slot(slot.seq).expect("it has tokens");
    assert_eq!(saved.tokens().len(), 21);
    let error = scheduler.erase_slot(slot.seq).expect_err("it runs").to_string();
    assert_eq!(error, "slot 0: expected an idle one, found one of a request that runs");
    assert!(scheduler.restore_slot(slot.seq, &saved).is_err());
    scheduler.cancel(id);
    scheduler.tick(3).expect("it runs");
    assert_eq!(scheduler.slots()[0].state, SlotState::Idle);
    scheduler.take_events();
    assert_eq!(scheduler.erase_slot(slot.seq).expect("it is idle"), 21);
    assert_eq!((scheduler.slots(), scheduler.counts().rows.used), (vec![], 0));
    assert!(
        scheduler
            .save_slot(slot.seq)
            .expect_err("it is empty")
            .to_string()
            .contains("slot 0: expected one with tokens")
    );
    // What was saved serves a prompt that begins with it.
    let restored = scheduler.restore_slot(SeqId(3), &saved).expect("there is room");
    assert_eq!((restored.seq, restored.n_past, scheduler.slots()), (SeqId(3), 21, vec![restored]));
    let found = serve(&mut scheduler, vec![request(&[5; 21], |_| ())]).remove(0).0;
    assert_eq!(found.n_shared, 20);
    // One that the model refuses leaves the slot as it was.
    let mut foreign = saved.clone();
    foreign.sequences[0].tokens[4].token = POISON;
    assert!(scheduler.restore_slot(SeqId(3), &foreign).expect_err("it is refused").to_string().contains("poison"));
    assert_eq!(scheduler.save_slot(SeqId(3)).expect("it is there").tokens().len(), 21);
    assert!(scheduler.restore_slot(SeqId(64), &saved).expect_err("there is none").to_string().contains("below 64"));
    assert!(
        scheduler
            .restore_slot(SeqId(5), &Snapshot::default())
            .expect_err("it is empty")
            .to_string()
            .contains("of one sequence")
    );
}

#[test]
fn steps_are_reported_while_someone_listens() {
    let mut scheduler = scheduler();
    let watch = scheduler.watch(4);
    let idle = scheduler.watch(1);
    let ids: Vec<_> = [(&[1; 9][..]), &[2; 2]]
        .into_iter()
        .map(|prompt| scheduler.submit(request(prompt, |_| ()), 0).expect("it is taken"))
        .collect();
    scheduler.tick(7).expect("it runs");
    scheduler.tick(8).expect("it runs");
    let event = watch.next().expect("it came");
    assert_eq!((event.number, event.at_us, event.width), (1, 7, 16));
    let rows: Vec<_> = event.rows.iter().map(|rows| (rows.request, rows.prefill, rows.from, rows.n)).collect();
    assert_eq!(rows, [(ids[0], true, 0, 9), (ids[1], true, 0, 2)]);
    assert_eq!((event.padding, event.slots.len(), event.cache.used), (5, 2, 11));
    assert!(event.us_predicted > 0.0);
    let event = watch.next().expect("it came");
    let rows: Vec<_> = event.rows.iter().map(|rows| (rows.prefill, rows.from, rows.n)).collect();
    assert_eq!((rows, event.cache.used), (vec![(false, 9, 1), (false, 2, 1)], 13));
    // One that does not listen loses events and holds nothing up.
    assert_eq!((watch.n_dropped(), idle.n_dropped()), (0, 1));
    drop(idle);
    (9..13).for_each(|now| drop(scheduler.tick(now).expect("it runs")));
    drop(scheduler);
    assert_eq!(std::iter::from_fn(|| watch.next()).count(), 4);
}

#[test]
fn a_server_tells_of_its_slots_and_steps() {
    let server = Server::start(scheduler()).expect("there is a thread");
    let watch = server.watch(64).expect("it runs");
    let found = server.submit(request(&[3; 10], |_| ())).expect("it is taken").wait().expect("it is answered");
    let slots = server.slots().expect("it runs");
    assert_eq!((slots.len(), slots[0].state), (1, SlotState::Idle));
    let seq = slots[0].seq;
    let saved = server.between_steps(move |scheduler| scheduler.save_slot(seq)).expect("it runs").expect("it is saved");
    assert!(saved.tokens().len() >= 10 + found.reply.tokens.len() - 1);
    // A request that is refused is refused on the caller's thread, with nothing run for it.
    assert!(matches!(server.submit(request(&[], |_| ())), Err(ServeError::Dialog(DialogError::Empty))));
    let n_steps = server.counts().expect("it runs").n_steps;
    drop(server);
    assert_eq!(std::iter::from_fn(|| watch.next()).count(), n_steps);
}

/// A draft model with room for one of two replies drafts for the first, as if it were alone.
#[test]
fn a_small_draft_model_drafts_for_as_many_as_fit() {
    let run = |rows: usize| {
        let mut scheduler = scheduler();
        scheduler.set_draft_model(Box::new(Fake::new(rows, 64)), 3, None).expect("it suits");
        let long = |settings: &mut RequestSettings| {
            (settings.max_tokens, settings.ignore_end_tokens) = (Some(25), true);
        };
        let found = serve(&mut scheduler, vec![request(&[3; 35], long), request(&[9; 20], long)]);
        let counts = |at: usize| found[at].0.reply.kpis.speculation.unwrap_or_default();
        let tokens: Vec<_> = found.iter().map(|(done, _)| done.reply.tokens.clone()).collect();
        (tokens, counts(0), counts(1), scheduler.counts().n_steps)
    };
    let (both, first, second, n_steps) = run(200);
    let (found, alone, left, n_more) = run(64);
    assert_eq!(found, both);
    assert!(first.n_accepted > 5 && second.n_accepted > 5, "{first:?} {second:?}");
    assert_eq!(alone, first);
    // The other has drafts once there is room.
    assert!(left.n_accepted > 0 && n_more > n_steps, "{left:?}, {n_more} steps, {n_steps} with room for both");
}

/// The choices of one answer come between two steps, all or none.
#[test]
fn several_requests_are_taken_together_or_not_at_all() {
    let options = ServeOptions { max_slots: 2, max_waiting: 2, ..ServeOptions::default() };
    let fake = Fake::new(256, 64);
    let stop = fake.stop.clone();
    let scheduler = Scheduler::new(Box::new(fake), base(64), options).expect("it opens");
    let server = Server::start(scheduler).expect("there is a thread");
    let requests = |n: usize| vec![request(&[3; 10], |settings| settings.max_tokens = Some(4)); n];
    let handles = server.submit_all(requests(4)).expect("two run and two wait");
    assert_eq!(handles.len(), 4);
    handles.into_iter().for_each(|handle| assert!(!handle.wait().expect("it is answered").reply.tokens.is_empty()));
    assert!(matches!(server.submit_all(requests(5)), Err(ServeError::TooManyAtOnce { found: 5, most: 4 })));
    // None of them is over while no step runs.
    stop.set();
    let first = server.submit_all(requests(3)).expect("there is room");
    assert!(matches!(server.submit_all(requests(2)), Err(ServeError::QueueFull { .. })));
    stop.clear();
    first.into_iter().for_each(|handle| drop(handle.wait().expect("it is answered")));
    let n_steps = server.counts().expect("it runs").n_steps;
    let counts = server.counts().expect("it runs");
    assert_eq!((counts.n_steps, counts.running, counts.waiting), (n_steps, 0, 0));
    assert!(server.submit_all(Vec::new()).expect("there is nothing to refuse").is_empty());
}

/// A draft model with ids of its own: the same model, so that its drafts hold where it knows the tokens.
#[test]
fn a_draft_model_may_have_ids_of_its_own() {
    let run = |draft: Option<Vec<u32>>| {
        let mut scheduler = scheduler();
        if let Some(ids) = draft {
            let map = VocabularyMap::new(ids.iter().map(|id| Some(TokenId(*id))).collect()).unwrap();
            scheduler.set_draft_model(Box::new(Fake::new(256, 64).with_ids(ids)), 3, Some(map)).unwrap();
        }
        let long = |settings: &mut RequestSettings| settings.ignore_end_tokens = true;
        let found = serve(&mut scheduler, vec![request(&[1, 2, 3], long), request(&[9, 8], long)]);
        let tokens: Vec<_> = found.iter().map(|(done, _)| done.reply.tokens.clone()).collect();
        let speculation = found.into_iter().map(|(done, _)| done.reply.kpis.speculation.unwrap_or_default());
        let counts = speculation.fold((0, 0), |(a, b), of| (a + of.n_drafted, b + of.n_accepted));
        (tokens, counts, scheduler.counts().n_steps)
    };
    let (plain, _, n_steps) = run(None);
    let (all, (drafted, accepted), n_fewer) = run(Some((0..VOCAB as u32).rev().collect()));
    assert_eq!(all, plain);
    assert!(
        drafted > 0 && drafted == accepted && 2 * n_fewer < n_steps + 4,
        "{accepted} of {drafted}, {n_fewer} steps"
    );
    // It lacks tokens of the prompts and replies: what it says then is another model's.
    let (some, (drafted, accepted), _) = run(Some((0..VOCAB as u32).filter(|id| id % 4 != 1).collect()));
    assert_eq!(some, plain);
    assert!(drafted > accepted, "{accepted} of {drafted}");
}

#[test]
fn a_map_that_fits_neither_model_is_refused() {
    let refused = |ids: u32, last: u32| {
        let map = VocabularyMap::new((0..ids).chain([last]).map(|id| Some(TokenId(id))).collect()).unwrap();
        let draft = Fake::new(64, 64).with_ids((0..4).collect());
        scheduler().set_draft_model(Box::new(draft), 2, Some(map)).expect_err("it is refused").to_string()
    };
    assert!(refused(4, 9).contains("the 5 ids of `draft-token-map`"), "{}", refused(4, 9));
    assert!(refused(2, 99).contains("token 99"), "{}", refused(2, 99));
}

/// What a full cache makes dear is not dear for short contexts: all replies are in one step.
#[test]
fn widths_are_chosen_by_the_contexts_at_hand() {
    let widest = |full_only: bool| {
        let time = |(width, us, us_empty)| StepTime { width, us, us_empty: if full_only { us } else { us_empty } };
        let step_times = StepTimes::new([(1, 14.0, 13.0), (4, 25.0, 14.0), (16, 80.0, 17.0)].map(time));
        let options = ServeOptions { step_times, ..ServeOptions::default() };
        let mut scheduler = Scheduler::new(Box::new(Fake::new(400, CONTEXT)), base(CONTEXT), options).unwrap();
        let prompts: Vec<[u32; 2]> = (0..8).map(|n| [n, 9]).collect();
        for prompt in &prompts {
            scheduler.submit(request(prompt, |_| ()), 0).unwrap();
        }
        let mut widths = Vec::new();
        for now in 0..1_000 {
            let report = scheduler.tick(now).unwrap();
            if report.rows.iter().all(|rows| !rows.prefill) && report.rows.len() >= 4 {
                widths.push(report.width);
            }
        }
        widths.into_iter().max()
    };
    assert_eq!((widest(false), widest(true)), (Some(16), Some(4)));
}

//! Rows that many share, a store of prefixes, stops: nothing is lost, and nothing is kept from requests that could have it.

mod fake;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dialog::{RequestSettings, SamplerSettings, StopReason};
use engine::{SeqId, Snapshot};
use fake::{Fake, base};
use genie_types::TokenId;
use serving::{Event, Finished, Request, Scheduler, ServeError, ServeOptions, Server};
use session_store::{ModelHash, PrefixStore, SavedSequence, SavedToken};

const CONTEXT: usize = 96;

fn scheduler(fake: Fake, options: ServeOptions) -> Scheduler {
    Scheduler::new(Box::new(fake), base(CONTEXT).without_end_tokens(), options).expect("it opens")
}

fn request(prompt: impl Iterator<Item = u32>, max_tokens: usize) -> Request {
    let mut settings = RequestSettings::new(SamplerSettings::argmax());
    settings.max_tokens = Some(max_tokens);
    Request { prompt: prompt.map(TokenId).collect(), settings, priority: 0 }
}

/// Runs to the end; in the order of the requests.
fn serve(scheduler: &mut Scheduler, requests: Vec<Request>) -> Vec<Finished> {
    let ids: Vec<_> = requests.into_iter().map(|request| scheduler.submit(request, 0).expect("it is taken")).collect();
    let mut found: Vec<Option<Finished>> = vec![None; ids.len()];
    for now in 0.. {
        assert!(now < 10_000, "it does not end");
        if scheduler.is_idle() {
            break;
        }
        scheduler.tick(now).expect("it runs");
        for event in scheduler.take_events() {
            match event {
                Event::Done(done) => {
                    let at = ids.iter().position(|id| *id == done.id).expect("it is known");
                    found[at] = Some(*done);
                }
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    found.into_iter().map(|done| done.expect("it ends")).collect()
}

#[test]
fn rows_that_only_idle_sequences_share_are_free() {
    let mut scheduler = scheduler(Fake::new(CONTEXT, CONTEXT), ServeOptions::default());
    // Two that are over share 70 rows, and have two of their own each.
    for last in [7, 8] {
        serve(&mut scheduler, vec![request((0..70).map(|i| i % 5).chain([last]), 2)]);
    }
    assert!(scheduler.counts().idle == 2 && scheduler.counts().rows.free() < 25, "{:?}", scheduler.counts());
    let done = serve(&mut scheduler, vec![request((0..50).map(|i| 9 + i % 5), 10)]).remove(0);
    assert_eq!((done.reply.stop, done.reply.tokens.len()), (StopReason::MaxTokens, 10));
    assert_eq!(scheduler.counts().n_parked, 0);
}

#[test]
fn a_full_cache_makes_room_for_a_stored_prefix() {
    let folder = tempfile::tempdir().expect("there is room");
    for together in [true, false] {
        let fake = Fake::new(CONTEXT, CONTEXT);
        let mut scheduler = scheduler(if together { fake } else { fake.one_at_a_time() }, ServeOptions::default());
        let store = PrefixStore::open(&folder.path().join(together.to_string()), ModelHash::default(), 1 << 30);
        scheduler.set_prefix_store(store.expect("it opens"), 8);
        let prompt = || request((0..60).map(|i| i % 7), 4);
        let first = serve(&mut scheduler, vec![prompt()]).remove(0);
        // Others take the rows of the first, and then most of the cache.
        for other in [9, 13] {
            serve(&mut scheduler, vec![request((0..44).map(|i| other + i % 4), 3)]);
        }
        let again = serve(&mut scheduler, vec![prompt()]).remove(0);
        assert_eq!((first.n_shared, again.n_shared), (0, 59), "together: {together}");
        assert_eq!(first.reply.tokens, again.reply.tokens);
        assert_eq!(scheduler.prefix_fault(), None);
    }
}

#[test]
fn a_stored_prompt_whose_last_token_cannot_be_taken_back_is_no_fault() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut scheduler = scheduler(Fake::new(CONTEXT, CONTEXT).evicting(), ServeOptions::default());
    let store = PrefixStore::open(folder.path(), ModelHash::default(), 1 << 30);
    scheduler.set_prefix_store(store.expect("it opens"), 8);
    let prompt = |n: u32| request((0..n).map(|i| i % 7), 4);
    let other = || request((0..30).map(|i| 9 + i % 4), 3);
    let mut shared = |request| serve(&mut scheduler, vec![request]).remove(0).n_shared;
    assert_eq!([prompt(40), other(), prompt(60), other()].map(&mut shared), [0, 0, 40, 0]);
    // All 60 are stored, and the first 40.
    assert_eq!([prompt(60), other(), prompt(61)].map(&mut shared), [40, 0, 60]);
    assert_eq!(scheduler.prefix_fault(), None);
}

#[test]
fn a_prompt_that_is_there_takes_no_room_from_others() {
    let mut scheduler = scheduler(Fake::new(CONTEXT, CONTEXT), ServeOptions::default());
    let first = || request((0..40).map(|i| i % 7), 2);
    let second = || request((0..40).map(|i| 9 + i % 4), 2);
    for (request, n_shared) in [(first(), 0), (second(), 0), (second(), 39), (first(), 39)] {
        assert_eq!(serve(&mut scheduler, vec![request]).remove(0).n_shared, n_shared);
    }
}

#[test]
fn what_is_in_the_cache_is_not_read_from_the_store() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut scheduler = scheduler(Fake::new(CONTEXT, CONTEXT), ServeOptions::default());
    let store = PrefixStore::open(folder.path(), ModelHash::default(), 1 << 30);
    scheduler.set_prefix_store(store.expect("it opens"), 8);
    let prompt = || request((0..40).map(|i| i % 7), 4);
    for n_shared in [0, 39] {
        assert_eq!(serve(&mut scheduler, vec![prompt()]).remove(0).n_shared, n_shared);
    }
    // Rows that both have are there once.
    assert!(scheduler.counts().rows.free() >= CONTEXT - 40 - 2 * 5, "{:?}", scheduler.counts());
    assert_eq!(folder.path().read_dir().expect("it is there").count(), 2, "a prefix and the lock");
}

#[test]
fn a_snapshot_that_does_not_fit_leaves_slots_as_they_are() {
    let mut scheduler = scheduler(Fake::new(60, CONTEXT), ServeOptions::default());
    serve(&mut scheduler, vec![request((0..30).map(|i| i % 7), 2)]);
    let before = scheduler.slots();
    let token = |i: usize| SavedToken { token: TokenId(1), position: i, generated: false };
    let tokens: Vec<_> = (0..61).map(token).collect();
    let snapshot = Snapshot { sequences: vec![SavedSequence { seq: SeqId(0), tokens }], ..Snapshot::default() };
    let error = scheduler.restore_slot(before[0].seq, &snapshot).expect_err("it is too long").to_string();
    assert_eq!(error, "slot 0: expected 61 free rows, found 60");
    assert_eq!(scheduler.slots(), before);
}

#[test]
fn a_turn_is_not_given_to_one_of_lower_priority() {
    let options = ServeOptions { turn: Some(2), ageing: Duration::ZERO, ..ServeOptions::default() };
    for (priority, parked) in [(0, true), (3, false)] {
        let mut scheduler = scheduler(Fake::new(CONTEXT, CONTEXT).one_at_a_time(), options.clone());
        let first = Request { priority, ..request([1, 2, 3].into_iter(), 12) };
        let found = serve(&mut scheduler, vec![first, request([4, 5].into_iter(), 12)]);
        assert_eq!(found[0].n_parked > 0, parked, "priority {priority}");
        assert!(found.iter().all(|done| done.reply.tokens.len() == 12));
    }
}

#[test]
fn turns_are_given_to_no_more_requests_than_there_are_slots() {
    let options = ServeOptions { turn: Some(2), max_slots: 2, ..ServeOptions::default() };
    let mut scheduler = scheduler(Fake::new(CONTEXT, CONTEXT).one_at_a_time(), options);
    for i in 0..6 {
        scheduler.submit(request([i, i + 1].into_iter(), 9), 0).expect("it is taken");
    }
    let (mut begun, mut most, mut n_parked, mut n_done) = (BTreeSet::new(), 0, 0, 0);
    for now in 0..1_000 {
        scheduler.tick(now).expect("it runs");
        for event in scheduler.take_events() {
            begun.insert(event.id());
            most = most.max(begun.len());
            match event {
                Event::Parked { .. } => n_parked += 1,
                Event::Done(done) => {
                    assert_eq!(done.reply.tokens.len(), 9);
                    begun.remove(&done.id);
                    n_done += 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!((n_done, most), (6, 2), "all are over, two of them under way at a time");
    assert!(n_parked >= 12, "they took turns: {n_parked}");
}

#[test]
fn a_stop_holds_requests_and_does_not_spin() {
    let fake = Fake::new(CONTEXT, CONTEXT);
    let (stop, n_asked) = (fake.stop.clone(), fake.n_asked.clone());
    stop.set();
    let began = std::time::Instant::now();
    let server = Server::start(scheduler(fake, ServeOptions::default())).expect("there is a thread");
    let handle = server.submit(request([1, 2, 3].into_iter(), 5)).expect("it is taken");
    std::thread::sleep(Duration::from_millis(300));
    // One try in 20 ms, and one for each command.
    let tries = n_asked.load(Ordering::Relaxed);
    let most = began.elapsed().as_millis() as usize / 20 + 2;
    assert!((1..=most).contains(&tries), "{tries} tries, {most} at most");
    stop.clear();
    assert_eq!(handle.wait().expect("it goes on").reply.tokens.len(), 5);
    // One that is held ends when it is cancelled, and when the server goes.
    stop.set();
    let cancelled = server.submit(request([1, 2].into_iter(), 5)).expect("it is taken");
    cancelled.cancel();
    assert_eq!(cancelled.wait().expect("it ends").reply.stop, StopReason::Aborted);
    let held = server.submit(request([1, 2].into_iter(), 5)).expect("it is taken");
    drop(server);
    assert!(matches!(held.wait(), Err(ServeError::ShutDown)));
}

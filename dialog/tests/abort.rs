//! An abort within a prompt: what the model has processed stays in the dialog, and the next query goes on from there.

use std::sync::atomic::Ordering;

use dialog::SentenceCode::{Begin, Complete, Rewind};
use dialog::{Dialog, Signal, StopReason};

use crate::common::{Call, Fake, Spy, ask, context, greedy, ids, raw, say};

fn dialog() -> (Dialog, Spy) {
    let (model, spy) = Fake::new(128, |cache| 7 + cache.len() as u32 % 3);
    (greedy(context(), model), spy)
}

fn stop_after(spy: &Spy, n: usize) {
    *spy.stop_after.lock().unwrap() = Some(n);
}

#[test]
fn what_was_processed_of_a_prompt_stays() {
    for n in 0..4 {
        let (mut dialog, spy) = dialog();
        stop_after(&spy, n);
        let (reply, seen) = ask(&mut dialog, &[1, 2, 3], Complete);
        assert_eq!((reply.stop.clone(), reply.stop.genie_status()), (StopReason::Aborted, 1));
        assert_eq!((reply.tokens.len(), seen.codes()), (0, vec![3]), "the END chunk alone");
        assert_eq!(raw(&dialog.history()), &[256, 1, 2, 3][..n]);
        assert_eq!((raw(&reply.input), reply.kpis.n_prompt, dialog.n_past()), (raw(&dialog.history()), n, n));
        // The whole conversation stated again processes what is missing.
        spy.take();
        dialog.control().set_max_num_tokens(Some(1));
        let (again, _) = ask(&mut dialog, &[256, 1, 2, 3], Rewind);
        assert_eq!((raw(&again.input), again.tokens.len()), ([256, 1, 2, 3][n..].to_vec(), 1));
    }
}

#[test]
fn a_turn_that_was_stopped_is_followed_by_one_of_its_own() {
    for n in 0..4 {
        let (mut dialog, spy) = dialog();
        dialog.control().set_max_num_tokens(Some(2));
        let first = ask(&mut dialog, &[1], Complete).0;
        let before = raw(&dialog.history());
        assert_eq!(before.len(), 4, "two of the prompt, two of the reply: {first:?}");
        // The second token of the reply was not processed yet: it goes first.
        stop_after(&spy, n);
        let stopped = ask(&mut dialog, &[5, 6], Complete).0;
        assert_eq!(stopped.stop, StopReason::Aborted);
        let input = [before[3], 257, 256, 5, 6];
        let kept = [&before[..3], &input[..n.max(1)]].concat();
        assert_eq!((raw(&dialog.history()), dialog.n_past()), (kept, 3 + n), "after {n}");
        let next = ask(&mut dialog, &[9], Complete).0;
        let goes_on = match n {
            0 => vec![before[3], 257, 256, 9],
            2 => vec![256, 9], // an EOS was the last token processed
            _ => vec![257, 256, 9],
        };
        assert_eq!(raw(&next.input), goes_on, "after {n}");
        assert_eq!(next.tokens.len(), 2);
    }
}

/// Where the oldest tokens of a full context go while a long turn is processed.
#[test]
fn a_turn_longer_than_a_shifted_context_is_followed_by_one_of_its_own() {
    for (code, n) in [Complete, Begin].into_iter().flat_map(|code| (0..43).map(move |n| (code, n))) {
        let (model, spy) = Fake::shifting(16, |cache| 7 + cache.len() as u32 % 3);
        let mut dialog = greedy(context(), model);
        dialog.control().set_max_num_tokens(Some(2));
        ask(&mut dialog, &[1], Complete);
        let before = raw(&dialog.history());
        stop_after(&spy, n);
        let turn: Vec<u32> = (20..60).collect();
        let stopped = ask(&mut dialog, &turn, code).0;
        let input = [&[before[3], 257, 256], &turn[..]].concat();
        assert_eq!((stopped.stop, raw(&stopped.input)), (StopReason::Aborted, input[..n].to_vec()), "after {n}");
        let (all, kept) = ([&before[..3], &input[..n.max(1)]].concat(), raw(&dialog.history()));
        assert!(all.ends_with(&kept), "after {n}: {kept:?}");
        assert_eq!(dialog.n_past(), kept.len() - usize::from(n == 0), "after {n}");
        let next = ask(&mut dialog, &[9], Complete).0;
        let goes_on = match n {
            0 => vec![before[3], 257, 256, 9],
            2 => vec![256, 9], // an EOS was the last token processed
            _ => vec![257, 256, 9],
        };
        assert_eq!((raw(&next.input), next.tokens.len()), (goes_on, 2), "after {n}");
    }
}

/// A stop sequence takes tokens back. A cache that has dropped rows processes what stays again, and is stopped meanwhile.
#[test]
fn an_abort_while_the_history_is_processed_again_loses_none_of_it() {
    for n in 0..6 {
        let (model, spy) = Fake::new(128, |cache| *b"abcd".get(cache.len() - 4).unwrap_or(&b'e') as u32);
        let mut dialog = greedy(context(), model);
        dialog.set_stop_sequences(vec!["cd".into()]).unwrap();
        spy.drops_rows.store(true, Ordering::Relaxed);
        let at_last_token = spy.clone();
        let mut seen = String::new();
        let reply = dialog.query("xyz", Complete, |chunk| {
            seen.push_str(chunk.text);
            if chunk.text == "b" {
                // The step of `d`, then those of the history.
                stop_after(&at_last_token, 2 + n);
            }
        });
        let reply = reply.unwrap();
        assert_eq!((reply.text.as_str(), reply.stop), ("ab", StopReason::StopSequence("cd".into())), "after {n}");
        assert_eq!(raw(&dialog.history()), [256, 120, 121, 122, 97, 98], "after {n}");
        assert!(spy.take().contains(&Call::Reset), "the history was processed again");
        let next = say(&mut dialog, "q", Complete).0;
        assert!(!next.tokens.is_empty(), "the next query runs: {:?}", next.stop);
    }
}

#[test]
fn a_part_without_a_reply_is_stopped_as_well() {
    let (mut dialog, spy) = dialog();
    stop_after(&spy, 2);
    let part = ask(&mut dialog, &[1, 2, 3], Begin).0;
    assert_eq!((part.stop, raw(&part.input)), (StopReason::Aborted, vec![256, 1]));
    assert_eq!(raw(&ask(&mut dialog, &[4], Complete).0.input), [257, 256, 4], "the part is over");
}

#[test]
fn an_abort_ends_the_reply_before_its_next_step() {
    // The signal is seen by the model, too: no step begins after it.
    let (mut dialog, spy) = dialog();
    let control = dialog.control();
    let mut n = 0;
    let reply = dialog.token_query(&ids([1]), Complete, |_| {
        n += 1;
        if n == 3 {
            control.signal(Signal::Abort);
        }
    });
    let reply = reply.unwrap();
    assert_eq!((reply.stop, reply.tokens.len(), spy.take().len()), (StopReason::Aborted, 3, 3));
    dialog.control().set_max_num_tokens(Some(4));
    assert_eq!(ask(&mut dialog, &[2], Complete).0.tokens.len(), 4, "and the next one runs");
}

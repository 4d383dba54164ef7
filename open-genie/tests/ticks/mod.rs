//! A scheduler that is ticked by hand until its requests are done.

use open_genie::TokenId;
use open_genie::serving::{Event, Finished, Request, RequestId, Serving};

/// Ticks after which requests of these tests hang.
const MOST: u64 = 10_000;

/// Submits all at once, and returns what became of them, in their order. `seen` gets the rows of prompts of each step.
pub fn serve(
    serving: &mut Serving,
    requests: Vec<Request>,
    mut seen: impl FnMut(&mut Serving, usize),
) -> Vec<Finished> {
    let submit = |request| serving.scheduler().submit(request, 0).unwrap();
    let ids: Vec<RequestId> = requests.into_iter().map(submit).collect();
    let mut done: Vec<Option<Finished>> = ids.iter().map(|_| None).collect();
    for now in 0..MOST {
        let report = serving.scheduler().tick(now).unwrap();
        seen(serving, report.rows.iter().filter(|rows| rows.prefill).map(|rows| rows.n).sum());
        for event in serving.scheduler().take_events() {
            match event {
                Event::Done(finished) => {
                    let at = ids.iter().position(|id| *id == finished.id).unwrap();
                    done[at] = Some(*finished);
                }
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        if done.iter().all(Option::is_some) {
            return done.into_iter().flatten().collect();
        }
    }
    panic!(
        "{} of {} requests are not done after {MOST} ticks",
        done.iter().filter(|one| one.is_none()).count(),
        done.len()
    );
}

/// The tokens of each reply.
pub fn tokens(found: &[Finished]) -> Vec<Vec<TokenId>> {
    found.iter().map(|finished| finished.reply.tokens.clone()).collect()
}

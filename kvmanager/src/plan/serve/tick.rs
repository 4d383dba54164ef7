//! One tick: who is parked, who starts, and the rows of the step.

use super::admit::starting;
use super::width::{Choice, Demand, StepTimes, choose, choose_turns};
use super::{Mixing, Phase, ServeRequest, ServeRules, ServeState, Tick, TickRows};

/// Plans the next tick. The same state gives the same tick.
pub fn plan_tick(state: &ServeState<'_>, rules: &ServeRules, times: &StepTimes) -> Tick {
    let mut tick = Tick::default();
    let runs = |request: &&ServeRequest| matches!(request.phase, Phase::Prefill | Phase::Decode);
    let mut running: Vec<&ServeRequest> = state.requests.iter().filter(runs).collect();
    if running.is_empty()
        && let Some(until) = coalesced(state, rules)
    {
        tick.wait_until_us = Some(until);
        return tick;
    }
    running.sort_by_key(|request| (request.started, request.id));
    let mut free = make_room(&mut running, state.free_rows, &mut tick);
    if !tick.full.is_empty() {
        return tick;
    }
    if tick.park.is_empty() {
        let begun = starting(state, rules, times);
        tick.start = begun.iter().map(|request| request.id).collect();
        running.extend(begun);
    }
    let mut replies: Vec<&ServeRequest> = running.iter().copied().filter(|r| r.phase == Phase::Decode).collect();
    replies.sort_by_key(|request| request.turn());
    let all_prompts = running.iter().copied().filter(|r| r.phase != Phase::Decode);
    let n_prefilling = all_prompts.clone().count();
    let prompts: Vec<&ServeRequest> = all_prompts.take(rules.prompts_a_step.max(1)).collect();
    let Some(choice) = chosen(state, rules, times, &replies, (&prompts, n_prefilling)) else { return tick };
    tick.width = choice.width;
    let mut drafts = choice.drafts;
    // Trees come first: a part of one is worth nothing.
    let of_trees = replies[..choice.replies].iter().filter(|request| request.draft_is_whole);
    let mut of_trees: usize = of_trees.map(|request| request.draft).sum();
    if of_trees > drafts {
        of_trees = 0;
    }
    for request in &replies[..choice.replies] {
        let room = free.saturating_sub(choice.replies);
        let draft = match request.draft_is_whole {
            true if request.draft <= of_trees.min(room) => {
                of_trees -= request.draft;
                request.draft
            }
            true => 0,
            false => request.draft.min(drafts - of_trees).min(room),
        };
        drafts -= draft;
        free = free.saturating_sub(draft);
        tick.rows.push(TickRows { id: request.id, n: 1 + draft, prefill: false });
    }
    free = free.saturating_sub(choice.replies);
    let mut left = choice.prompt.min(free);
    for request in prompts {
        let n = request.todo.min(left);
        if n > 0 {
            left -= n;
            tick.rows.push(TickRows { id: request.id, n, prefill: true });
        }
    }
    tick
}

/// While nothing runs, the first request waits a little for others.
fn coalesced(state: &ServeState<'_>, rules: &ServeRules) -> Option<u64> {
    let first = state.requests.iter().map(|request| request.arrived_us).min()?;
    let parked = state.requests.iter().any(|request| request.phase == Phase::Parked);
    let until = first.saturating_add(rules.coalesce_us);
    let enough = state.requests.len() >= rules.most_running.min(state.free_slots);
    (!parked && !enough && until > state.now_us).then_some(until)
}

/// Parks requests, the one that started last first, until every reply has a row for its next token and the first prompt one
/// as well. Returns the free rows.
fn make_room(running: &mut Vec<&ServeRequest>, mut free: usize, tick: &mut Tick) -> usize {
    loop {
        let replies = running.iter().filter(|request| request.phase == Phase::Decode).count();
        let prompt = usize::from(running.iter().any(|request| request.phase == Phase::Prefill));
        if replies + prompt <= free {
            return free;
        }
        match running.as_slice() {
            [] => return free,
            [only] => {
                if free == 0 {
                    tick.full.push(only.id);
                }
                return free;
            }
            [.., last] => {
                free += last.own_rows;
                tick.park.push(last.id);
                running.pop();
            }
        }
    }
}

fn chosen(
    state: &ServeState<'_>,
    rules: &ServeRules,
    times: &StepTimes,
    replies: &[&ServeRequest],
    (prompts, n_prefilling): (&[&ServeRequest], usize),
) -> Option<Choice> {
    let prompt = prompts.iter().map(|request| request.todo).sum::<usize>().min(rules.prefill_chunk.max(1));
    let at_once = replies.iter().take(rules.replies_a_step);
    let demand = Demand {
        replies: replies.len(),
        most_replies: rules.replies_a_step,
        in_round: replies.len() + n_prefilling,
        drafts: at_once.clone().map(|request| request.draft).sum(),
        prompt,
        prompt_due: prompt > 0 && !state.had_prefill,
        fused: true,
        row_for_reply: rules.row_for_reply,
        target_us: rules.target_us.map(|us| us as f64),
    };
    let of_prompts = Demand { replies: 0, drafts: 0, prompt_due: false, ..demand };
    let of_trees = at_once.clone().filter(|request| request.draft_is_whole);
    let whole: usize = of_trees.map(|request| request.draft).sum();
    let choose_with_drafts = |demand| with_whole_drafts(times, demand, (at_once.count(), whole));
    let of_replies = Demand { prompt: 0, prompt_due: false, ..demand };
    match rules.mixing {
        Mixing::Fused => choose_with_drafts(demand),
        Mixing::PrefillFirst if prompt > 0 => choose(times, Demand { target_us: None, ..of_prompts }),
        Mixing::PrefillFirst => choose_with_drafts(of_replies),
        Mixing::Alternating if prompt > 0 && !replies.is_empty() => {
            let of_replies = Demand { drafts: of_replies.drafts - whole, ..of_replies };
            let turns = choose_turns(times, demand)?;
            match state.had_prefill {
                true => choose(&StepTimes::new([turns.of_replies])?, of_replies),
                false => choose(&StepTimes::new([turns.of_prompts])?, of_prompts),
            }
        }
        Mixing::Alternating if prompt > 0 => choose(times, Demand { target_us: None, ..of_prompts }),
        Mixing::Alternating => choose_with_drafts(of_replies),
    }
}

/// Rows of whole drafts are not worth a token each: the caller has found them worth a step, so the choice is among those that have all of
/// them. Where none of these is in time there are no whole drafts.
fn with_whole_drafts(times: &StepTimes, demand: Demand, (n_replies, whole): (usize, usize)) -> Option<Choice> {
    let wide = times.at_least(n_replies + whole).filter(|_| whole > 0);
    let choice = wide.and_then(|wide| choose(&wide, demand)).filter(|choice| choice.in_time && choice.drafts >= whole);
    choice.or_else(|| choose(times, Demand { drafts: demand.drafts.saturating_sub(whole), ..demand }))
}

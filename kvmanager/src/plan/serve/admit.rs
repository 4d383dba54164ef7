//! Which requests start: by priority and age, as many as rows, sequences and the target allow.

use super::width::{Demand, StepTimes, choose, choose_turns};
use super::{Mixing, Phase, ServeRequest, ServeRules, ServeState};

/// Requests without rows in the order in which they start: parked ones as they had started, then by priority and age.
pub(super) fn queue<'a>(state: &ServeState<'a>, rules: &ServeRules) -> Vec<&'a ServeRequest> {
    let waits = |request: &&ServeRequest| matches!(request.phase, Phase::Waiting | Phase::Parked);
    let mut queue: Vec<_> = state.requests.iter().filter(waits).collect();
    queue.sort_by_key(|request| match request.phase {
        Phase::Parked => (0, 0, request.started, request.id),
        _ => (1, -request.rank(state.now_us, rules.ageing_us), request.arrived_us, request.id),
    });
    queue
}

/// The requests that start now. Nothing overtakes the first that cannot.
pub(super) fn starting<'a>(state: &ServeState<'a>, rules: &ServeRules, times: &StepTimes) -> Vec<&'a ServeRequest> {
    let runs = |request: &&ServeRequest| matches!(request.phase, Phase::Prefill | Phase::Decode);
    let running = state.requests.iter().filter(runs);
    let (mut n_running, promised) = running.fold((0, 0), |(n, rows), request| (n + 1, rows + request.rows_ahead));
    let mut left = state.free_rows.saturating_sub(promised);
    let mut slots = state.free_slots;
    let mut out = Vec::new();
    for request in queue(state, rules) {
        let alone = n_running == 0;
        // One that is alone has all rows there are; what does not fit then is found out when it is full.
        let fits = request.rows_ahead <= left || alone;
        if slots == 0
            || n_running >= rules.most_running.max(1)
            || !fits
            || !(alone || keeps_pace(n_running + 1, rules, times))
        {
            break;
        }
        left = left.saturating_sub(request.rows_ahead);
        slots -= 1;
        n_running += 1;
        out.push(request);
    }
    out
}

/// Whether `n` replies get their tokens within the target while a prompt is processed beside them.
pub(super) fn keeps_pace(n: usize, rules: &ServeRules, times: &StepTimes) -> bool {
    let demand = Demand {
        replies: n,
        most_replies: rules.replies_a_step,
        in_round: n,
        drafts: 0,
        prompt: 1,
        prompt_due: true,
        fused: rules.mixing == Mixing::Fused,
        row_for_reply: rules.row_for_reply,
        target_us: rules.target_us.map(|us| us as f64),
    };
    match rules.mixing {
        Mixing::Alternating => choose_turns(times, demand).is_some_and(|turns| turns.in_time),
        Mixing::Fused | Mixing::PrefillFirst => choose(times, demand).is_some_and(|choice| choice.in_time),
    }
}

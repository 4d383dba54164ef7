//! Plans one tick of a scheduler: which requests start, which are parked, and whose tokens are the rows of the next step. Pure:
//! state in, rows out.
//!
//! *Units*: rows and tokens; microseconds of a clock that the caller owns. A tick is one step of the graphs.
//!
//! *Order*. Tokens of replies first, the request that waited longest for its turn first; then the prompt that was begun first, then
//! later ones. A request starts in the order of its priority, which grows while it waits; nothing overtakes the first one
//! that lacks rows.
//!
//! *Width*. By the measured times of steps, the one that serves most rows in a microsecond, among those with which every reply gets
//! its next token within the target. Where no width does, the one that comes nearest.
//!
//! *Rows*. A request starts when its prompt and the rows set aside for its reply fit beside what is promised to others. Where
//! replies outgrow that, the request that started last is parked; the one that started first never is.

mod admit;
mod tick;
mod width;

#[cfg(test)]
mod tests;

pub use tick::plan_tick;
pub use width::{StepTime, StepTimes};

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has no rows.
    Waiting,
    /// It had rows, and lost them to others: it starts before all that wait.
    Parked,
    /// Its prompt is being processed.
    Prefill,
    /// Its prompt is processed; a token a turn.
    Decode,
}

/// A request as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeRequest {
    /// The caller's number, which no other request has.
    pub id: u64,
    /// Where it stands.
    pub phase: Phase,
    /// When it came.
    pub arrived_us: u64,
    /// Higher starts first.
    pub priority: i32,
    /// Tokens of the prompt (for a parked one: of all it had) that are to be processed; not looked at in `Decode`.
    pub todo: usize,
    /// Drafted tokens that it would have verified together with its last one.
    pub draft: usize,
    /// All of them or none: a tree.
    pub draft_is_whole: bool,
    /// Rows that only this request has.
    pub own_rows: usize,
    /// Rows set aside for it beyond those it has: what is left of its prompt, and for its reply.
    pub rows_ahead: usize,
    /// In which order it started; 0 for one that waits.
    pub started: u64,
    /// When its last token came, or it last had a row.
    pub last_us: u64,
}

impl ServeRequest {
    /// In which order replies have their rows: the one that waited longest for its turn first.
    pub fn turn(&self) -> impl Ord + use<> {
        (self.last_us, self.started, self.id)
    }

    /// Its priority, and one step more for each `ageing_us` that it has waited; 0 for none.
    pub fn rank(&self, now_us: u64, ageing_us: u64) -> i64 {
        let age = now_us.saturating_sub(self.arrived_us).checked_div(ageing_us).unwrap_or(0);
        i64::from(self.priority).saturating_add(i64::try_from(age).unwrap_or(i64::MAX))
    }
}

/// All that a tick depends on.
#[derive(Clone, Copy, Debug)]
pub struct ServeState<'a> {
    /// The caller's clock.
    pub now_us: u64,
    /// The requests that are not over.
    pub requests: &'a [ServeRequest],
    /// Rows that are free, or that no request needs and that can be taken back.
    pub free_rows: usize,
    /// Sequences that no request has.
    pub free_slots: usize,
    /// The last tick had rows of a prompt.
    pub had_prefill: bool,
}

/// Whether prompts and replies are rows of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mixing {
    /// Yes: a step has tokens of replies and a piece of a prompt.
    #[default]
    Fused,
    /// A piece of a prompt, then tokens of replies, in turn.
    Alternating,
    /// Whole prompts before any reply goes on.
    PrefillFirst,
}

/// The scheduler's rules.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeRules {
    /// What a step may hold.
    pub mixing: Mixing,
    /// Most replies that have rows in one step.
    pub replies_a_step: usize,
    /// Most prompts that have rows in one step.
    pub prompts_a_step: usize,
    /// The last row of a step of several is a reply's or empty, as that of a fused graph: a prompt has one row fewer than the width.
    pub row_for_reply: bool,
    /// Most requests that have rows in the cache.
    pub most_running: usize,
    /// Most rows of prompts in one step (Genie's `prefill-chunk-size`).
    pub prefill_chunk: usize,
    /// Time within which a reply gets its next token; `None` for none.
    pub target_us: Option<u64>,
    /// Waiting this long is worth one step of priority; 0 for never.
    pub ageing_us: u64,
    /// How long the first request may wait for others while nothing runs (Genie's `coalesce-window-us`).
    pub coalesce_us: u64,
}

impl Default for ServeRules {
    fn default() -> Self {
        Self {
            mixing: Mixing::Fused,
            replies_a_step: usize::MAX,
            prompts_a_step: usize::MAX,
            row_for_reply: false,
            most_running: crate::SeqId::COUNT,
            prefill_chunk: usize::MAX,
            target_us: None,
            ageing_us: 1_000_000,
            coalesce_us: 0,
        }
    }
}

/// Rows of one request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRows {
    /// The request.
    pub id: u64,
    /// How many of its tokens: a piece of its prompt, or its last token and a draft.
    pub n: usize,
    /// Whether they are of its prompt.
    pub prefill: bool,
}

/// What is to be done, in this order: requests are parked, others start, one step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Requests whose rows are to be given up.
    pub park: Vec<u64>,
    /// Requests that get a sequence.
    pub start: Vec<u64>,
    /// The step, replies first.
    pub rows: Vec<TickRows>,
    /// The width that was planned with; 0 without a step.
    pub width: usize,
    /// Requests whose next token no row is left for although nothing else runs: they are over.
    pub full: Vec<u64>,
    /// Without a step: when to ask again, if nothing else happens.
    pub wait_until_us: Option<u64>,
}

impl Tick {
    /// Rows of the step.
    pub fn n_rows(&self) -> usize {
        self.rows.iter().map(|rows| rows.n).sum()
    }
}

//! The walk from the rows there are to the rows there will be, one step at a time.
//!
//! *Units*: rows of cache. Positions are those of each request: more than the rows after an eviction, fewer where other
//! sequences have rows.
//! *Invariant*: as each step ends, the walk stands at the target or at most at `gate`, the widest past among the
//! graphs that reach the target. So a next step always exists: see [`Variants::widest_past`].

use super::variants::Candidate;
use super::{
    Columns, InferenceStep, KvForm, KvState, MaskCol, Overflow, Plan, PlanError, Request, SequenceSlice, Variants,
};
use genie_types::Variant;

/// A plan under way.
pub(super) struct Walk<'v> {
    variants: &'v Variants,
    steps: Vec<InferenceStep>,
    requests: &'v [Request],
    /// Tokens of `requests[0]` that steps have taken.
    n_taken: usize,
    rows: usize,
    target: usize,
    gate: usize,
}

impl<'v> Walk<'v> {
    /// `steps`: the list to add to.
    pub(super) fn new(
        state: &KvState,
        requests: &'v [Request],
        variants: &'v Variants,
        target: usize,
        gate: usize,
        mut steps: Vec<InferenceStep>,
    ) -> Self {
        let rows = state.n_valid_kv;
        steps.reserve((target - rows).div_ceil(variants.ar_max()) + 2);
        Self { variants, steps, requests, n_taken: 0, rows, target, gate }
    }

    pub(super) fn finish(self) -> Plan {
        Plan::new(self.steps)
    }

    pub(super) fn variants(&self) -> &'v Variants {
        self.variants
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn target(&self) -> usize {
        self.target
    }

    pub(super) fn gate(&self) -> usize {
        self.gate
    }

    /// Chunks of the largest AR, each put on the first CL whose pick leaves room. What a step leaves of its chunk
    /// (libGenie never leaves any) goes into the next.
    pub(super) fn lenient(&mut self) {
        while self.rows < self.target {
            let chunk = self.variants.ar_max().min(self.target - self.rows);
            let (variant, n) = self.roomy(chunk).unwrap_or_else(|| self.tight(chunk));
            self.push(variant, n);
        }
    }

    /// The same, stopping where libGenie does.
    pub(super) fn genie(&mut self) -> Result<(), PlanError> {
        let most = self.variants.longest_piece();
        while self.rows < self.target {
            let chunk = most.min(self.target - self.rows);
            match self.roomy(chunk) {
                Some((variant, n)) if n == chunk => self.push(variant, n),
                _ => return Err(Overflow::GenieGivesUp { n_past: self.n_past(), n_piece: chunk }.into()),
            }
        }
        Ok(())
    }

    /// One AR for all that remains, picked again at each promotion.
    pub(super) fn fixed(&mut self, current: Option<Variant>) {
        let mut level = current.map_or(0, |variant| self.variants.level_of(variant));
        while self.rows < self.target {
            let Some(candidate) = self.variants.pick(level, self.target - self.rows) else {
                let chunk = self.variants.ar_max().min(self.target - self.rows);
                let (variant, n) = self.tight(chunk);
                self.push(variant, n);
                continue;
            };
            loop {
                let n = candidate.ar().min(self.target - self.rows);
                if n == 0 || self.rows + n > candidate.cap || self.clamp(n) != n {
                    break;
                }
                self.push(candidate.variant, n);
            }
            level += 1;
        }
    }

    /// libGenie's rule: the first CL whose pick holds the rows there are and those that come.
    fn roomy(&self, chunk: usize) -> Option<(Variant, usize)> {
        self.variants
            .picks(chunk)
            .filter(|candidate| self.rows + chunk <= candidate.cap)
            .map(|candidate| (candidate.variant, self.clamp(chunk.min(candidate.ar()))))
            .find(|&(_, n)| n > 0)
    }

    /// Where libGenie gives up: a graph that can take the chunk as its last, else the one that takes most of it.
    fn tight(&self, chunk: usize) -> (Variant, usize) {
        let takes_all = |s: &Candidate| s.ar() >= chunk && self.rows <= s.cap && self.clamp(chunk) == chunk;
        if let Some(candidate) = self.variants.picks(chunk).find(takes_all) {
            return (candidate.variant, chunk);
        }
        self.variants
            .candidates()
            .iter()
            .filter(|s| self.rows <= s.cap)
            .map(|s| (s.variant, self.clamp(chunk.min(s.ar()))))
            .max_by_key(|&(s, n)| (n, core::cmp::Reverse((s.ar(), s.cl()))))
            .filter(|&(_, n)| n > 0)
            // The gate's own graph reaches the target in one step from the gate, and any other point below it
            // leaves at least one token before it.
            .expect("a walk at or below its gate always has a next step")
    }

    /// Position of the next token.
    fn n_past(&self) -> usize {
        self.requests.first().map_or(self.rows, |request| request.n_past + self.n_taken)
    }

    /// The next `n` tokens of the requests.
    fn take(&mut self, mut n: usize) -> Columns {
        let mut columns = Columns::default();
        while let Some(request) = self.requests.first().filter(|_| n > 0) {
            let part = n.min(request.n_new - self.n_taken);
            columns.push(SequenceSlice { seq: request.seq, first: request.n_past + self.n_taken, n: part });
            n -= part;
            self.n_taken += part;
            if self.n_taken == request.n_new {
                (self.requests, self.n_taken) = (&self.requests[1..], 0);
            }
        }
        columns
    }

    /// At most `n`, but stopping at the gate unless the step reaches the target.
    fn clamp(&self, n: usize) -> usize {
        self.reach(self.rows, n) - self.rows
    }

    /// Where a step of at most `n` from `row` ends.
    pub(super) fn reach(&self, row: usize, n: usize) -> usize {
        if row + n >= self.target { self.target } else { (row + n).min(self.gate.max(row)) }
    }

    pub(super) fn push(&mut self, variant: Variant, n: usize) {
        let n_valid_kv = self.variants.resident(variant, self.rows);
        let new_idx = match self.variants.form() {
            KvForm::Concat => variant.past_capacity(),
            KvForm::Scatter if variant.is_full_context() => 0,
            KvForm::Scatter => n_valid_kv,
        };
        let columns = self.take(n);
        let (past_idx, new_idx) = (MaskCol(0), MaskCol(new_idx));
        self.steps.push(InferenceStep { variant, columns, n_valid_kv, past_idx, new_idx });
        self.rows += n;
    }
}

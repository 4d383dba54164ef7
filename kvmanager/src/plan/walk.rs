//! The walk from the rows there are to the rows there will be, one step at a time.
//!
//! *Units*: rows of cache; positions are `rows + ahead`, more than the rows after an eviction, fewer with company.
//! *Invariant*: as each step ends, the walk stands at the target or at most at `gate`, the widest past among the
//! graphs that reach the target. So it never paints itself into a corner: see [`Variants::widest_past`].

use super::variants::Shape;
use super::{InferenceStep, KvForm, KvState, MaskCol, Plan, PlanError, Variants};
use genie_types::Variant;

/// A plan under way.
pub(super) struct Walk<'v> {
    variants: &'v Variants,
    steps: Vec<InferenceStep>,
    ahead: isize,
    first: usize,
    rows: usize,
    target: usize,
    gate: usize,
}

impl<'v> Walk<'v> {
    /// `steps`: an empty list to write to.
    pub(super) fn new(
        state: &KvState,
        variants: &'v Variants,
        target: usize,
        gate: usize,
        mut steps: Vec<InferenceStep>,
    ) -> Self {
        let n_new = target - state.n_valid_kv;
        steps.reserve(n_new.div_ceil(variants.ar_max()) + 2);
        let ahead = state.n_past as isize - state.n_valid_kv as isize;
        Self { variants, steps, ahead, first: state.n_past, rows: state.n_valid_kv, target, gate }
    }

    pub(super) fn finish(self) -> Plan {
        Plan::new(self.steps, self.first)
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

    /// Pieces of the largest AR, each put on the first CL whose pick leaves room. What a step leaves of its piece
    /// (the real one never leaves any) goes into the next.
    pub(super) fn serve(&mut self) {
        while self.rows < self.target {
            let piece = self.variants.ar_max().min(self.target - self.rows);
            let (spec, n) = self.roomy(piece).unwrap_or_else(|| self.tight(piece));
            self.push(spec, n);
        }
    }

    /// The same, stopping where the real one does.
    pub(super) fn genie(&mut self) -> Result<(), PlanError> {
        while self.rows < self.target {
            let piece = self.variants.ar_max().min(self.target - self.rows);
            match self.roomy(piece) {
                Some((spec, n)) if n == piece => self.push(spec, n),
                _ => return Err(PlanError::GenieGivesUp { n_past: self.n_past(), n_piece: piece }),
            }
        }
        Ok(())
    }

    /// One AR for all that remains, picked again at each promotion.
    pub(super) fn fixed(&mut self, current: Option<Variant>) {
        let mut level = current.map_or(0, |spec| self.variants.level_of(spec));
        while self.rows < self.target {
            let Some(shape) = self.variants.pick(level, self.target - self.rows) else {
                let piece = self.variants.ar_max().min(self.target - self.rows);
                let (spec, n) = self.tight(piece);
                self.push(spec, n);
                continue;
            };
            loop {
                let n = shape.ar().min(self.target - self.rows);
                if n == 0 || self.rows + n > shape.cap || self.clamp(n) != n {
                    break;
                }
                self.push(shape.spec, n);
            }
            level += 1;
        }
    }

    /// The real one's rule: the first CL whose pick holds the rows there are and those that come.
    fn roomy(&self, piece: usize) -> Option<(Variant, usize)> {
        self.variants
            .picks(piece)
            .filter(|shape| self.rows + piece <= shape.cap)
            .map(|shape| (shape.spec, self.clamp(piece.min(shape.ar()))))
            .find(|&(_, n)| n > 0)
    }

    /// Where the real one gives up: a graph that can take the piece as its last, else the one that takes most of it.
    fn tight(&self, piece: usize) -> (Variant, usize) {
        let takes_all = |s: &Shape| s.ar() >= piece && self.rows <= s.cap && self.clamp(piece) == piece;
        if let Some(shape) = self.variants.picks(piece).find(takes_all) {
            return (shape.spec, piece);
        }
        self.variants
            .shapes()
            .iter()
            .filter(|s| self.rows <= s.cap)
            .map(|s| (s.spec, self.clamp(piece.min(s.ar()))))
            .max_by_key(|&(s, n)| (n, core::cmp::Reverse((s.ar(), s.cl()))))
            .filter(|&(_, n)| n > 0)
            // The gate's own graph reaches the target in one step from the gate, and any other point below it
            // leaves at least one token before it.
            .expect("a walk at or below its gate always has a next step")
    }

    fn n_past(&self) -> usize {
        self.rows.saturating_add_signed(self.ahead)
    }

    /// At most `n`, but stopping at the gate unless the step reaches the target.
    fn clamp(&self, n: usize) -> usize {
        self.reach(self.rows, n) - self.rows
    }

    /// Where a step of at most `n` from `row` ends.
    pub(super) fn reach(&self, row: usize, n: usize) -> usize {
        if row + n >= self.target { self.target } else { (row + n).min(self.gate.max(row)) }
    }

    pub(super) fn push(&mut self, spec: Variant, n: usize) {
        let n_valid_kv = self.variants.resident(spec, self.rows);
        let new_idx = match self.variants.form() {
            KvForm::Concat => spec.past_capacity(),
            KvForm::Scatter if spec.is_full_context() => 0,
            KvForm::Scatter => n_valid_kv,
        };
        self.steps.push(InferenceStep {
            spec,
            n_past: self.n_past(),
            n_valid_kv,
            n_process: n,
            past_idx: MaskCol(0),
            new_idx: MaskCol(new_idx),
        });
        self.rows += n;
    }
}

//! The walk from the rows there are to the rows there will be, one step at a time.
//!
//! *Units*: rows of cache; positions are `rows + evicted`.
//! *Invariant*: as each step ends, the walk stands at the target or at most at `gate`, the widest past among the
//! graphs that reach the target. So it never paints itself into a corner: see [`Variants::widest_past`].

use super::{InferenceStep, KvForm, KvState, MaskCol, PlanError, Strategy, Variants};
use genie_types::VariantSpec;

/// A plan under way.
pub(super) struct Walk<'v> {
    variants: &'v Variants,
    steps: Vec<InferenceStep>,
    evicted: usize,
    first: usize,
    rows: usize,
    target: usize,
    gate: usize,
}

impl<'v> Walk<'v> {
    pub(super) fn new(state: &KvState, variants: &'v Variants, target: usize, gate: usize) -> Self {
        let n_new = target - state.n_valid_kv;
        let steps = Vec::with_capacity(n_new.div_ceil(variants.ar_max()) + 2);
        let evicted = state.n_past - state.n_valid_kv;
        Self { variants, steps, evicted, first: state.n_past, rows: state.n_valid_kv, target, gate }
    }

    pub(super) fn finish(self) -> Strategy {
        Strategy::new(self.steps, self.first)
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
    pub(super) fn genie(&mut self) {
        while self.rows < self.target {
            let piece = self.variants.ar_max().min(self.target - self.rows);
            let (spec, n) = self.roomy(piece).unwrap_or_else(|| self.tight(piece));
            self.push(spec, n);
        }
    }

    /// The same, stopping where the real one does.
    pub(super) fn genie_strict(&mut self) -> Result<(), PlanError> {
        while self.rows < self.target {
            let piece = self.variants.ar_max().min(self.target - self.rows);
            match self.roomy(piece) {
                Some((spec, n)) if n == piece => self.push(spec, n),
                _ => return Err(PlanError::GenieGivesUp { n_past: self.rows + self.evicted, n_piece: piece }),
            }
        }
        Ok(())
    }

    /// One AR for all that remains, picked again at each promotion.
    pub(super) fn fixed(&mut self, current: Option<VariantSpec>) {
        let mut level = current.map_or(0, |spec| self.variants.level_of(spec));
        while self.rows < self.target {
            let Some(spec) = self.variants.pick(level, self.target - self.rows) else {
                let piece = self.variants.ar_max().min(self.target - self.rows);
                let (spec, n) = self.tight(piece);
                self.push(spec, n);
                continue;
            };
            loop {
                let n = spec.variant().get().min(self.target - self.rows);
                if n == 0 || self.rows + n > spec.past_capacity() || self.clamp(n) != n {
                    break;
                }
                self.push(spec, n);
            }
            level += 1;
        }
    }

    /// The real one's rule: the first CL whose pick holds the rows there are and those that come.
    fn roomy(&self, piece: usize) -> Option<(VariantSpec, usize)> {
        self.variants
            .picks(piece)
            .filter(|spec| self.rows + piece <= spec.past_capacity())
            .map(|spec| (spec, self.clamp(piece.min(spec.variant().get()))))
            .find(|&(_, n)| n > 0)
    }

    /// Where the real one gives up: a graph that can take the piece as its last, else the one that takes most of it.
    fn tight(&self, piece: usize) -> (VariantSpec, usize) {
        let whole = self
            .variants
            .picks(piece)
            .find(|s| s.variant().get() >= piece && self.rows <= s.past_capacity() && self.clamp(piece) == piece);
        if let Some(spec) = whole {
            return (spec, piece);
        }
        self.variants
            .specs()
            .iter()
            .filter(|s| self.rows <= s.past_capacity())
            .map(|&s| (s, self.clamp(piece.min(s.variant().get()))))
            .max_by_key(|&(s, n)| (n, core::cmp::Reverse((s.variant(), s.ctx_size()))))
            .filter(|&(_, n)| n > 0)
            // The gate's own graph reaches the target in one step from the gate, and any other point below it
            // leaves at least one token before it.
            .expect("a walk at or below its gate always has a next step")
    }

    /// At most `n`, but stopping at the gate unless the step reaches the target.
    fn clamp(&self, n: usize) -> usize {
        self.reach(self.rows, n) - self.rows
    }

    /// Where a step of at most `n` from `row` ends.
    pub(super) fn reach(&self, row: usize, n: usize) -> usize {
        if row + n >= self.target { self.target } else { (row + n).min(self.gate.max(row)) }
    }

    pub(super) fn push(&mut self, spec: VariantSpec, n: usize) {
        let new_idx = match self.variants.form() {
            KvForm::Concat => spec.past_capacity(),
            KvForm::Scatter if spec.is_full_context() => 0,
            KvForm::Scatter => self.rows,
        };
        self.steps.push(InferenceStep {
            spec,
            n_past: self.rows + self.evicted,
            n_valid_kv: self.rows,
            n_process: n,
            past_idx: MaskCol(0),
            new_idx: MaskCol(new_idx),
        });
        self.rows += n;
    }
}

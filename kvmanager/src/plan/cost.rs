//! The `Cost` policy: least total time under a measured table, by dynamic programming over rows and variants.
//!
//! *Units*: microseconds, rows. The model: a step costs its variant's time whatever it processes; changing variant costs
//! `switch_us + switch_us_per_row * rows`.
//!
//! *Why it is exact* when `switch_us_per_row` is 0. Move tokens of any plan to earlier steps until none can move: then
//! each step is full, or is the last, or stops where a later step's past is exactly full. So from a row only the full
//! step and the stops at some graph's capacity need to be tried, and the best plan is among them. With a cost by row
//! it is the best of these plans still, and all plans of the other policies are such; one that takes fewer tokens
//! early, only to move fewer rows at a later switch, is not looked for.
//!
//! *Demotion.* A single decode step never pays for a change of variant; many do. [`CostTable::expecting`] says how many
//! tokens to count on.

use super::{PlanError, variants::Candidate, walk::Walk};
use genie_types::Variant;

/// Measured times, one for each variant, and what a change of variant costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostTable {
    /// Sorted by variant.
    steps: Vec<(Variant, f64)>,
    switch_us: f64,
    switch_us_per_row: f64,
    n_expected: usize,
}

impl CostTable {
    /// `steps`: the time of one execution of each variant over all splits; `switch_us`, `switch_us_per_row`: the time
    /// of a change of variant, fixed and by row in the cache.
    ///
    /// # Errors
    /// [`PlanError::BadCost`] for a time that is negative or not finite.
    pub fn new(
        steps: impl IntoIterator<Item = (Variant, f64)>,
        switch_us: f64,
        switch_us_per_row: f64,
    ) -> Result<Self, PlanError> {
        let mut steps: Vec<_> = steps.into_iter().collect();
        steps.sort_by_key(|&(variant, _)| variant);
        let named = [("switch_us", switch_us), ("switch_us_per_row", switch_us_per_row)];
        let bad = steps
            .iter()
            .map(|(variant, us)| (variant.to_string(), *us))
            .chain(named.map(|(name, us)| (name.to_owned(), us)))
            .find(|(_, us)| !us.is_finite() || *us < 0.0);
        match bad {
            Some((what, us)) => Err(PlanError::BadCost { what, value: us.to_string() }),
            None => Ok(Self { steps, switch_us, switch_us_per_row, n_expected: 0 }),
        }
    }

    /// The same table for a dialog that is expected to go on: after the tokens of a plan `n` more come one by one.
    ///
    /// A plan then ends in the variant that is cheapest for those too. So a decode step goes down to a shorter context
    /// where the change pays within `n` tokens, and stays where it does not; without, each plan sees its own tokens only.
    #[must_use]
    pub fn expecting(self, n: usize) -> Self {
        Self { n_expected: n, ..self }
    }

    /// Tokens expected after those of a plan; 0 by default.
    pub fn n_expected(&self) -> usize {
        self.n_expected
    }

    /// Time of one step of that variant.
    pub fn step_us(&self, variant: Variant) -> Option<f64> {
        self.steps.binary_search_by_key(&variant, |&(s, _)| s).ok().map(|i| self.steps[i].1)
    }

    /// The measured variants and their times.
    pub fn steps(&self) -> &[(Variant, f64)] {
        &self.steps
    }

    /// Time of a change of variant with that many rows in the cache.
    pub fn switch_us(&self, rows: usize) -> f64 {
        self.switch_us + self.switch_us_per_row * rows as f64
    }

    /// Time of a whole plan that starts from variant `current`; the first variant is free when there is none.
    ///
    /// # Errors
    /// [`PlanError::MissingCost`].
    pub fn total_us(&self, steps: &[super::InferenceStep], current: Option<Variant>) -> Result<f64, PlanError> {
        let mut last = current;
        let mut total = 0.0;
        for step in steps {
            total += self.step_us(step.variant).ok_or(PlanError::MissingCost { variant: step.variant })?;
            if last.is_some_and(|last| last != step.variant) {
                total += self.switch_us(step.n_valid_kv);
            }
            last = Some(step.variant);
        }
        Ok(total)
    }
}

/// How a state was reached: the length of the step that ended there and the variant before it.
#[derive(Clone, Copy)]
struct From {
    n: u32,
    prev: u32,
}

/// Stands for "no variant before": the start.
const START: u32 = u32::MAX;

/// Fills the walk with the cheapest plan.
pub(super) fn run(walk: &mut Walk<'_>, current: Option<Variant>, table: &CostTable) -> Result<(), PlanError> {
    if walk.target() - walk.rows() == 1 && table.n_expected == 0 {
        return one(walk, current, table);
    }
    let (variants, candidates) = (walk.variants().all(), walk.variants().candidates());
    let us = variants
        .iter()
        .map(|&variant| table.step_us(variant).ok_or(PlanError::MissingCost { variant }))
        .collect::<Result<Vec<_>, _>>()?;
    let (start, target, gate) = (walk.rows(), walk.target(), walk.gate());
    let stops = stops(candidates, start, gate);
    let (n_rows, n_specs) = (target - start + 1, variants.len());
    let mut cost = vec![f64::INFINITY; n_rows * n_specs];
    let mut from = vec![From { n: 0, prev: START }; n_rows * n_specs];

    for row in start..target {
        let at = (row - start) * n_specs;
        // The cheapest variant to come from, for all that have to switch.
        let cheapest = (0..n_specs).min_by(|&a, &b| cost[at + a].total_cmp(&cost[at + b])).unwrap_or(0);
        let is_start = row == start;
        if !is_start && cost[at + cheapest].is_infinite() {
            continue;
        }
        let switch_us = table.switch_us(row);
        let ahead = &stops[stops.partition_point(|&stop| stop <= row)..];
        for (w, &Candidate { variant, cap }) in candidates.iter().enumerate() {
            if row > cap {
                continue;
            }
            let (before, prev) = if is_start {
                (if current.is_none_or(|c| c == variant) { 0.0 } else { switch_us }, START)
            } else if cost[at + w] <= cost[at + cheapest] + switch_us {
                (cost[at + w], w as u32)
            } else {
                (cost[at + cheapest] + switch_us, cheapest as u32)
            };
            let after = before + us[w];
            let full = walk.reach(row, variant.ar().get());
            let mut arrive = |end: usize| {
                let to = (end - start) * n_specs + w;
                if after < cost[to] {
                    cost[to] = after;
                    from[to] = From { n: (end - row) as u32, prev };
                }
            };
            if full > row {
                arrive(full);
            }
            ahead.iter().take_while(|&&stop| stop < full).for_each(|&stop| arrive(stop));
        }
    }
    let last = (target - start) * n_specs;
    let later = later(candidates, &us, table, target, walk.variants().limit());
    (0..n_specs).for_each(|v| cost[last + v] += later[v]);
    trace_back(walk, &cost, &from, n_specs);
    Ok(())
}

/// The plan of a single row, found without allocation: the cheapest step with room, its switch included.
fn one(walk: &mut Walk<'_>, current: Option<Variant>, table: &CostTable) -> Result<(), PlanError> {
    let row = walk.rows();
    let mut best = None;
    for &Candidate { variant, cap } in walk.variants().candidates() {
        let us = table.step_us(variant).ok_or(PlanError::MissingCost { variant })?;
        let switch_us = if current.is_none_or(|c| c == variant) { 0.0 } else { table.switch_us(row) };
        let us = us + switch_us;
        if row <= cap && best.is_none_or(|(_, least)| us < least) {
            best = Some((variant, us));
        }
    }
    let (variant, _) = best.expect("a walk at or below its gate reaches its target");
    walk.push(variant, 1);
    Ok(())
}

/// For each variant that a plan may end in, the least time of the expected tokens after it, one at a time; the variants'
/// times are all the same where nothing can go on. Backwards from the last token: what follows a step depends only on
/// its variant and its row.
fn later(candidates: &[Candidate], us: &[f64], table: &CostTable, target: usize, limit: usize) -> Vec<f64> {
    let widest = candidates.iter().map(|s| s.cap).max().unwrap_or(0);
    let end = target.saturating_add(table.n_expected).min(widest.saturating_add(1)).min(limit).max(target);
    let mut after = vec![0.0; candidates.len()];
    for row in (target..end).rev() {
        let step = |w: usize| if row <= candidates[w].cap { us[w] + after[w] } else { f64::INFINITY };
        let least = (0..candidates.len()).map(step).fold(f64::INFINITY, f64::min) + table.switch_us(row);
        after = (0..candidates.len()).map(|v| step(v).min(least)).collect();
    }
    after
}

/// Rows at which some graph's past is exactly full: the only places where a step that is not full may end.
fn stops(candidates: &[Candidate], start: usize, gate: usize) -> Vec<usize> {
    let mut stops: Vec<_> = candidates.iter().map(|s| s.cap).filter(|&c| c > start && c <= gate).collect();
    stops.sort_unstable();
    stops.dedup();
    stops
}

fn trace_back(walk: &mut Walk<'_>, cost: &[f64], from: &[From], n_specs: usize) {
    let start = walk.rows();
    let mut row = walk.target() - start;
    let last = row * n_specs;
    let Some(mut v) = (0..n_specs).min_by(|&a, &b| cost[last + a].total_cmp(&cost[last + b])) else { return };
    let mut path = Vec::new();
    while row > 0 {
        let From { n, prev } = from[row * n_specs + v];
        assert!(n > 0, "a walk at or below its gate reaches its target");
        path.push((v, n as usize));
        row -= n as usize;
        v = if prev == START { v } else { prev as usize };
    }
    let variants = walk.variants().all();
    path.iter().rev().for_each(|&(v, n)| walk.push(variants[v], n));
}

//! Measuring what the planner's `Cost` policy needs: the time of one step of each variant, and of a change of variant; and what
//! serving needs: the time of one step of each width, with a full cache and with an empty one.
//!
//! *Units*: microseconds. A step is a whole step of the engine (inputs, all splits but LM heads of their own, new rows
//! kept), with the cache filled as far as the shape allows. Every graph is run once before it is timed. For serving the head runs too,
//! for as many rows as there are, up to eight.

use std::time::Instant;

use genie_types::{TokenId, Variant};
use kvmanager::{Cell, Columns, GroupImage, KvImage, SeqId};

use crate::graphs::StepRun;
use crate::{Engine, EngineError, Executor, TokenModel};

/// Times of one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimes {
    /// The variant.
    pub spec: Variant,
    /// One entry a run, in order.
    pub us: Vec<f64>,
}

/// Times of a step of many requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingStep {
    /// Its rows.
    pub width: usize,
    /// With a full cache, one entry a run.
    pub us: Vec<f64>,
    /// With an empty one.
    pub us_empty: Vec<f64>,
}

/// Rows of a step that have logits, as those of replies.
const MOST_REPLIES: usize = 8;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// By shape.
    pub steps: Vec<StepTimes>,
    /// A change of shape with an empty cache.
    pub switch_us: f64,
    /// What each row in the cache adds to it.
    pub switch_us_per_row: f64,
    /// By width.
    pub serving: Vec<ServingStep>,
}

/// The middle of a list; 0 for an empty one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The times of `reps` runs, at least one, after one to warm up.
pub(crate) fn timed(reps: usize, mut run: impl FnMut() -> Result<f64, EngineError>) -> Result<Vec<f64>, EngineError> {
    run()?;
    (0..reps.max(1)).map(|_| run()).collect()
}

impl<X: Executor> Engine<X> {
    /// Runs every shape `reps` times and changes between shapes with and without rows. The dialog is forgotten.
    ///
    /// # Errors
    ///
    /// A graph fails, or the cache does.
    pub fn calibrate(&mut self, reps: usize) -> Result<Measured, EngineError> {
        self.executor_mut().finish_loading();
        let specs = self.kv.variants().all().to_vec();
        let mut measured = Measured::default();
        for &spec in &specs {
            let rows = self.full(spec);
            let us = timed(reps, || self.time_step(spec, rows, 0))?;
            measured.steps.push(StepTimes { spec, us });
        }
        let rows = specs.iter().map(|&s| self.room(s)).min().unwrap_or(0);
        let empty = self.time_switches(&specs, 0, reps)?;
        measured.switch_us = median(&empty);
        if rows > 0 {
            let full = self.time_switches(&specs, rows, reps)?;
            measured.switch_us_per_row = ((median(&full) - measured.switch_us) / rows as f64).max(0.0);
        }
        measured.serving = self.time_serving(reps)?;
        self.reset()?;
        Ok(measured)
    }

    /// Runs a step of each width `reps` times with a full cache in the longest context, and with an empty one in the shortest. The
    /// dialog is forgotten.
    ///
    /// # Errors
    ///
    /// As [`calibrate`](Self::calibrate).
    pub fn time_serving(&mut self, reps: usize) -> Result<Vec<ServingStep>, EngineError> {
        self.executor_mut().finish_loading();
        let variants = self.kv.variants().with_logits();
        let all = variants.is_full_context_only();
        let mut specs: Vec<_> = variants.all().iter().filter(|spec| all || !spec.is_full_context()).copied().collect();
        specs.sort_by_key(|spec| (spec.ar(), spec.cl()));
        let mut steps = Vec::new();
        for of_width in specs.chunk_by(|a, b| a.ar() == b.ar()) {
            let (Some(&shortest), Some(&longest)) = (of_width.first(), of_width.last()) else { continue };
            let width = longest.ar().get();
            let n_logits = width.min(MOST_REPLIES);
            let us = timed(reps, || self.time_full(longest, n_logits))?;
            let us_empty = timed(reps, || self.time_step(shortest, 0, n_logits))?;
            steps.push(ServingStep { width, us, us_empty });
        }
        self.reset()?;
        Ok(steps)
    }

    /// As many rows as a step of that shape can find in the cache.
    fn full(&self, spec: Variant) -> usize {
        if spec.is_full_context() { 0 } else { self.room(spec) }
    }

    /// Rows that may be there as a step of that shape starts, with room for the step below the limit.
    fn room(&self, spec: Variant) -> usize {
        let variants = self.kv.variants();
        let room = variants.groups().iter().map(|g| g.room(spec)).min().unwrap_or(0);
        room.min(variants.limit().saturating_sub(spec.ar().get()))
    }

    /// With `rows` in the cache; its last `n_logits` rows have logits.
    fn time_step(&mut self, spec: Variant, rows: usize, n_logits: usize) -> Result<f64, EngineError> {
        self.fill(rows)?;
        self.time_next(spec, n_logits)
    }

    /// The last step of a context but one, behind another: filling a cache leaves the processor's caches full of what no step reads, and
    /// a step that fills the context to its end moves all rows to longer lines, which is done once. In a context that has no room for
    /// two steps, the only one.
    fn time_full(&mut self, spec: Variant, n_logits: usize) -> Result<f64, EngineError> {
        let full = self.full(spec);
        let Some(rows) = full.checked_sub(2 * spec.ar().get()) else { return self.time_step(spec, full, n_logits) };
        self.time_step(spec, rows, n_logits)?;
        self.time_next(spec, n_logits)
    }

    /// With the rows that are there.
    fn time_next(&mut self, spec: Variant, n_logits: usize) -> Result<f64, EngineError> {
        let rows = self.kv.next_pos(SeqId(0));
        let n_process = spec.ar().get().min(self.kv.variants().limit() - rows);
        let step = self.kv.step(spec, Columns::of(SeqId(0), rows, n_process));
        let tokens = vec![TokenId(0); n_process];
        if self.stop.is_set() {
            return Err(EngineError::Stopped { n_processed: 0, n_new: n_process });
        }
        let run = StepRun {
            planned: &step,
            tokens: &tokens,
            features: &[],
            next: None,
            narrow_head: n_logits > 0 && self.narrow_head(),
            as_genie: false,
            tree: None,
            batch: None,
        };
        self.kv.set_variant(spec)?;
        self.kv.wait_all()?;
        let began = Instant::now();
        self.graphs.run_step(&mut self.kv, run, n_process.saturating_sub(n_logits)..n_process, None)?;
        self.kv.wait_all()?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    /// Changes to the next shape and on, round and round.
    fn time_switches(&mut self, specs: &[Variant], rows: usize, reps: usize) -> Result<Vec<f64>, EngineError> {
        let specs: Vec<_> = specs.iter().copied().filter(|s| !s.is_full_context()).collect();
        let mut us = Vec::new();
        let [first, _, ..] = specs.as_slice() else { return Ok(us) };
        self.fill(rows)?;
        self.kv.set_variant(*first)?;
        self.kv.wait_all()?;
        for _ in 0..reps.max(1) {
            for &to in specs[1..].iter().chain([first]) {
                let began = Instant::now();
                self.kv.set_variant(to)?;
                self.kv.wait_all()?;
                us.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(us)
    }

    /// A cache with that many rows of zeros.
    fn fill(&mut self, rows: usize) -> Result<(), EngineError> {
        self.reset()?;
        if rows == 0 {
            return Ok(());
        }
        let tensors = self.kv.geometry()?;
        let cells = (0..rows).map(|pos| Cell { pos, rotated_pos: pos, seqs: 1 }).collect();
        let group = GroupImage::of_cells(cells);
        let zeros = |t: &kvmanager::KvTensor| {
            let (element, size) = t.pad_element();
            element[..size].repeat(t.rows_bytes(rows) / size)
        };
        let data = tensors.iter().map(zeros).collect();
        let groups = vec![group; self.kv.variants().groups().len()];
        self.kv.import(&KvImage { groups, next: vec![(SeqId(0), rows)], tensors, data, ..KvImage::default() })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), 3.0);
    }
}

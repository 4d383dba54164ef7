//! Steps while they are watched: what is known before one runs, and its event behind it.

use std::time::Instant;

use engine::GroupCells;
use kvmanager::plan::serve::{StepTimes, Tick, TickRows};

use super::Scheduler;
use crate::{RowsOfStep, TickEvent, TickWatch};

/// A step that is being watched.
#[derive(Debug)]
pub(crate) struct WatchedStep {
    began: Instant,
    n_graphs: usize,
    width: usize,
    us_predicted: f64,
    rows: Vec<RowsOfStep>,
}

impl Scheduler {
    /// An event for each step from now on, as long as the listener is there; at most `room` of them wait for it.
    pub fn watch(&mut self, room: usize) -> TickWatch {
        self.watchers.add(room)
    }

    /// Whose the cells of the cache are, group by group.
    pub fn cells_of_groups(&mut self) -> Vec<GroupCells> {
        self.model.sequences().map_or_else(Vec::new, |model| model.cells_of_groups())
    }

    /// `None` while no one listens. `times`: those that the tick was planned with.
    pub(crate) fn begin_watch(&self, tick: &Tick, times: &StepTimes) -> Option<WatchedStep> {
        if self.watchers.is_empty() {
            return None;
        }
        let rows = tick.rows.iter().filter_map(|rows| {
            let request = self.active.iter().find(|request| request.id.0 == rows.id)?;
            let n = rows.n.min(request.n_todo() + request.draft.n_rows());
            let (seq, from) = (request.seq?, request.n_done);
            Some(RowsOfStep { seq, request: request.id, prefill: rows.prefill, from, n })
        });
        Some(WatchedStep {
            rows: rows.filter(|rows| rows.n > 0).collect(),
            n_graphs: self.model.steps().len(),
            width: tick.width,
            us_predicted: times.us_for(tick.width),
            began: Instant::now(),
        })
    }

    /// `ran`: the rows of the step that ran, which may be fewer than were planned.
    pub(crate) fn end_watch(&mut self, step: Option<WatchedStep>, ran: &[TickRows], at_us: u64) {
        let Some(WatchedStep { began, n_graphs, width, us_predicted, rows }) = step else { return };
        let of_ran = |rows: RowsOfStep| {
            let n = ran.iter().find(|ran| ran.id == rows.request.0)?.n;
            Some(RowsOfStep { n, ..rows })
        };
        let rows: Vec<_> = rows.into_iter().filter_map(of_ran).collect();
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let counts = self.counts();
        let n_rows: usize = rows.iter().map(|rows| rows.n).sum();
        let event = TickEvent {
            number: counts.n_steps,
            at_us,
            us,
            us_predicted,
            width,
            graphs: self.model.steps().names_since(n_graphs).map(str::to_owned).collect(),
            padding: width.saturating_sub(n_rows),
            rows,
            arrived: self.arrivals.take(),
            waiting: counts.waiting,
            slots: self.slots(),
            cache: counts.rows,
            cells: self.cells_of_groups(),
        };
        self.watchers.send(event);
    }
}

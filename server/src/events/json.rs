//! The objects of the engine's events: an `engine` at the start, a `tick` for each step.

use open_genie::serving::{Arrived, GroupCells, RowsOfStep, Slot, TickEvent};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::served_model::ServedModel;

/// Of the form of these objects; another number once a reader of this one would be wrong.
const VERSION: u32 = 1;

/// The object before all steps, without the model's name.
pub(super) fn state_now(model: &ServedModel) -> Result<Value, ApiError> {
    let (slots, cells, counts, widths, is_measured) = model.server().between_steps(|scheduler| {
        let widths = scheduler.step_times().all().to_vec();
        (
            scheduler.slots(),
            scheduler.cells_of_groups(),
            scheduler.counts(),
            widths,
            scheduler.options().step_times.is_some(),
        )
    })?;
    Ok(json!({
        "type": "engine",
        "version": VERSION,
        "n_ctx": model.n_ctx(),
        "n_slots": model.n_slots(),
        "widths": widths.iter().map(|step| json!({"width": step.width, "us": step.us, "us_empty": step.us_empty})).collect::<Value>(),
        "predicted_by": if is_measured { "measured" } else { "assumed" },
        "ticks": counts.n_steps,
        "queue": counts.waiting,
        "slots": slots.iter().map(slot).collect::<Value>(),
        "rows_used": counts.rows.used,
        "rows_total": counts.rows.total,
        "cells": cells.iter().map(group).collect::<Value>(),
    }))
}

/// One step. `dropped`: steps that were left out so far.
pub(super) fn tick(event: &TickEvent, dropped: u64, with_mask: bool) -> Value {
    let mut object = json!({
        "type": "tick",
        "tick": event.number,
        "at_us": event.at_us,
        "us": event.us,
        "us_predicted": event.us_predicted,
        "width": event.width,
        "graphs": event.graphs,
        "rows": event.rows.iter().map(rows).collect::<Value>(),
        "padding": event.padding,
        "came": event.arrived.iter().map(arrived).collect::<Value>(),
        "queue": event.waiting,
        "slots": event.slots.iter().map(slot).collect::<Value>(),
        "rows_used": event.cache.used,
        "rows_total": event.cache.total,
        "cells": event.cells.iter().map(group).collect::<Value>(),
        "dropped": dropped,
    });
    if with_mask {
        object["mask"] = mask(event);
    }
    object
}

fn arrived(of: &Arrived) -> Value {
    let like = of.like.map(|(request, n)| json!({"request": request.0, "n": n}));
    json!({"request": of.request.0, "at_us": of.at_us, "n_prompt": of.n_prompt, "like": like})
}

fn rows(rows: &RowsOfStep) -> Value {
    json!({
        "slot": rows.seq.0,
        "request": rows.request.0,
        "kind": if rows.prefill { "prefill" } else { "decode" },
        "from": rows.from,
        "n": rows.n,
    })
}

fn slot(slot: &Slot) -> Value {
    json!({
        "id": slot.seq.0,
        "state": slot.state.name(),
        "request": slot.request.map(|request| request.0),
        "n_past": slot.n_past,
        "n_prompt": slot.n_prompt,
        "n_out": slot.n_generated,
    })
}

fn group(group: &GroupCells) -> Value {
    let runs = group.runs.iter().map(|run| json!([run.first, run.len, run.pos, run.owners().collect::<Vec<_>>()]));
    json!({"name": group.name, "capacity": group.capacity, "window": group.window, "runs": runs.collect::<Value>()})
}

/// The cells of the default group that each row sees, as runs of cells: those of its sequence at positions up to its own, its window
/// kept. They are named as they lie after the step, the step's own tokens included.
fn mask(event: &TickEvent) -> Value {
    let Some(group) = event.cells.first() else { return Value::Null };
    let of_row =
        |rows: &RowsOfStep, pos: usize| json!({"slot": rows.seq.0, "pos": pos, "cells": seen(group, rows.seq.0, pos)});
    event.rows.iter().flat_map(|rows| (rows.from..rows.from + rows.n).map(move |pos| of_row(rows, pos))).collect()
}

fn seen(group: &GroupCells, seq: u8, pos: usize) -> Vec<(usize, usize)> {
    let sees = |key: usize| key <= pos && group.window.is_none_or(|(size, sinks)| key + size > pos || key < sinks);
    let mut seen: Vec<(usize, usize)> = Vec::new();
    for run in group.runs.iter().filter(|run| run.owners().any(|owner| owner == seq)) {
        for at in (0..run.len).filter(|at| sees(run.pos + at)) {
            match seen.last_mut() {
                Some((first, len)) if *first + *len == run.first + at => *len += 1,
                _ => seen.push((run.first + at, 1)),
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use open_genie::serving::CellRun;

    use super::*;

    #[test]
    fn a_row_sees_its_own_sequence_up_to_itself() {
        let runs = vec![
            CellRun { first: 0, len: 4, pos: 0, seqs: 0b11 },
            CellRun { first: 4, len: 3, pos: 4, seqs: 0b01 },
            CellRun { first: 7, len: 2, pos: 4, seqs: 0b10 },
        ];
        let group = GroupCells { capacity: 16, runs, ..GroupCells::default() };
        assert_eq!(seen(&group, 0, 5), [(0, 6)]);
        assert_eq!(seen(&group, 1, 5), [(0, 4), (7, 2)]);
        assert_eq!(seen(&group, 2, 5), []);
        let windowed = GroupCells { window: Some((2, 1)), ..group };
        assert_eq!(seen(&windowed, 1, 5), [(0, 1), (7, 2)]);
        assert_eq!(seen(&windowed, 0, 6), [(0, 1), (5, 2)]);
    }
}

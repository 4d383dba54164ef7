//! Distances between queries and keys, which alibi graphs take as `position_ids`.
//!
//! *Shapes*: `[AR, CL]` int32, row-major, the columns of the default group's mask.
//! *Units*: positions from the key to the query; a column that a row does not see has CL, and so have rows of padding.
//! *Trap*: libGenie 1.21 writes two of them wrong, and policy `genie` does as it does: new columns stand right behind the past
//! also where the mask has them at the end, and the past is further away by the chunk's tokens but one.

use kvmanager::{InferenceStep, KvError, Step};

use crate::buffer::elements_mut;

/// Writes the distances of a step.
pub(crate) fn fill(bytes: &mut [u8], step: &Step<'_>, planned: &InferenceStep, as_genie: bool) -> Result<(), KvError> {
    let width = step.mask_width(0);
    let distances = &mut elements_mut::<i32>(bytes)[..planned.ar() * width];
    distances.fill(width as i32);
    let columns = step.columns();
    let past_is_ahead = if as_genie { planned.n_process() as i32 - 1 } else { 0 };
    step.each_visible(0, |seen| {
        let Some(key) = seen.key else { return };
        let distance = columns[seen.row].pos as i32 - key as i32;
        let (column, distance) = match seen.new {
            Some(new) if as_genie => (planned.n_valid_kv + new, distance),
            Some(_) => (seen.column, distance),
            None => (seen.column, distance + past_is_ahead),
        };
        if column < width {
            distances[seen.row * width + column] = distance;
        }
    })
}

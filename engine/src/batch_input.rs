//! The inputs of a step whose graphs have a batch dimension: the same tensors once for each row of the batch, one after the other.
//!
//! *Shapes*: `[B, AR]`, `[B, 1, AR, CL]`, `[B, 1, AR, width]`; what one row has is `1 / B` of the tensor in the step's variant.

use half::f16;
use kvmanager::{Columns, InferenceStep, SeqId};

use crate::buffer::elements_mut;
use crate::lockstep::{BatchRow, BatchStep};
use crate::mask::{HIDDEN, MaskDtype};
use crate::rope::RopeTable;
use genie_types::TokenId;

/// Fills `[B, AR]` numbers: those of the rows' columns, then `pad`; rows that are not there are `pad` throughout.
pub(crate) fn fill_numbers(
    numbers: &mut [u32],
    (ar, batch): (usize, usize),
    step: Option<&BatchStep>,
    pad: u32,
    number: impl Fn(&BatchRow, usize) -> u32,
) {
    let first = usize::from(step.is_none());
    for (b, to) in numbers[..ar * batch].chunks_exact_mut(ar).enumerate().skip(first) {
        to.fill(pad);
        if let Some(row) = step.and_then(|step| step.rows.get(b)) {
            to.iter_mut().take(row.tokens.len()).enumerate().for_each(|(column, to)| *to = number(row, column));
        }
    }
}

/// Fills the ids.
pub(crate) fn fill_ids(bytes: &mut [u8], size: (usize, usize), step: Option<&BatchStep>, pad: TokenId) {
    fill_numbers(elements_mut(bytes), size, step, pad.0, |row, column| row.tokens[column].0);
}

/// Fills absolute positions.
pub(crate) fn fill_positions(bytes: &mut [u8], size: (usize, usize), step: Option<&BatchStep>) {
    fill_numbers(elements_mut(bytes), size, step, 0, |row, column| row.positions[column] as u32);
}

/// Fills cosines or sines: position 0 where there is no token.
pub(crate) fn fill_rope(bytes: &mut [u8], (ar, batch): (usize, usize), step: Option<&BatchStep>, table: &RopeTable) {
    let row_bytes = table.row_bytes() * ar;
    let first = usize::from(step.is_none());
    for (b, to) in bytes[..row_bytes * batch].chunks_exact_mut(row_bytes).enumerate().skip(first) {
        let positions = step.and_then(|step| step.rows.get(b)).map_or(&[][..], |row| &row.positions);
        for (column, row) in to.chunks_exact_mut(table.row_bytes()).enumerate() {
            let position = positions.get(column).copied().unwrap_or(0);
            table.fill(row, &Columns::of(SeqId(0), position, 1), 1);
        }
    }
}

/// Fills the masks: a row sees its own tokens of the past and of the step up to each column; padding sees nothing.
pub(crate) fn fill_mask(
    bytes: &mut [u8],
    dtype: MaskDtype,
    (planned, width, batch): (&InferenceStep, usize, usize),
    step: Option<&BatchStep>,
) {
    match dtype {
        MaskDtype::F32 => write(elements_mut(bytes), planned, (width, batch), step, (0.0, HIDDEN)),
        MaskDtype::F16 => {
            write(elements_mut(bytes), planned, (width, batch), step, (f16::ZERO, f16::from_f32(HIDDEN)));
        }
        MaskDtype::U8 => write(bytes, planned, (width, batch), step, (u8::MAX, 0)),
        MaskDtype::U16 => write(elements_mut(bytes), planned, (width, batch), step, (u16::MAX, 0)),
    }
}

fn write<T: Copy>(
    mask: &mut [T],
    planned: &InferenceStep,
    (width, batch): (usize, usize),
    step: Option<&BatchStep>,
    (shown, hidden): (T, T),
) {
    let ar = planned.ar();
    let first = usize::from(step.is_none());
    for (b, to) in mask[..ar * width * batch].chunks_exact_mut(ar * width).enumerate().skip(first) {
        to.fill(hidden);
        let Some(row) = step.and_then(|step| step.rows.get(b)) else { continue };
        let (past, new) = row.real.split_at(planned.n_valid_kv.min(row.real.len()));
        for (column, to) in to.chunks_exact_mut(width).enumerate().take(new.len()).filter(|(column, _)| new[*column]) {
            let seen = past.iter().enumerate().filter(|(_, real)| **real).map(|(slot, _)| planned.past_idx.0 + slot);
            let own = (0..=column).filter(|&other| new[other]).map(|other| planned.new_idx.0 + other);
            seen.chain(own).for_each(|at| to[at] = shown);
        }
    }
}

//! [`super`]'s matrix unit where none is known: it takes nothing.

use super::super::Isa;
use super::super::SharedMut;
use super::{Job, OnTiles, RmsNorm};
use crate::pool::Worker;

pub(super) fn takes(_: Isa, _: usize) -> OnTiles {
    OnTiles::Nothing
}

pub(super) fn are_whole_tiles(_: usize) -> bool {
    false
}

pub(super) fn scratch_len(_: usize, _: usize, _: usize) -> usize {
    0
}

/// # Safety
/// It is not called.
pub(super) unsafe fn run(_: Isa, _: Worker<'_>, _: &Job<'_>) {
    unreachable!("it takes no rows")
}

/// # Safety
/// It is not called.
pub(super) unsafe fn rms_norm(_: Isa, _: Worker<'_>, _: &RmsNorm<'_>, _: SharedMut<'_, f32>) {
    unreachable!("it takes no rows")
}

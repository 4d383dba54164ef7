//! [`super`]'s matrix unit where none is known: it takes nothing.

use super::super::Isa;
use super::{Job, OnTiles};
use crate::pool::Worker;

pub(super) fn takes(_: Isa, _: usize) -> OnTiles {
    OnTiles::Nothing
}

pub(super) fn scratch_len(_: usize, _: usize, _: usize) -> usize {
    0
}

/// # Safety
/// It is not called.
pub(super) unsafe fn run(_: Isa, _: Worker<'_>, _: &Job<'_>) {
    unreachable!("it takes no rows")
}

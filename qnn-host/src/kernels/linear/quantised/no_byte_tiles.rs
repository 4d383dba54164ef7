//! [`super`]'s products of bytes on tiles where no such unit is known.

use std::convert::Infallible;

use super::super::super::Isa;
use super::super::Job;
use crate::pool::Worker;

#[derive(Clone, Copy)]
pub(super) struct Unit(Infallible);

pub(super) fn unit(_: Isa, _: usize) -> Option<Unit> {
    None
}

/// # Safety
/// None is needed: there is no such unit.
pub(super) unsafe fn run(unit: Unit, _: Worker<'_>, _: &Job<'_>, _: bool) {
    match unit.0 {}
}

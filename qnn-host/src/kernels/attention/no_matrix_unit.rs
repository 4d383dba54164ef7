//! [`super`]'s matrix unit where there is none that it uses. (SME multiplies linear layers only.)

use super::super::Isa;
use super::Attention;
use super::block::Block;
use super::source::Source;

pub(super) const QUERY_UNIT: usize = 12;

/// There is no such thing.
pub(super) type Unit = std::convert::Infallible;

/// Nor this.
pub(super) type Tiles = Unit;

pub(super) fn unit(_: Isa) -> Option<Unit> {
    None
}

pub(super) fn takes(_: &Attention<'_>) -> bool {
    false
}

pub(super) fn tiles(unit: Unit) -> Tiles {
    unit
}

pub(super) fn len(_: usize, _: usize) -> [usize; 4] {
    [0; 4]
}

#[derive(Clone, Copy)]
pub(super) struct Place;

impl Place {
    pub(super) fn new(_: *mut f32, _: usize, _: usize) -> Self {
        Self
    }
}

/// # Safety
/// It is not called.
pub(super) unsafe fn queries(_: &Block<'_>, _: Place) {}

/// # Safety
/// None: there are no tiles.
pub(super) unsafe fn scores<R: Source>(tiles: &Tiles, _: &Block<'_>, _: Place, _: R, _: usize, _: usize) {
    match *tiles {}
}

/// # Safety
/// None: there are no tiles.
pub(super) unsafe fn weigh(tiles: &Tiles, _: &Block<'_>, _: Place, _: usize, _: f32) {
    match *tiles {}
}

/// # Safety
/// None: there are no tiles.
pub(super) unsafe fn weighted<R: Source>(tiles: &Tiles, _: &Block<'_>, _: Place, _: R, _: usize) {
    match *tiles {}
}

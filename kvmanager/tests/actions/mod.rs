//! What a random sequence does to the cache.

use std::ops::Range;

use proptest::prelude::*;

/// An operation of the cache, with its arguments.
#[derive(Clone, Debug)]
pub enum Action {
    Process(usize),
    Batch(Vec<(u8, usize)>),
    Select(Vec<bool>),
    /// Steps back from each column to its parent (0: it has none), the column whose path is kept, a sequence seen too.
    Tree(Vec<usize>, usize, u8),
    Rewind(usize),
    Remove(u8, Range<usize>),
    Keep(u8),
    Share(u8, u8, Range<usize>),
    Copy(u8, u8, Range<usize>),
    Shift(u8, Range<usize>, isize),
    Divide(u8, Range<usize>, usize),
    ShiftOut(usize, usize),
    Compact(usize),
    Move {
        mode: usize,
        shapes: usize,
    },
    Abandon,
    Clear,
}

impl Action {
    pub const KINDS: [&str; 16] = [
        "process",
        "batch",
        "select",
        "rewind",
        "remove",
        "keep",
        "share",
        "copy",
        "shift",
        "divide",
        "shift_out",
        "compact",
        "move",
        "abandon",
        "clear",
        "tree",
    ];

    /// Its place in [`Action::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Process(_) => 0,
            Self::Batch(_) => 1,
            Self::Select(_) => 2,
            Self::Rewind(_) => 3,
            Self::Remove(..) => 4,
            Self::Keep(_) => 5,
            Self::Share(..) => 6,
            Self::Copy(..) => 7,
            Self::Shift(..) => 8,
            Self::Divide(..) => 9,
            Self::ShiftOut(..) => 10,
            Self::Compact(_) => 11,
            Self::Move { .. } => 12,
            Self::Abandon => 13,
            Self::Clear => 14,
            Self::Tree(..) => 15,
        }
    }
}

/// Drawn arguments name a sequence and a range roughly; a run aims them at what it holds.
pub fn any_action() -> impl Strategy<Value = Action> {
    let range = || (0..20usize, 1..12usize).prop_map(|(a, n)| a..if n > 9 { usize::MAX } else { a + n });
    let seq = 0..8u8;
    prop_oneof![
        6 => (1..14usize).prop_map(Action::Process),
        3 => prop::collection::vec((seq.clone(), 1..4usize), 1..4).prop_map(Action::Batch),
        2 => prop::collection::vec(any::<bool>(), 1..6).prop_map(Action::Select),
        3 => (prop::collection::vec(0..4usize, 1..8), 0..8usize, 0..4u8).prop_map(|(p, leaf, s)| Action::Tree(p, leaf, s)),
        3 => (0..20usize).prop_map(Action::Rewind),
        2 => (seq.clone(), range()).prop_map(|(s, r)| Action::Remove(s, r)),
        1 => seq.clone().prop_map(Action::Keep),
        2 => (seq.clone(), seq.clone(), range()).prop_map(|(a, b, r)| Action::Share(a, b, r)),
        2 => (seq.clone(), seq.clone(), range()).prop_map(|(a, b, r)| Action::Copy(a, b, r)),
        2 => (seq.clone(), range(), -5..6isize).prop_map(|(s, r, d)| Action::Shift(s, r, d)),
        1 => (seq, range(), 2..4usize).prop_map(|(s, r, d)| Action::Divide(s, r, d)),
        1 => (0..3usize, 0..5usize).prop_map(|(s, n)| Action::ShiftOut(s, n)),
        1 => (1..6usize).prop_map(Action::Compact),
        2 => (0..4usize, 0..5usize).prop_map(|(mode, shapes)| Action::Move { mode, shapes }),
        1 => Just(Action::Abandon),
        1 => Just(Action::Clear),
    ]
}

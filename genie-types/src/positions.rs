//! By which rule positions enter a model.

use core::fmt;

/// The `type` of Genie's `positional-encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PositionKind {
    /// Queries and keys are rotated by tables of cosines and sines.
    Rope,
    /// `position_ids`: one position for each row.
    Absolute,
    /// `position_ids`: for each row and column, how far the key is behind.
    Alibi,
    /// Nothing is fed; a position input that exists is all zero.
    None,
}

impl PositionKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Rope, Self::Absolute, Self::Alibi, Self::None];

    /// Its name in a config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rope => "rope",
            Self::Absolute => "absolute",
            Self::Alibi => "alibi",
            Self::None => "none",
        }
    }

    /// The kind of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for PositionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

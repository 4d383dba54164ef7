//! Numbers that must not be swapped for one another.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(n: $inner) -> Self {
                Self(n)
            }
        }
    };
}

id! {
    /// A vocabulary entry. Graphs take it as int32; Genie's "unset" (-1) is `Option::None` here.
    TokenId(u32)
}
id! {
    /// A decoder layer, counted over the whole model.
    LayerIdx(usize)
}
id! {
    /// A piece of the model, in execution order (0 runs first).
    SplitIdx(usize)
}
id! {
    /// A graph within a list of graphs.
    GraphIdx(usize)
}

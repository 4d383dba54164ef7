//! Attention windows that are shorter than the context: which layers keep their cache in a group of their own, and how wide it is.
//!
//! Where all layers have the window, it is a rule of the default group. Where some have it, these make up the group `swa_`, with a mask
//! of its own, as wide as the window and a step need. Graphs compute the same in either case: what a token sees is said by the
//! mask, which the engine fills by the rule that `genie_config.json` has for the group.
//!
//! *Units*: tokens. *Invariant*: a group's columns are the same in all variants of a context length.

use crate::family::ModelSpec;
use genie_types::Variant;
use nsp_graph::names::DEFAULT_GROUP;

/// Prefix of the group of layers with a window.
pub(crate) const WINDOW_GROUP: &str = "swa_";
/// Columns are a multiple of this, as the widths of graphs usually are.
const ALIGNMENT: usize = 32;

/// How a model's attention windows are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// No layer has one that is shorter than the longest context: every token sees all earlier ones.
    Unused,
    /// All layers have one.
    Everywhere {
        /// Tokens that a token sees, itself included.
        tokens: usize,
    },
    /// Some layers have one: they are a cache group.
    Group {
        /// Tokens that a token sees, itself included.
        tokens: usize,
        /// Columns of the group's mask, in contexts that are at least as long.
        columns: usize,
    },
}

impl Windows {
    /// The windows of a model in graphs of these variants.
    pub(crate) fn of(spec: &ModelSpec, variants: impl Iterator<Item = Variant> + Clone) -> Self {
        let longest = variants.clone().map(|v| v.cl().get()).max().unwrap_or(0);
        let widest = variants.map(|v| v.ar().get()).max().unwrap_or(0);
        match &spec.window {
            Some(window) if longest > window.tokens => {
                let tokens = window.tokens;
                if window.layers.iter().all(|local| *local) {
                    return Self::Everywhere { tokens };
                }
                // The widest step sees the window before its first token.
                Self::Group { tokens, columns: (tokens - 1 + widest).next_multiple_of(ALIGNMENT) }
            }
            _ => Self::Unused,
        }
    }

    /// Prefixes of the groups that have a window, with the tokens that their layers see.
    pub(crate) fn rules(self) -> impl Iterator<Item = (String, usize)> {
        let rule = match self {
            Self::Unused => None,
            Self::Everywhere { tokens } => Some((DEFAULT_GROUP.to_owned(), tokens)),
            Self::Group { tokens, .. } => Some((WINDOW_GROUP.to_owned(), tokens)),
        };
        rule.into_iter()
    }

    /// True for a layer of the group.
    pub(super) fn is_apart(self, spec: &ModelSpec, layer: usize) -> bool {
        matches!(self, Self::Group { .. }) && spec.is_local(layer)
    }

    /// What the names of a layer's cache tensors begin with.
    pub(super) fn prefix(self, spec: &ModelSpec, layer: usize) -> &'static str {
        if self.is_apart(spec, layer) { WINDOW_GROUP } else { DEFAULT_GROUP }
    }

    /// Columns of the group's mask in graphs of a variant; those of all other layers are the context's.
    pub(super) fn columns(self, variant: Variant) -> usize {
        let context = variant.cl().get();
        match self {
            Self::Group { columns, .. } => columns.min(context),
            Self::Unused | Self::Everywhere { .. } => context,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::testmodel::TestModel;

    #[test]
    fn a_window_counts_where_the_context_is_longer() {
        let windows = |family, window, variants: &[(u32, u32)]| {
            let spec = TestModel { window, ..TestModel::tiny(family) }.spec();
            Windows::of(&spec, variants.iter().map(|&(ar, cl)| Variant::new(ar, cl).unwrap()))
        };
        let two = [(1, 64), (8, 64)];
        assert_eq!(windows(Family::Gemma2, 64, &two), Windows::Unused);
        assert_eq!(windows(Family::Mistral, 63, &two), Windows::Everywhere { tokens: 63 });
        let group = windows(Family::Gemma2, 20, &two);
        assert_eq!(group, Windows::Group { tokens: 20, columns: 32 }, "19 and 8 tokens");
        assert_eq!(windows(Family::Gemma2, 26, &two), Windows::Group { tokens: 26, columns: 64 });
        let spec = TestModel { window: 20, ..TestModel::tiny(Family::Gemma2) }.spec();
        assert_eq!([0, 1].map(|layer| group.prefix(&spec, layer)), ["swa_", "past_"]);
        let columns = |ar, cl| group.columns(Variant::new(ar, cl).unwrap());
        assert_eq!((columns(1, 64), columns(8, 64), columns(8, 16)), (32, 32, 16));
    }
}

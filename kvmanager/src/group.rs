//! Cache groups: layers that share a mask, a length and a rule for what is kept.
//!
//! *Units*: tokens. The default group is number 0 and decides `n_valid_kv`; a second one is typically a windowed set
//! of layers with a context of its own (`swa_`).

use crate::geometry::KvForm;
use genie_types::Variant;

/// Groups a cache may have.
pub const MAX_GROUPS: usize = 4;

/// What a group keeps once its past is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Everything; a full past ends the dialog.
    #[default]
    None,
    /// The newest rows that the graph's past holds, and the first `sinks`; the mask shows all of them. What
    /// libGenie does for `sliding-window` on the default group.
    Ring {
        /// Positions that are never evicted.
        sinks: usize,
    },
    /// Exactly the last `size` keys, the token's own included, and the first `sinks`, for every token.
    Window {
        /// Keys a token sees, its own included; at least 1.
        size: usize,
        /// Positions that are always seen.
        sinks: usize,
    },
    /// A window in the slots that libGenie takes for a group of scatter graphs: the first ones in a row that hold nothing of
    /// the window, whatever the padding covers. Where there are none it takes the first slots of all, and what they held is
    /// no longer seen. From then on the window reaches further back, as it counts rows and not positions.
    FirstFit {
        /// Rows a token sees besides the sinks, its own included; at least 1.
        size: usize,
        /// Positions that are always seen unless they were written over.
        sinks: usize,
    },
    /// The rows whose keys score best, by head. Scoring ranks all rows of a head into its queue; until the next scoring
    /// the queue is the order of eviction, and rows that came later stay.
    KeyDiff {
        /// Positions that are never evicted.
        sinks: usize,
        /// Rows of a head that a scoring serves (Genie's `update-frequency`); at least 1. A step that drops more of them
        /// at once scores by itself.
        update_every: usize,
    },
}

impl Eviction {
    /// Keys that a token sees and positions that it always sees, where the rule is a window.
    pub const fn window(self) -> Option<(usize, usize)> {
        match self {
            Self::Window { size, sinks } | Self::FirstFit { size, sinks } => Some((size, sinks)),
            Self::None | Self::Ring { .. } | Self::KeyDiff { .. } => None,
        }
    }
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheGroup {
    /// Prefix of its tensors (`past_`, `swa_`); for messages.
    pub prefix: String,
    /// How its graphs take their past.
    pub form: KvForm,
    /// Its own context length for each variant of the model; the model's where a variant is not listed.
    pub ctx: Vec<(Variant, usize)>,
    /// What it keeps.
    pub long: Eviction,
}

impl CacheGroup {
    /// The default group of a model without long context.
    pub fn plain(form: KvForm) -> Self {
        Self { prefix: "past_".to_owned(), form, ..Self::default() }
    }

    /// Its context length in a graph of that variant.
    pub fn ctx_of(&self, variant: Variant) -> usize {
        self.ctx.iter().find(|(s, _)| *s == variant).map_or(variant.cl().get(), |&(_, ctx)| ctx)
    }

    /// Rows it may hold as a step of that variant starts.
    pub fn room(&self, variant: Variant) -> usize {
        self.ctx_of(variant).saturating_sub(variant.ar().get())
    }

    /// Rows of the past input in a graph of that variant.
    pub fn past_len(&self, variant: Variant) -> usize {
        match self.form {
            // A graph as wide as its context has no past inputs in either form.
            KvForm::Scatter if self.room(variant) > 0 => self.ctx_of(variant),
            _ => self.room(variant),
        }
    }

    /// Whether it ever drops rows by itself.
    pub const fn evicts(&self) -> bool {
        !matches!(self.long, Eviction::None)
    }

    /// The most new tokens of a step that leave the window whole; `None` where the rule sets no such bound.
    pub(crate) fn longest_piece(&self, variants: &[Variant]) -> Option<usize> {
        let Eviction::FirstFit { size, .. } = self.long else { return None };
        let slots = variants.iter().map(|&v| self.ctx_of(v)).max()?;
        // As recorded: reserved slots are not counted.
        Some(slots.saturating_sub(size - 1).max(1))
    }

    /// Tokens after which a step of that variant can still start: no limit when the group makes room by itself.
    /// `largest`: no variant has a longer context.
    pub(crate) fn reach(&self, variant: Variant, largest: bool) -> usize {
        let room = self.room(variant);
        let endless = match self.long {
            Eviction::None => false,
            Eviction::Window { size, sinks } => size - 1 + sinks <= room,
            Eviction::FirstFit { size, sinks } => size - 1 + sinks < self.ctx_of(variant),
            Eviction::Ring { sinks } => largest && room > sinks,
            Eviction::KeyDiff { sinks, .. } => largest && room > sinks,
        };
        if endless { usize::MAX } else { room }
    }

    /// Rows left of `rows` tokens when a step of that variant starts.
    pub(crate) fn resident(&self, variant: Variant, rows: usize) -> usize {
        match self.long {
            Eviction::None => rows,
            Eviction::Window { size, sinks } | Eviction::FirstFit { size, sinks } => rows.min(size - 1 + sinks),
            Eviction::Ring { .. } | Eviction::KeyDiff { .. } => rows.min(self.room(variant)),
        }
    }
}

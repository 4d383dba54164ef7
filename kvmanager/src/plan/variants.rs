//! The shapes a bundle has, sorted so that looking for room is a short scan.

use super::PlanError;
use genie_types::VariantSpec;

/// How the graphs take their past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvForm {
    /// Past of `CL - AR` rows, joined with the new ones inside the graph.
    #[default]
    Concat,
    /// Past of `CL` rows plus a cache index; the graph puts the new rows in place.
    Scatter,
}

impl KvForm {
    /// Rows of the past input of a graph of that shape.
    pub const fn past_len(self, spec: VariantSpec) -> usize {
        match self {
            // A graph as wide as its context has no past inputs in either form.
            Self::Scatter if !spec.is_full_context() => spec.ctx_size().get(),
            _ => spec.past_capacity(),
        }
    }
}

/// All shapes of one CL: a range of `specs`, AR ascending.
#[derive(Clone, Debug)]
struct Level {
    start: usize,
    end: usize,
}

/// The set of shapes to choose from.
///
/// Invariants: not empty, sorted by CL then AR, without doubles; `limit <= largest CL`.
#[derive(Clone, Debug)]
pub struct Variants {
    specs: Vec<VariantSpec>,
    levels: Vec<Level>,
    form: KvForm,
    limit: usize,
    ar_max: usize,
}

impl Variants {
    /// Sorts and checks the shapes; `size` is the config's `context.size`, by default the largest CL.
    ///
    /// # Errors
    /// [`PlanError::NoVariants`], [`PlanError::BadSize`].
    pub fn new(
        specs: impl IntoIterator<Item = VariantSpec>,
        form: KvForm,
        size: Option<usize>,
    ) -> Result<Self, PlanError> {
        let mut specs: Vec<_> = specs.into_iter().collect();
        specs.sort_unstable();
        specs.dedup();
        let max_ctx = specs.last().ok_or(PlanError::NoVariants)?.ctx_size().get();
        let limit = size.unwrap_or(max_ctx);
        if limit == 0 || limit > max_ctx {
            return Err(PlanError::BadSize { size: limit, max_ctx });
        }
        let mut levels: Vec<Level> = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            match levels.last_mut() {
                Some(level) if specs[level.start].ctx_size() == spec.ctx_size() => level.end = i + 1,
                _ => levels.push(Level { start: i, end: i + 1 }),
            }
        }
        let ar_max = specs.iter().map(|s| s.variant().get()).max().unwrap_or(1);
        Ok(Self { specs, levels, form, limit, ar_max })
    }

    /// All shapes, CL ascending, then AR.
    pub fn specs(&self) -> &[VariantSpec] {
        &self.specs
    }

    /// How the graphs take their past.
    pub const fn form(&self) -> KvForm {
        self.form
    }

    /// Tokens a dialog may hold: `min(size, largest CL)`.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The widest AR.
    pub const fn ar_max(&self) -> usize {
        self.ar_max
    }

    /// The largest CL.
    pub fn max_ctx(&self) -> usize {
        self.specs.last().map_or(0, |s| s.ctx_size().get())
    }

    /// True when every shape has AR == CL: there is no cache, the history is processed each time.
    pub fn is_full_context_only(&self) -> bool {
        self.specs.iter().all(|s| s.is_full_context())
    }

    /// Whether the set has that shape.
    pub fn contains(&self, spec: VariantSpec) -> bool {
        self.specs.binary_search(&spec).is_ok()
    }

    /// The widest past among the shapes that can see `rows` rows; `None` if none is that long.
    ///
    /// Reaching `rows` is possible from exactly the states that hold at most this many.
    pub(super) fn widest_past(&self, rows: usize) -> Option<usize> {
        self.specs.iter().filter(|s| s.ctx_size().get() >= rows).map(|s| s.past_capacity()).max()
    }

    /// The smallest shape without past that takes `n` tokens at once.
    pub(super) fn full_context(&self, n: usize) -> Option<VariantSpec> {
        self.specs.iter().copied().find(|s| s.is_full_context() && s.variant().get() >= n)
    }

    /// For each CL, ascending, the smallest AR of at least `n`, else the largest.
    pub(super) fn picks(&self, n: usize) -> impl Iterator<Item = VariantSpec> + '_ {
        self.levels.iter().map(move |level| self.pick_at(level, n))
    }

    /// The CL levels from the one of `spec` on, for a policy that never demotes.
    pub(super) fn level_of(&self, spec: VariantSpec) -> usize {
        self.levels.iter().position(|l| self.specs[l.start].ctx_size() >= spec.ctx_size()).unwrap_or(0)
    }

    /// The pick at one level; `None` past the last.
    pub(super) fn pick(&self, level: usize, n: usize) -> Option<VariantSpec> {
        self.levels.get(level).map(|level| self.pick_at(level, n))
    }

    fn pick_at(&self, level: &Level, n: usize) -> VariantSpec {
        let specs = &self.specs[level.start..level.end];
        // A level is never empty: it is opened by its first shape.
        specs.iter().copied().find(|s| s.variant().get() >= n).unwrap_or(specs[specs.len() - 1])
    }
}

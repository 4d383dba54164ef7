//! The shapes a bundle has, sorted so that looking for room is a short scan.

use super::PlanError;
use crate::geometry::KvForm;
use crate::group::CacheGroup;
use genie_types::Variant;
use std::sync::Arc;

/// A shape and the tokens after which it can still start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) spec: Variant,
    /// `CL - AR`, or no limit when every group makes room by itself.
    pub(super) cap: usize,
}

impl Shape {
    pub(super) fn ar(&self) -> usize {
        self.spec.ar().get()
    }
}

/// All shapes of one CL: a range of `shapes`, AR ascending.
#[derive(Clone, Copy, Debug)]
struct Level {
    start: usize,
    end: usize,
}

/// The set of shapes to choose from, and the cache groups behind them.
///
/// Invariants: not empty, sorted by CL then AR, without doubles; at least one group.
#[derive(Clone, Debug)]
pub struct Variants {
    specs: Vec<Variant>,
    shapes: Vec<Shape>,
    levels: Vec<Level>,
    groups: Arc<[CacheGroup]>,
    limit: usize,
    ar_max: usize,
}

impl Variants {
    /// Sorts and checks the shapes of a model with one plain group; `size` is the config's `context.size`, by default
    /// the largest CL.
    ///
    /// # Errors
    /// [`PlanError::NoVariants`], [`PlanError::BadSize`].
    pub fn new(specs: impl IntoIterator<Item = Variant>, form: KvForm, size: Option<usize>) -> Result<Self, PlanError> {
        Self::with_groups(specs, vec![CacheGroup::plain(form)], size)
    }

    /// The same for any cache groups, the default one first. When the default group evicts, positions may go beyond
    /// the largest CL and `size` alone limits them (the RoPE table's length).
    ///
    /// # Errors
    /// [`PlanError::NoVariants`], [`PlanError::BadSize`], [`PlanError::BadGroup`].
    pub fn with_groups(
        specs: impl IntoIterator<Item = Variant>,
        groups: Vec<CacheGroup>,
        size: Option<usize>,
    ) -> Result<Self, PlanError> {
        let mut specs: Vec<_> = specs.into_iter().collect();
        specs.sort_unstable();
        specs.dedup();
        let last = *specs.last().ok_or(PlanError::NoVariants)?;
        let max_ctx = last.cl().get();
        super::check_groups(&specs, &groups)?;
        let limit = size.unwrap_or(max_ctx);
        if limit == 0 || (limit > max_ctx && !groups[0].evicts()) {
            return Err(PlanError::BadSize { size: limit, max_ctx });
        }
        let mut levels: Vec<Level> = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            match levels.last_mut() {
                Some(level) if specs[level.start].cl() == spec.cl() => level.end = i + 1,
                _ => levels.push(Level { start: i, end: i + 1 }),
            }
        }
        let ar_max = specs.iter().map(|s| s.ar().get()).max().unwrap_or(1);
        let cap = |spec: Variant| {
            let largest = spec.cl() == last.cl();
            groups.iter().map(|g| g.reach(spec, largest)).min().unwrap_or(0)
        };
        let shapes = specs.iter().map(|&spec| Shape { spec, cap: cap(spec) }).collect();
        Ok(Self { specs, shapes, levels, groups: groups.into(), limit, ar_max })
    }

    /// All shapes, CL ascending, then AR.
    pub fn specs(&self) -> &[Variant] {
        &self.specs
    }

    /// The cache groups, the default one first.
    pub fn groups(&self) -> &[CacheGroup] {
        &self.groups
    }

    /// How the default group takes its past.
    pub fn form(&self) -> KvForm {
        self.groups[0].form
    }

    /// Tokens a dialog may hold: `min(size, largest CL)` unless the default group evicts.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The widest AR.
    pub const fn ar_max(&self) -> usize {
        self.ar_max
    }

    /// The largest CL.
    pub fn max_ctx(&self) -> usize {
        self.specs.last().map_or(0, |s| s.cl().get())
    }

    /// True when every shape has AR == CL: there is no cache, the history is processed each time.
    pub fn is_full_context_only(&self) -> bool {
        self.specs.iter().all(|s| s.is_full_context())
    }

    /// Whether the set has that shape.
    pub fn contains(&self, spec: Variant) -> bool {
        self.specs.binary_search(&spec).is_ok()
    }

    /// Rows of the default group that are left of `rows` tokens as a step starts.
    pub(super) fn resident(&self, spec: Variant, rows: usize) -> usize {
        self.groups[0].resident(spec, rows)
    }

    pub(super) fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// The most tokens after which some shape that sees `rows` tokens can still start; `None` if none sees that many.
    ///
    /// Reaching `rows` is possible from exactly the states that hold at most this many.
    pub(super) fn widest_past(&self, rows: usize) -> Option<usize> {
        self.shapes.iter().filter(|s| s.cap.saturating_add(s.ar()) >= rows).map(|s| s.cap).max()
    }

    /// The smallest shape without past that takes `n` tokens at once.
    pub(super) fn full_context(&self, n: usize) -> Option<Variant> {
        self.specs.iter().copied().find(|s| s.is_full_context() && s.ar().get() >= n)
    }

    /// For each CL, ascending, the smallest AR of at least `n`, else the largest.
    pub(super) fn picks(&self, n: usize) -> impl Iterator<Item = Shape> + '_ {
        self.levels.iter().map(move |&level| self.pick_at(level, n))
    }

    /// The CL level of a shape, for a policy that never demotes.
    pub(super) fn level_of(&self, spec: Variant) -> usize {
        self.levels.iter().position(|l| self.specs[l.start].cl() >= spec.cl()).unwrap_or(0)
    }

    /// The pick at one level; `None` past the last.
    pub(super) fn pick(&self, level: usize, n: usize) -> Option<Shape> {
        self.levels.get(level).map(|&level| self.pick_at(level, n))
    }

    fn pick_at(&self, level: Level, n: usize) -> Shape {
        let shapes = &self.shapes[level.start..level.end];
        // A level is never empty: it is opened by its first shape.
        shapes.iter().copied().find(|s| s.ar() >= n).unwrap_or(shapes[shapes.len() - 1])
    }
}

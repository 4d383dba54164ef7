//! The variants a bundle has, sorted so that looking for room is a short scan.

use super::PlanError;
use crate::geometry::KvForm;
use crate::group::CacheGroup;
use genie_types::Variant;
use std::sync::Arc;

/// A variant and the tokens after which it can still start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) variant: Variant,
    /// `CL - AR`, or no limit when every group makes room by itself.
    pub(super) cap: usize,
}

impl Candidate {
    pub(super) fn ar(&self) -> usize {
        self.variant.ar().get()
    }
}

/// All variants of one CL: a range of `variants`, AR ascending.
#[derive(Clone, Copy, Debug)]
struct Level {
    start: usize,
    end: usize,
}

/// The set of variants to choose from, and the cache groups behind them.
///
/// Invariants: not empty, sorted by CL then AR, without doubles; at least one group.
#[derive(Clone, Debug)]
pub struct Variants {
    all: Vec<Variant>,
    candidates: Vec<Candidate>,
    levels: Vec<Level>,
    groups: Arc<[CacheGroup]>,
    limit: usize,
    ar_max: usize,
    /// Those with logits, where some have none.
    with_logits: Option<Arc<Variants>>,
}

impl Variants {
    /// Sorts and checks the variants of a model with one plain group; `size` is the config's `context.size`, by default
    /// the largest CL.
    ///
    /// # Errors
    /// [`PlanError::NoVariants`], [`PlanError::BadSize`].
    pub fn new(
        variants: impl IntoIterator<Item = Variant>,
        form: KvForm,
        size: Option<usize>,
    ) -> Result<Self, PlanError> {
        Self::with_groups(variants, vec![CacheGroup::plain(form)], size)
    }

    /// The same for any cache groups, the default one first. When the default group evicts, positions may go beyond
    /// the largest CL and `size` alone limits them (the RoPE table's length).
    ///
    /// # Errors
    /// [`PlanError::NoVariants`], [`PlanError::BadSize`], [`PlanError::BadGroup`].
    pub fn with_groups(
        variants: impl IntoIterator<Item = Variant>,
        groups: Vec<CacheGroup>,
        size: Option<usize>,
    ) -> Result<Self, PlanError> {
        let mut variants: Vec<_> = variants.into_iter().collect();
        variants.sort_unstable();
        variants.dedup();
        let last = *variants.last().ok_or(PlanError::NoVariants)?;
        let max_ctx = last.cl().get();
        super::check_groups(&variants, &groups)?;
        let limit = size.unwrap_or(max_ctx);
        if limit == 0 || (limit > max_ctx && !groups[0].evicts()) {
            return Err(PlanError::BadSize { size: limit, max_ctx });
        }
        let ar_max = variants.iter().map(|s| s.ar().get()).max().unwrap_or(1);
        let cap = |variant: Variant| {
            let largest = variant.cl() == last.cl();
            groups.iter().map(|g| g.reach(variant, largest)).min().unwrap_or(0)
        };
        let candidates = variants.iter().map(|&variant| Candidate { variant, cap: cap(variant) }).collect();
        let levels = levels(&variants);
        Ok(Self { all: variants, candidates, levels, groups: groups.into(), limit, ar_max, with_logits: None })
    }

    /// Says which variants have logits: a plan whose tokens' logits are wanted ends on one of those.
    ///
    /// # Errors
    /// [`PlanError::NoVariants`] if none has.
    pub fn giving_logits(mut self, gives: impl Fn(Variant) -> bool) -> Result<Self, PlanError> {
        self.with_logits = None;
        if self.all.iter().all(|&variant| gives(variant)) {
            return Ok(self);
        }
        let candidates: Vec<_> = self.candidates.iter().copied().filter(|s| gives(s.variant)).collect();
        let all: Vec<_> = candidates.iter().map(|s| s.variant).collect();
        let ar_max = candidates.iter().map(Candidate::ar).max().ok_or(PlanError::NoVariants)?;
        let ending = Self { levels: levels(&all), all, candidates, ar_max, ..self.clone() };
        self.with_logits = Some(Arc::new(ending));
        Ok(self)
    }

    /// The variants with logits: the set itself where all have them.
    pub fn with_logits(&self) -> &Self {
        self.with_logits.as_deref().unwrap_or(self)
    }

    /// The same with nearer ends: a step of a variant starts after at most `end` rows. `None` if no end is nearer.
    pub(super) fn with_ends(&self, end: &dyn Fn(Variant) -> Option<usize>) -> Option<Self> {
        let mut out = self.clone();
        let mut any = false;
        if let Some(ending) = self.with_logits.as_deref().and_then(|ending| ending.with_ends(end)) {
            (out.with_logits, any) = (Some(Arc::new(ending)), true);
        }
        for candidate in &mut out.candidates {
            if let Some(end) = end(candidate.variant).filter(|end| *end < candidate.cap) {
                (candidate.cap, any) = (end, true);
            }
        }
        any.then_some(out)
    }

    /// All variants, CL ascending, then AR.
    pub fn all(&self) -> &[Variant] {
        &self.all
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

    /// Tokens of a piece that libGenie cuts a prompt into: the widest AR, or what leaves the windows of its groups whole.
    pub(super) fn longest_piece(&self) -> usize {
        let pieces = self.groups.iter().filter_map(|group| group.longest_piece(&self.all));
        pieces.fold(self.ar_max, usize::min)
    }

    /// The widest AR.
    pub const fn ar_max(&self) -> usize {
        self.ar_max
    }

    /// The largest CL.
    pub fn max_ctx(&self) -> usize {
        self.all.last().map_or(0, |s| s.cl().get())
    }

    /// True when every variant has AR == CL: there is no cache, the history is processed each time.
    pub fn is_full_context_only(&self) -> bool {
        self.all.iter().all(|s| s.is_full_context())
    }

    /// Whether the set has that variant.
    pub fn contains(&self, variant: Variant) -> bool {
        self.all.binary_search(&variant).is_ok()
    }

    /// Rows of the default group that are left of `rows` tokens as a step starts.
    pub(super) fn resident(&self, variant: Variant, rows: usize) -> usize {
        self.groups[0].resident(variant, rows)
    }

    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The most tokens after which some variant that sees `rows` tokens can still start; `None` if none sees that many.
    ///
    /// Reaching `rows` is possible from exactly the states that hold at most this many.
    pub(super) fn widest_past(&self, rows: usize) -> Option<usize> {
        self.candidates.iter().filter(|s| s.cap.saturating_add(s.ar()) >= rows).map(|s| s.cap).max()
    }

    /// The smallest variant without past that takes `n` tokens at once.
    pub(super) fn full_context(&self, n: usize) -> Option<Variant> {
        self.all.iter().copied().find(|s| s.is_full_context() && s.ar().get() >= n)
    }

    /// For each CL, ascending, the smallest AR of at least `n`, else the largest.
    pub(super) fn picks(&self, n: usize) -> impl Iterator<Item = Candidate> + '_ {
        self.levels.iter().map(move |&level| self.pick_at(level, n))
    }

    /// The CL level of a variant, for a policy that never demotes.
    pub(super) fn level_of(&self, variant: Variant) -> usize {
        self.levels.iter().position(|l| self.all[l.start].cl() >= variant.cl()).unwrap_or(0)
    }

    /// The pick at one level; `None` past the last.
    pub(super) fn pick(&self, level: usize, n: usize) -> Option<Candidate> {
        self.levels.get(level).map(|&level| self.pick_at(level, n))
    }

    fn pick_at(&self, level: Level, n: usize) -> Candidate {
        let candidates = &self.candidates[level.start..level.end];
        // A level is never empty: it is opened by its first variant.
        candidates.iter().copied().find(|s| s.ar() >= n).unwrap_or(candidates[candidates.len() - 1])
    }
}

/// Sorted variants by CL.
fn levels(variants: &[Variant]) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    for (i, variant) in variants.iter().enumerate() {
        match levels.last_mut() {
            Some(level) if variants[level.start].cl() == variant.cl() => level.end = i + 1,
            _ => levels.push(Level { start: i, end: i + 1 }),
        }
    }
    levels
}

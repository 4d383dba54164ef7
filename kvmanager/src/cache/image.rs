//! A cache as plain values: what snapshots hold, and what moves rows into another variant, mode or process.
//!
//! *Shapes*: for each tensor `n` rows in layout-neutral form, keys `[n_heads, head_dim, n]`, values
//! `[n_heads, n, head_dim]`, in the tensor's own type. Row `i` of a group's tensors is cell `i` of its image.

use super::KvCache;
use super::positions::Positions;
use super::scored::ScoredRows;
use crate::cells::{Cell, SeqId, have_each};
use crate::error::{KvError, Reason};
use crate::geometry::{KvKind, KvTensor};
use crate::group::Eviction;
use crate::worker::Shard;
use std::collections::BTreeSet;

/// The rows of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupImage {
    /// Its cells, dense; positions are those the keys are turned to.
    pub cells: Vec<Cell>,
    /// Whether heads hold different tokens, so that positions mean nothing but a count.
    pub per_head_rows: bool,
    /// What `KeyDiff` drops next, where it has scored.
    pub scored: Option<ScoredRows>,
}

impl GroupImage {
    /// Rows that no rule has scored.
    pub fn of_cells(cells: Vec<Cell>) -> Self {
        Self { cells, per_head_rows: false, scored: None }
    }

    /// Whether each position below `n` of a sequence has its row, with its key turned for that position.
    pub fn has_each(&self, seq: SeqId, n: usize) -> bool {
        have_each(self.cells.iter(), seq, n)
    }
}

/// All rows of a cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvImage {
    /// The groups, the default one first.
    pub groups: Vec<GroupImage>,
    /// Next position of each sequence that has begun.
    pub next: Vec<(SeqId, usize)>,
    /// The tensors, by split and then by the split's own order.
    pub tensors: Vec<KvTensor>,
    /// Their rows.
    pub data: Vec<Vec<u8>>,
    /// What the scorer of `KeyDiff` has learned ([`KeyScorer::save`](crate::KeyScorer::save)).
    pub scorer: Vec<u8>,
}

impl KvImage {
    /// Next position of the dialog, sequence 0.
    pub fn n_past(&self) -> usize {
        self.next.iter().find(|(seq, _)| *seq == SeqId(0)).map_or(0, |&(_, next)| next)
    }

    /// What is wrong with it, if anything: the checks before it is trusted with a live cache.
    ///
    /// # Errors
    /// [`KvError::BadImage`].
    pub fn check(&self) -> Result<(), KvError> {
        let bad = |why: String| Err(KvError::BadImage { why });
        if self.tensors.len() != self.data.len() {
            return bad(format!("{} tensors but rows of {}", self.tensors.len(), self.data.len()));
        }
        for (tensor, data) in self.tensors.iter().zip(&self.data) {
            let Some(group) = self.groups.get(tensor.group) else {
                return bad(format!("`{}` belongs to group {} of {}", tensor.name(), tensor.group, self.groups.len()));
            };
            let expected = tensor.rows_bytes(group.cells.len());
            if data.len() != expected {
                return bad(format!("`{}` has {} bytes of rows, expected {expected}", tensor.name(), data.len()));
            }
        }
        for group in &self.groups {
            if let Some(i) = group.cells.iter().position(|c| c.is_free()) {
                return bad(format!("row {i} belongs to no sequence"));
            }
            if let Some(why) = group.scored.as_ref().and_then(|scored| scored.fault(group.cells.len())) {
                return bad(why);
            }
        }
        if let Some((seq, _)) = self.next.iter().find(|(seq, _)| usize::from(seq.0) >= SeqId::COUNT) {
            return bad(format!("sequence {} of {}", seq.0, SeqId::COUNT));
        }
        Ok(())
    }

    /// For each tensor of a model with `n_groups` groups, the number of the one of its name here, in whatever order they are.
    ///
    /// # Errors
    /// [`KvError::Foreign`]: one is missing or differs, or there are more.
    pub(super) fn places_of(&self, own: &[KvTensor], n_groups: usize) -> Result<Vec<usize>, KvError> {
        let foreign = |why: String| Err(KvError::Foreign { why });
        if self.groups.len() != n_groups || self.tensors.len() != own.len() {
            return foreign(format!(
                "{} groups and {} tensors saved, this model has {n_groups} and {}",
                self.groups.len(),
                self.tensors.len(),
                own.len()
            ));
        }
        let mut found = Vec::with_capacity(own.len());
        for tensor in own {
            let same = |t: &KvTensor| (t.layer, t.head, t.kind) == (tensor.layer, tensor.head, tensor.kind);
            let Some(at) = self.tensors.iter().position(same) else {
                return foreign(format!("`{}` is not in it", tensor.name()));
            };
            if self.tensors[at] != *tensor {
                return foreign(format!("`{}`: {}", tensor.name(), differences(&self.tensors[at], tensor)));
            }
            found.push(at);
        }
        Ok(found)
    }
}

impl KvCache {
    /// The tensors there are, by split and then by the split's own order, in the layout that images have.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn geometry(&mut self) -> Result<Vec<KvTensor>, KvError> {
        self.wait_all()?;
        Ok(self.store.tensors().map(|t| t.spec.canonical()).collect())
    }

    /// Copies all rows out, with pending shifts applied and holes closed.
    ///
    /// # Errors
    /// [`KvError::Refused`] when there are no rows to keep; [`KvError::Worker`].
    pub fn export(&mut self) -> Result<KvImage, KvError> {
        if !self.settings.keeps_rows {
            return Err(self.refused("saving", Reason::NoRows));
        }
        self.apply_shifts()?;
        self.wait_all()?;
        let mode = self.store.mode.mode();
        let groups: Vec<_> = self
            .groups
            .iter()
            .map(|g| GroupImage {
                cells: g.cells.used().map(|(_, c)| *c).collect(),
                per_head_rows: g.per_head_rows,
                scored: g.scored_rows(),
            })
            .collect();
        let next = self.positions.next.iter().enumerate().filter(|(_, next)| **next > 0);
        let next = next.map(|(seq, &next)| (SeqId(seq as u8), next)).collect();
        let (mut tensors, mut data) = (Vec::new(), Vec::new());
        for (tensor, bytes) in self.store.splits.iter().flat_map(|s| &s.shards).flat_map(Shard::parts) {
            let cells = &self.groups[tensor.spec.group].cells;
            let n = cells.n_used();
            let mut rows = vec![0; tensor.spec.rows_bytes(n)];
            let mut to = 0;
            for (slot, len) in blocks(cells.used().map(|(slot, _)| slot)) {
                tensor.read_rows(bytes, mode, (slot, len), &mut rows, (to, n));
                to += len;
            }
            tensors.push(tensor.spec.canonical());
            data.push(rows);
        }
        let scorer = self.settings.scorer.save();
        Ok(KvImage { groups, next, tensors, data, scorer })
    }

    /// Replaces all rows by those of an image, whatever variant and mode it was made in. The next step lays them out for
    /// its graph.
    ///
    /// # Errors
    /// [`KvError::BadImage`], [`KvError::Foreign`] when it does not fit this model or is too long for it: the cache
    /// stays as it was. [`KvError::Worker`].
    pub fn import(&mut self, image: &KvImage) -> Result<(), KvError> {
        image.check()?;
        if !self.settings.keeps_rows {
            return Err(self.refused("restoring", Reason::NoRows));
        }
        self.wait_all()?;
        let own: Vec<_> = self.store.tensors().map(|t| t.spec.canonical()).collect();
        let found = image.places_of(&own, self.groups.len())?;
        for (i, (group, saved)) in self.groups.iter().zip(&image.groups).enumerate() {
            let (n, capacity) = (saved.cells.len(), group.capacity);
            if n > capacity {
                return Err(KvError::Foreign {
                    why: format!("group {i} has {n} rows saved, this cache holds {capacity}"),
                });
            }
        }
        for (i, (group, saved)) in self.groups.iter().zip(&image.groups).enumerate() {
            if saved.per_head_rows && !matches!(group.rule.long, Eviction::KeyDiff { .. }) {
                let why = format!("group {i} was saved after KeyDiff had evicted, and here it has another rule");
                return Err(KvError::Foreign { why });
            }
        }
        for (i, saved) in image.groups.iter().enumerate() {
            self.check_scored_heads(i, saved)?;
        }
        self.end_step();
        self.positions = Positions::of(image);
        for (group, saved) in self.groups.iter_mut().zip(&image.groups) {
            group.clear();
            group.per_head_rows = saved.per_head_rows;
            for (slot, cell) in saved.cells.iter().enumerate() {
                group.cells.put(slot, cell.pos, cell.seqs);
            }
            group.take_scored_rows(saved.scored.as_ref());
        }
        self.settings.scorer.reset();
        if !self.settings.scorer.restore(&image.scorer) {
            self.settings.scorer.reset();
        }
        let (mode, groups) = (self.store.mode, &self.groups);
        let mut found = found.into_iter();
        for split in &mut self.store.splits {
            for (group, state) in groups.iter().enumerate() {
                split.past_len[group] = state.capacity;
                split.extent[group] = state.cells.extent();
            }
            for (tensor, bytes) in split.shards.iter_mut().flat_map(Shard::parts_mut) {
                let state = &groups[tensor.spec.group];
                if let Some(saved) = found.next() {
                    tensor.write_rows(bytes, mode.mode(), &image.data[saved], state.cells.n_used(), state.capacity);
                }
            }
        }
        self.variant = None;
        Ok(())
    }

    /// Each head of the keys has an order of eviction, or none has.
    fn check_scored_heads(&self, group: usize, saved: &GroupImage) -> Result<(), KvError> {
        let Some(scored) = &saved.scored else { return Ok(()) };
        let keys = self.store.tensors().map(|t| &t.spec).filter(|t| t.group == group && t.kind == KvKind::Key);
        let own: BTreeSet<_> = keys.flat_map(|t| (0..t.n_heads).map(|head| (t.layer, t.head, head))).collect();
        if own != scored.heads.iter().map(|head| (head.layer, head.own_head, head.head)).collect() {
            let why = format!(
                "group {group} has the order of eviction of {} heads, expected that of its {} heads",
                scored.heads.len(),
                own.len()
            );
            return Err(KvError::BadImage { why });
        }
        Ok(())
    }
}

/// In which properties a saved tensor differs from the one of the same name here, in words.
fn differences(saved: &KvTensor, own: &KvTensor) -> String {
    let pairs = [
        ("heads", saved.n_heads.to_string(), own.n_heads.to_string()),
        ("elements in a row of a head", saved.head_dim.to_string(), own.head_dim.to_string()),
        ("element type", saved.dtype.name().to_owned(), own.dtype.name().to_owned()),
        ("scale", saved.scale.to_string(), own.scale.to_string()),
        ("offset", saved.offset.to_string(), own.offset.to_string()),
        ("cache group", saved.group.to_string(), own.group.to_string()),
    ];
    let differing = pairs.iter().filter(|(_, saved, own)| saved != own);
    let words: Vec<_> =
        differing.map(|(what, saved, own)| format!("{what} {saved} saved, {own} in this model")).collect();
    // Floats that print alike and differ: a NaN, say.
    if words.is_empty() { "another layout of rows is saved".to_owned() } else { words.join("; ") }
}

/// Slots that follow each other, as `(first, length)`.
fn blocks(slots: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for slot in slots {
        match out.last_mut() {
            Some((first, len)) if *first + *len == slot => *len += 1,
            _ => out.push((slot, 1)),
        }
    }
    out
}

//! The naive cache: rows in a `Vec`, each with its position, its owners and its bytes. Also the test's own reading of
//! every layout, written from the documentation and not from the code.

mod by_head;

pub use by_head::Scorer;

use by_head::ByHead;
use genie_types::Variant;
use half::f16;
use kvmanager::{Column, Eviction, KvCache, KvDtype, KvGeometry, KvKind, KvLayout, KvTensor};
use std::ops::Range;

pub fn spec(ar: u32, cl: u32) -> Variant {
    Variant::new(ar, cl).unwrap()
}

/// One token's row in all tensors of a group.
#[derive(Clone, Debug)]
pub struct Row {
    pub pos: usize,
    pub rotated_pos: usize,
    pub seqs: u64,
    /// By tensor, head, dimension.
    pub bytes: Vec<u8>,
}

pub struct Group {
    pub tensors: Vec<KvTensor>,
    pub rows: Vec<Row>,
    /// Size and sinks of an exact window.
    pub window: Option<(usize, usize)>,
    /// The window's rows go as a step begins, and those in the way of the step's rows with them.
    pub first_fit: bool,
    /// The step under way takes libGenie\'s slots, and its window counts rows.
    pub by_count: bool,
    /// Sinks of a ring.
    pub ring: Option<usize>,
    /// Eviction by score. Once it has evicted, the rows are there.
    pub scored: Option<ByHead>,
}

impl Group {
    /// The sequence whose rows differ from head to head by now.
    pub fn by_head(&self) -> Option<u64> {
        self.scored.as_ref().and_then(ByHead::owner)
    }

    pub fn len(&self) -> usize {
        self.scored.as_ref().filter(|s| s.owner().is_some()).map_or(self.rows.len(), ByHead::len)
    }

    /// Bits of all owners.
    pub fn seqs(&self) -> u64 {
        self.rows.iter().fold(self.by_head().unwrap_or(0), |all, row| all | row.seqs)
    }

    /// Drops what no coming token sees through a window.
    fn expire(&mut self, next: &[usize]) -> usize {
        let Some((size, sinks)) = self.window else { return 0 };
        let before = self.rows.len();
        self.rows.retain(|r| {
            let owners = (0..64).filter(|s| r.seqs & bit(*s) != 0);
            r.pos < sinks || owners.map(|s| next[usize::from(s)]).any(|next| r.pos + size > next)
        });
        before - self.rows.len()
    }

    /// Whether libGenie's slots are taken: rows and columns are of one sequence as a step begins.
    fn fits(&self, columns: &[Column]) -> bool {
        let seqs = columns.iter().fold(0, |all, c| all | bit(c.seq.0));
        self.first_fit && seqs.count_ones() == 1 && self.rows.iter().all(|row| row.seqs == seqs)
    }

    fn clear(&mut self) {
        self.rows.clear();
        if let Some(scored) = &mut self.scored {
            scored.clear();
        }
    }
}

pub struct Model {
    pub groups: Vec<Group>,
    pub next: Vec<usize>,
    /// Rows that rules have dropped.
    pub n_dropped: usize,
    /// Of the rotations.
    frequencies: [f64; 2],
}

/// What a group that takes slots by their order goes by as a step begins.
pub struct Begun {
    pub columns: Vec<Column>,
    /// Of each group the slots in use, and the position in each.
    pub slots: Vec<Vec<(usize, usize)>>,
    /// Of each group the slots that the step's graph has.
    pub widths: Vec<usize>,
}

fn bit(seq: u8) -> u64 {
    1 << seq
}

impl Model {
    pub fn new(geometry: &KvGeometry, kv: &KvCache, frequencies: [f64; 2]) -> Self {
        let tensors: Vec<_> = geometry.splits.iter().flat_map(|s| s.tensors.clone()).collect();
        let of = |group: usize| -> Vec<KvTensor> { tensors.iter().filter(|t| t.group == group).copied().collect() };
        let groups = kv.variants().groups().iter().enumerate().map(|(i, rule)| Group {
            tensors: of(i),
            rows: Vec::new(),
            window: match rule.long {
                Eviction::Window { size, sinks } | Eviction::FirstFit { size, sinks } => Some((size, sinks)),
                _ => None,
            },
            first_fit: matches!(rule.long, Eviction::FirstFit { .. }),
            by_count: false,
            ring: match rule.long {
                Eviction::Ring { sinks } => Some(sinks),
                _ => None,
            },
            scored: match rule.long {
                Eviction::KeyDiff { sinks, update_every } => Some(ByHead::new(&of(i), sinks, update_every)),
                _ => None,
            },
        });
        Self { groups: groups.collect(), next: vec![0; 64], n_dropped: 0, frequencies }
    }

    /// Whether some group's heads hold different tokens.
    pub fn by_head(&self) -> bool {
        self.groups.iter().any(|g| g.by_head().is_some())
    }

    /// Whether a step of those columns would have to evict by score, or add to what that left, with rows or columns of
    /// several sequences: what is left of rows by then is a count.
    pub fn mixes(&self, columns: &[Column], limits: &[usize], limits_kept: &[usize]) -> bool {
        let own = columns.iter().fold(0, |all, c| all | bit(c.seq.0));
        self.groups.iter().zip(limits.iter().zip(limits_kept)).any(|(group, (&limit, &limit_kept))| {
            let evicts = group.len() > limit || group.len() + columns.len() > limit_kept || group.by_head().is_some();
            group.scored.is_some() && evicts && (own | if group.len() > 0 { group.seqs() } else { 0 }).count_ones() > 1
        })
    }

    pub fn owners(&self, group: usize) -> Vec<(usize, u64)> {
        if let Some(owner) = self.groups[group].by_head() {
            return vec![(0, owner); self.groups[group].len()];
        }
        let mut owners: Vec<_> = self.groups[group].rows.iter().map(|r| (r.pos, r.seqs)).collect();
        owners.sort_unstable();
        owners
    }

    /// Panics unless a group holds exactly those rows: position, owners, bytes.
    pub fn assert_rows(&self, group: usize, mut rows: Vec<(usize, u64, Vec<u8>)>, what: &str) {
        let own = &self.groups[group];
        if let (Some(owner), Some(scored)) = (own.by_head(), &own.scored) {
            assert!(rows.iter().all(|row| row.1 == owner), "owners of group {group}, {what}");
            let bytes: Vec<_> = rows.into_iter().map(|row| row.2).collect();
            assert_eq!(scored.bytes_of(&bytes), scored.bytes(), "rows by head of group {group}, {what}");
            return;
        }
        let mut expected: Vec<_> = own.rows.iter().map(|r| (r.pos, r.seqs, r.bytes.clone())).collect();
        expected.sort_unstable();
        rows.sort_unstable();
        assert_eq!(rows, expected, "rows of group {group}, {what}");
    }

    /// What a step drops as it begins, so that no group holds more than its limit.
    pub fn make_room(&mut self, limits: &[usize], begun: &Begun) {
        self.expire();
        self.fit(begun);
        // Scores are those of keys at their positions.
        if self.groups.iter().zip(limits).any(|(g, &limit)| g.scored.is_some() && g.len() > limit) {
            self.turn();
        }
        self.drop_rows(0, limits);
    }

    /// What libGenie's rule drops: all but the newest rows of the window, and where no slots in a row are free for the step's,
    /// those of the first ones.
    fn fit(&mut self, begun: &Begun) {
        for ((group, slots), &width) in self.groups.iter_mut().zip(&begun.slots).zip(&begun.widths) {
            let (n, before) = (begun.columns.len(), group.rows.len());
            let Some((size, sinks)) = group.window.filter(|_| group.first_fit) else { continue };
            group.by_count = group.fits(&begun.columns);
            if !group.by_count {
                self.n_dropped += group.expire(&self.next);
                continue;
            }
            group.rows.sort_by_key(|row| row.pos);
            let first = group.rows.partition_point(|row| row.pos < sinks);
            let excess = (group.rows.len() - first).saturating_sub(size - 1);
            group.rows.drain(first..first + excess);
            let held = |slot: usize| slots.iter().find(|(at, _)| *at == slot).map(|(_, pos)| *pos);
            let is_free = |slot: usize| held(slot).is_none_or(|pos| group.rows.iter().all(|row| row.pos != pos));
            if !(0..(width + 1).saturating_sub(n)).any(|first| (first..first + n).all(is_free)) {
                let gone: Vec<usize> = (0..n).filter_map(held).collect();
                group.rows.retain(|row| !gone.contains(&row.pos));
            }
            self.n_dropped += before - group.rows.len();
        }
    }

    /// A ring drops its oldest rows, and eviction by score those with the worst keys, until `n` more fit the limit. Returns
    /// for each group how many more would have had to go.
    fn drop_rows(&mut self, n: usize, limits: &[usize]) -> Vec<usize> {
        let mut missing = Vec::new();
        for (group, &limit) in self.groups.iter_mut().zip(limits) {
            let (before, excess) = (group.len(), (group.len() + n).saturating_sub(limit));
            if let Some(sinks) = group.ring {
                for _ in 0..excess {
                    let candidates = group.rows.iter().enumerate().filter(|(_, r)| r.pos >= sinks);
                    let Some((oldest, _)) = candidates.min_by_key(|(_, r)| r.pos) else { break };
                    group.rows.remove(oldest);
                }
            }
            if let Some(scored) = &mut group.scored {
                scored.evict(&mut group.rows, excess);
            }
            self.n_dropped += before - group.len();
            missing.push(excess.saturating_sub(before - group.len()));
        }
        missing
    }

    /// What the first commit of a step drops, so that the kept columns fit.
    pub fn drop_for(&mut self, kept: &[Column], limits: &[usize]) -> Vec<usize> {
        let next = self.next.clone();
        for token in kept {
            let next = &mut self.next[usize::from(token.seq.0)];
            *next = (*next).max(token.pos + 1);
        }
        self.expire();
        self.next = next;
        self.drop_rows(kept.len(), limits)
    }

    /// Keeps new tokens, `serial` numbers them over the whole run.
    pub fn append(&mut self, kept: &[(Column, usize)], limits: &[usize]) {
        let columns: Vec<Column> = kept.iter().map(|(column, _)| *column).collect();
        let mut missing = self.drop_for(&columns, limits);
        for &(token, serial) in kept {
            let (seq, pos) = (usize::from(token.seq.0), token.pos);
            for (group, missing) in self.groups.iter_mut().zip(&mut missing) {
                // Where old rows do not suffice, the first new ones go.
                let sinks = group.ring.or(group.scored.as_ref().map(ByHead::sinks));
                if *missing > 0 && sinks.is_some_and(|sinks| pos >= sinks) {
                    *missing -= 1;
                    continue;
                }
                let mut bytes = Vec::new();
                for tensor in &group.tensors {
                    for (head, dim) in elements(tensor) {
                        bytes.extend(element(tensor, serial, head, dim));
                    }
                }
                let row = Row { pos, rotated_pos: pos, seqs: bit(token.seq.0), bytes };
                match group.scored.as_mut().filter(|s| s.owner().is_some()) {
                    Some(scored) => scored.append(&row),
                    None => group.rows.push(row),
                }
            }
            self.next[seq] = self.next[seq].max(pos + 1);
        }
        self.expire();
    }

    pub fn expire(&mut self) {
        let next = self.next.clone();
        for group in self.groups.iter_mut().filter(|group| !group.first_fit) {
            self.n_dropped += group.expire(&next);
        }
    }

    pub fn lacks(&self, n: usize) -> bool {
        let rings = self.groups.iter().filter(|g| g.ring.is_some());
        if self.by_head() && 0 < n && n < self.next[0] {
            return true;
        }
        let gone = rings.map(|g| g.rows.iter().filter(|r| r.pos < n).count()).any(|held| held < n && n < self.next[0]);
        gone && n > 0
            || self.groups.iter().any(|group| {
                group.window.is_some_and(|(size, sinks)| {
                    let needed = (0..n).filter(|&pos| pos + size > n || pos < sinks);
                    let mut positions: Vec<_> = group.rows.iter().filter(|r| r.seqs & 1 != 0).map(|r| r.pos).collect();
                    positions.sort_unstable();
                    let have = |range: Range<usize>| positions.iter().filter(|p| range.contains(p)).count();
                    let from = (n + 1).saturating_sub(size);
                    needed.count() > 0 && (have(from..n) < n - from || have(0..sinks.min(from)) < sinks.min(from))
                })
            })
    }

    /// Whether a group that counts on positions holds one twice.
    pub fn has_doubles(&self) -> bool {
        self.groups.iter().filter(|g| g.window.is_some() || g.scored.is_some()).any(|group| {
            let mut positions: Vec<_> = group.rows.iter().map(|r| r.pos).collect();
            let n = positions.len();
            positions.sort_unstable();
            positions.dedup();
            positions.len() < n
        })
    }

    pub fn rewind(&mut self, n: usize) {
        self.remove(0, n..usize::MAX);
        self.next[0] = n;
    }

    pub fn remove(&mut self, seq: u8, range: Range<usize>) {
        let others = self.next.iter().enumerate().any(|(s, &next)| s != usize::from(seq) && next > 0);
        for group in &mut self.groups {
            // Once heads differ, all of them or none.
            let own = if group.len() > 0 { group.by_head() == Some(bit(seq)) } else { !others };
            if range.start == 0 && own {
                group.clear();
            }
            for row in group.rows.iter_mut().filter(|r| range.contains(&r.pos)) {
                row.seqs &= !bit(seq);
            }
            group.rows.retain(|r| r.seqs != 0);
        }
        let next = &mut self.next[usize::from(seq)];
        if range.end >= *next && range.start < *next {
            *next = range.start;
        }
    }

    pub fn keep(&mut self, seq: u8) {
        for group in &mut self.groups {
            group.rows.retain(|r| r.seqs & bit(seq) != 0);
            group.rows.iter_mut().for_each(|r| r.seqs = bit(seq));
        }
        let next = self.next[usize::from(seq)];
        self.next.fill(0);
        self.next[usize::from(seq)] = next;
    }

    pub fn share(&mut self, src: u8, dst: u8, range: Range<usize>) {
        for row in self.groups.iter_mut().flat_map(|g| &mut g.rows) {
            if row.seqs & bit(src) != 0 && range.contains(&row.pos) {
                row.seqs |= bit(dst);
            }
        }
        let end = range.end.min(self.next[usize::from(src)]);
        self.next[usize::from(dst)] = self.next[usize::from(dst)].max(end);
    }

    /// Gives a sequence rows of its own.
    fn part(&mut self, seq: u8, range: Range<usize>) {
        for group in &mut self.groups {
            let mut own = Vec::new();
            for row in group.rows.iter_mut() {
                if row.seqs & bit(seq) != 0 && row.seqs != bit(seq) && range.contains(&row.pos) {
                    row.seqs &= !bit(seq);
                    own.push(Row { seqs: bit(seq), ..row.clone() });
                }
            }
            group.rows.extend(own);
        }
    }

    pub fn can_part(&self, seq: u8, range: Range<usize>, kv: &KvCache) -> bool {
        self.groups.iter().enumerate().all(|(i, group)| {
            let shared = |r: &&Row| r.seqs & bit(seq) != 0 && r.seqs != bit(seq) && range.contains(&r.pos);
            group.rows.len() + group.rows.iter().filter(shared).count() <= kv.cells(i).unwrap().capacity()
        })
    }

    pub fn can_copy(&self, src: u8, range: Range<usize>, kv: &KvCache) -> bool {
        self.groups.iter().enumerate().all(|(i, group)| {
            let wanted = |r: &&Row| r.seqs & bit(src) != 0 && range.contains(&r.pos);
            group.rows.len() + group.rows.iter().filter(wanted).count() <= kv.cells(i).unwrap().capacity()
        })
    }

    pub fn copy(&mut self, src: u8, dst: u8, range: Range<usize>) {
        if src == dst {
            return;
        }
        for group in &mut self.groups {
            let mut own = Vec::new();
            for row in group.rows.iter_mut().filter(|r| r.seqs & bit(src) != 0 && range.contains(&r.pos)) {
                row.seqs &= !bit(dst);
                own.push(Row { seqs: bit(dst), ..row.clone() });
            }
            group.rows.extend(own);
        }
        let end = range.end.min(self.next[usize::from(src)]);
        self.next[usize::from(dst)] = self.next[usize::from(dst)].max(end);
    }

    pub fn remap(&mut self, seq: u8, range: Range<usize>, to: impl Fn(usize) -> Option<usize>) {
        let next = self.next[usize::from(seq)];
        self.part(seq, range.clone());
        for group in &mut self.groups {
            for row in group.rows.iter_mut().filter(|r| r.seqs == bit(seq) && range.contains(&r.pos)) {
                match to(row.pos) {
                    Some(pos) => row.pos = pos,
                    None => row.seqs = 0,
                }
            }
            group.rows.retain(|r| r.seqs != 0);
        }
        let end = if next > 0 && range.contains(&(next - 1)) { to(next - 1).map_or(0, |last| last + 1) } else { next };
        let own = self.groups.iter().flat_map(|g| &g.rows).filter(|r| r.seqs & bit(seq) != 0);
        self.next[usize::from(seq)] = own.map(|r| r.pos + 1).fold(end, usize::max);
    }

    pub fn clear(&mut self) {
        self.groups.iter_mut().for_each(Group::clear);
        self.next.fill(0);
    }

    /// Turns keys to their positions: pairs (0, 2) and (1, 3), one rounding a shift.
    pub fn turn(&mut self) {
        for group in &mut self.groups {
            for row in group.rows.iter_mut().filter(|r| r.pos != r.rotated_pos) {
                let delta = row.pos as i64 - row.rotated_pos as i64;
                row.rotated_pos = row.pos;
                let mut at = 0;
                for tensor in &group.tensors {
                    let size = tensor.dtype.size_bytes();
                    for _ in 0..tensor.n_heads {
                        for (j, frequency) in self.frequencies.into_iter().enumerate() {
                            if tensor.kind == KvKind::Key {
                                let (a_at, b_at) = (at + j * size, at + (j + 2) * size);
                                let (sin, cos) = (delta as f64 * frequency).sin_cos();
                                let (sin, cos) = (sin as f32, cos as f32);
                                let a = decode(tensor, &row.bytes[a_at..a_at + size]);
                                let b = decode(tensor, &row.bytes[b_at..b_at + size]);
                                row.bytes[a_at..a_at + size].copy_from_slice(&encode(tensor, a * cos - b * sin));
                                row.bytes[b_at..b_at + size].copy_from_slice(&encode(tensor, a * sin + b * cos));
                            }
                        }
                        at += tensor.head_dim * size;
                    }
                }
            }
        }
    }
}

fn decode(tensor: &KvTensor, b: &[u8]) -> f32 {
    match tensor.dtype {
        KvDtype::U8 => (f32::from(b[0]) + tensor.offset as f32) * tensor.scale,
        KvDtype::U16 => (f32::from(u16::from_le_bytes([b[0], b[1]])) + tensor.offset as f32) * tensor.scale,
        KvDtype::F16 => f16::from_le_bytes([b[0], b[1]]).to_f32(),
        KvDtype::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
    }
}

fn encode(tensor: &KvTensor, x: f32) -> Vec<u8> {
    let quantised = |max: f32| ((x / tensor.scale).round_ties_even() - tensor.offset as f32).clamp(0.0, max);
    match tensor.dtype {
        KvDtype::U8 => vec![quantised(255.0) as u8],
        KvDtype::U16 => (quantised(65_535.0) as u16).to_le_bytes().to_vec(),
        KvDtype::F16 => f16::from_f32(x).to_le_bytes().to_vec(),
        KvDtype::F32 => x.to_le_bytes().to_vec(),
    }
}

pub fn elements(tensor: &KvTensor) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (heads, dims) = (tensor.n_heads, tensor.head_dim);
    (0..heads).flat_map(move |h| (0..dims).map(move |d| (h, d)))
}

/// The element that token `serial` has in a tensor.
fn element(tensor: &KvTensor, serial: usize, head: usize, dim: usize) -> Vec<u8> {
    let head = head + tensor.head.unwrap_or(0);
    let kind = if tensor.kind == KvKind::Key { 0 } else { 50 };
    let x = (serial * 7919 + tensor.layer.0 * 613 + kind + head * 37 + dim * 11) % 241;
    encode(tensor, (x as f32 - 120.0) / 17.0)
}

/// Writes token `serial` as column `col` of a step's output.
pub fn token_bytes(tensor: &KvTensor, mode: usize, ar: usize, col: usize, serial: usize, out: &mut [u8]) {
    for (head, dim) in elements(tensor) {
        let at = index(tensor, mode, ar, col, head, dim);
        let bytes = element(tensor, serial, head, dim);
        out[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}

/// Reads a column of a past input.
pub fn read_past(tensor: &KvTensor, mode: usize, past_len: usize, col: usize, past: &[u8], out: &mut Vec<u8>) {
    for (head, dim) in elements(tensor) {
        let at = index(tensor, mode, past_len, col, head, dim);
        out.extend(&past[at..at + tensor.dtype.size_bytes()]);
    }
}

/// Reads a row of layout-neutral bytes.
pub fn dense_row(tensor: &KvTensor, data: &[u8], n: usize, row: usize, out: &mut Vec<u8>) {
    read_past(tensor, 0, n, row, data, out);
}

/// Byte of an element in a graph tensor of `n` columns: dense, or in tiles of 4 by 4 with 4-byte words (mode 3).
fn index(tensor: &KvTensor, mode: usize, n: usize, col: usize, head: usize, dim: usize) -> usize {
    let size = tensor.dtype.size_bytes();
    let dims = tensor.head_dim;
    if mode != 3 {
        return size
            * match tensor.layout {
                KvLayout::HeadDimSeq => (head * dims + dim) * n + col,
                KvLayout::HeadSeqDim => (head * n + col) * dims + dim,
            };
    }
    let n = n.div_ceil(4) * 4;
    // The matrix of one head is `k` contraction rows by `m` columns; tiles run down the columns of tiles.
    let (k, m, tiles_down) = match tensor.layout {
        KvLayout::HeadDimSeq => (dim, col, dims / 4),
        KvLayout::HeadSeqDim => (col, dim, n / 4),
    };
    let per_word = 4 / size;
    let tile = (m / 4) * tiles_down + k / 4;
    let within = ((k % 4) / per_word) * 4 * per_word + (m % 4) * per_word + (k % 4) % per_word;
    (head * dims * n + tile * 16 + within) * size
}

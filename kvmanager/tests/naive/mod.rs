//! The naive cache: rows in a `Vec`, each with its position, its owners and its bytes. Also the test's own reading of
//! every layout, written from the documentation and not from the code.

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
    /// Sinks of a ring.
    pub ring: Option<usize>,
}

pub struct Model {
    pub groups: Vec<Group>,
    pub next: Vec<usize>,
}

fn bit(seq: u8) -> u64 {
    1 << seq
}

impl Model {
    pub fn new(geometry: &KvGeometry, kv: &KvCache) -> Self {
        let tensors: Vec<_> = geometry.splits.iter().flat_map(|s| s.tensors.clone()).collect();
        let groups = kv.variants().groups().iter().enumerate().map(|(i, rule)| Group {
            tensors: tensors.iter().filter(|t| t.group == i).copied().collect(),
            rows: Vec::new(),
            window: match rule.long {
                Eviction::Window { size, sinks } => Some((size, sinks)),
                _ => None,
            },
            ring: match rule.long {
                Eviction::Ring { sinks } => Some(sinks),
                _ => None,
            },
        });
        Self { groups: groups.collect(), next: vec![0; 64] }
    }

    pub fn owners(&self, group: usize) -> Vec<(usize, u64)> {
        let mut owners: Vec<_> = self.groups[group].rows.iter().map(|r| (r.pos, r.seqs)).collect();
        owners.sort_unstable();
        owners
    }

    pub fn rows(&self, group: usize) -> Vec<(usize, u64, Vec<u8>)> {
        let mut rows: Vec<_> = self.groups[group].rows.iter().map(|r| (r.pos, r.seqs, r.bytes.clone())).collect();
        rows.sort_unstable();
        rows
    }

    /// A ring drops its oldest rows until a group holds no more than its limit.
    pub fn make_room(&mut self, limits: &[usize]) {
        for (group, &limit) in self.groups.iter_mut().zip(limits) {
            while let Some(sinks) = group.ring.filter(|_| group.rows.len() > limit) {
                let candidates = group.rows.iter().enumerate().filter(|(_, r)| r.pos >= sinks);
                let Some((oldest, _)) = candidates.min_by_key(|(_, r)| r.pos) else { break };
                group.rows.remove(oldest);
            }
        }
    }

    /// Keeps new tokens, `serial` numbers them over the whole run; then a ring holds its limit at most.
    pub fn append(&mut self, kept: &[(Column, usize)], limits: &[usize]) {
        for &(token, serial) in kept {
            let (seq, pos) = (usize::from(token.seq.0), token.pos);
            for group in &mut self.groups {
                let mut bytes = Vec::new();
                for tensor in &group.tensors {
                    for (head, dim) in elements(tensor) {
                        bytes.extend(element(tensor, serial, head, dim));
                    }
                }
                group.rows.push(Row { pos, rotated_pos: pos, seqs: bit(token.seq.0), bytes });
            }
            self.next[seq] = self.next[seq].max(pos + 1);
        }
        self.expire();
        self.make_room(limits);
    }

    pub fn expire(&mut self) {
        for group in &mut self.groups {
            if let Some((size, sinks)) = group.window {
                let next = &self.next;
                group.rows.retain(|r| {
                    let owners = (0..64).filter(|s| r.seqs & bit(*s) != 0);
                    r.pos < sinks || owners.map(|s| next[usize::from(s)]).any(|next| r.pos + size > next)
                });
            }
        }
    }

    pub fn lacks(&self, n: usize) -> bool {
        let rings = self.groups.iter().filter(|g| g.ring.is_some());
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

    /// Whether a windowed group holds a position twice.
    pub fn has_doubles(&self) -> bool {
        self.groups.iter().filter(|g| g.window.is_some()).any(|group| {
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
        for group in &mut self.groups {
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
        self.groups.iter_mut().for_each(|g| g.rows.clear());
        self.next.fill(0);
    }

    /// Turns keys to their positions: pairs (0, 2) and (1, 3), frequencies 1 and 0.1, one rounding a shift.
    pub fn turn(&mut self) {
        for group in &mut self.groups {
            for row in group.rows.iter_mut().filter(|r| r.pos != r.rotated_pos) {
                let delta = row.pos as i64 - row.rotated_pos as i64;
                row.rotated_pos = row.pos;
                let mut at = 0;
                for tensor in &group.tensors {
                    let size = tensor.dtype.size_bytes();
                    for _ in 0..tensor.n_heads {
                        for (j, frequency) in [1.0, 100f64.powf(-0.5)].into_iter().enumerate() {
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

//! Eviction by score, as a naive cache does it: at the first one the rows fall apart into a list for each head, and each
//! head forgets rows of its own. From then on positions mean nothing; sinks stay.

use super::{Row, decode};
use kvmanager::{KeyScorer, KvKind, KvTensor};
use std::ops::Range;

/// What a key scores. The test's rotations leave elements 0 and 2 alone, and no two tokens agree in both; so only rows with
/// the same bytes score the same, and it does not matter which of them goes.
fn score(key: &[f32]) -> f32 {
    let code = |x: f32| ((x + 16.0) * 16.0).round() as u32 & 0x1ff;
    let turned = (key[1].to_bits() ^ key[3].to_bits().rotate_left(16)).wrapping_mul(0x9e37_79b1) >> 20;
    let all = code(key[0]) << 21 | code(key[2]) << 12 | turned;
    // An odd factor mixes 30 bits and keeps them distinct; such a pattern is a finite number.
    f32::from_bits(all.wrapping_mul(0x2545_f491) & 0x3fff_ffff)
}

/// The same for the cache.
pub struct Scorer;

impl KeyScorer for Scorer {
    fn score(&mut self, _: genie_types::LayerIdx, _: usize, keys: &[f32], scores: &mut [f32]) {
        scores.iter_mut().zip(keys.chunks_exact(4)).for_each(|(s, key)| *s = score(key));
    }
}

/// A token's bytes in one head.
#[derive(Clone)]
struct Part {
    id: usize,
    sink: bool,
    bytes: Vec<u8>,
}

struct Head {
    /// Where its keys and values are in a row's bytes, and the tensor of the keys.
    ranges: Vec<Range<usize>>,
    key: (KvTensor, Range<usize>),
    rows: Vec<Part>,
    /// Ids of rows, the next one to go first.
    queue: Vec<usize>,
}

impl Head {
    fn part(&self, id: usize, row: &Row, sinks: usize) -> Part {
        let bytes = self.ranges.iter().flat_map(|r| row.bytes[r.clone()].to_vec()).collect();
        Part { id, sink: row.pos < sinks, bytes }
    }

    fn score(&mut self) {
        let (tensor, range) = self.key.clone();
        // Parts hold the ranges one behind the other.
        let before = self.ranges.iter().take_while(|r| **r != range).map(|r| r.len()).sum::<usize>();
        let key = |part: &Part| -> Vec<f32> {
            let bytes = &part.bytes[before..before + range.len()];
            bytes.chunks_exact(tensor.dtype.size_bytes()).map(|b| decode(&tensor, b)).collect()
        };
        let mut order: Vec<_> = self.rows.iter().filter(|p| !p.sink).map(|p| (score(&key(p)), p.id)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.queue = order.into_iter().map(|(_, id)| id).collect();
    }
}

/// The heads of a group whose rows are evicted by score.
pub struct ByHead {
    sinks: usize,
    update_every: usize,
    heads: Vec<Head>,
    /// Rows were evicted; whose they are.
    owner: Option<u64>,
    age: usize,
    n_ids: usize,
}

impl ByHead {
    pub fn new(tensors: &[KvTensor], sinks: usize, update_every: usize) -> Self {
        let mut places: Vec<((usize, usize), KvTensor, Range<usize>)> = Vec::new();
        let mut at = 0;
        for tensor in tensors {
            for head in 0..tensor.n_heads {
                let end = at + tensor.head_dim * tensor.dtype.size_bytes();
                places.push(((tensor.layer.0, head + tensor.head.unwrap_or(0)), *tensor, at..end));
                at = end;
            }
        }
        let keys = places.iter().filter(|(_, tensor, _)| tensor.kind == KvKind::Key);
        let heads = keys.map(|(name, tensor, range)| Head {
            ranges: places.iter().filter(|(other, ..)| other == name).map(|(.., range)| range.clone()).collect(),
            key: (*tensor, range.clone()),
            rows: Vec::new(),
            queue: Vec::new(),
        });
        Self { sinks, update_every, heads: heads.collect(), owner: None, age: 0, n_ids: 0 }
    }

    pub fn owner(&self) -> Option<u64> {
        self.owner
    }

    pub fn sinks(&self) -> usize {
        self.sinks
    }

    pub fn len(&self) -> usize {
        self.heads[0].rows.len()
    }

    /// A new row. Where all are gone, another sequence may begin.
    pub fn append(&mut self, row: &Row) {
        self.owner = Some(row.seqs);
        self.push(row);
    }

    fn push(&mut self, row: &Row) {
        for head in &mut self.heads {
            let part = head.part(self.n_ids, row, self.sinks);
            head.rows.push(part);
        }
        self.n_ids += 1;
    }

    /// Drops up to `n` rows of each head, out of `rows` if none were dropped before; returns how many.
    pub fn evict(&mut self, rows: &mut Vec<Row>, n: usize) -> usize {
        let n_sinks = match self.owner {
            None => rows.iter().filter(|r| r.pos < self.sinks).count(),
            Some(_) => self.heads[0].rows.iter().filter(|p| p.sink).count(),
        };
        let n_rows = if self.owner.is_none() { rows.len() } else { self.len() };
        let n = n.min(n_rows - n_sinks);
        if n == 0 {
            return 0;
        }
        if self.owner.is_none() {
            self.owner = Some(rows[0].seqs);
            assert!(rows.iter().all(|r| r.seqs == rows[0].seqs), "rows of several sequences are evicted");
            rows.drain(..).for_each(|row| self.push(&row));
        }
        if self.heads[0].queue.len() < n || self.age + n > self.update_every {
            self.age = 0;
            self.heads.iter_mut().for_each(Head::score);
        }
        self.age += n;
        for head in &mut self.heads {
            let gone: Vec<usize> = head.queue.drain(..n).collect();
            head.rows.retain(|part| !gone.contains(&part.id));
        }
        n
    }

    pub fn clear(&mut self) {
        self.heads.iter_mut().for_each(|head| (head.rows.clear(), head.queue.clear()).0);
        self.owner = None;
    }

    /// Bytes by head, sorted.
    pub fn bytes(&self) -> Vec<Vec<Vec<u8>>> {
        let sorted = |head: &Head| {
            let mut rows: Vec<_> = head.rows.iter().map(|p| p.bytes.clone()).collect();
            rows.sort_unstable();
            rows
        };
        self.heads.iter().map(sorted).collect()
    }

    /// Bytes of whole rows in the same form.
    pub fn bytes_of(&self, rows: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
        let of = |head: &Head| {
            let part = |row: &Vec<u8>| head.ranges.iter().flat_map(|r| row[r.clone()].to_vec()).collect();
            let mut parts: Vec<Vec<u8>> = rows.iter().map(part).collect();
            parts.sort_unstable();
            parts
        };
        self.heads.iter().map(of).collect()
    }
}

//! A cache that keeps rows in a `Vec`, under the decoder in double precision: the reference of every cached form.
//!
//! A row has one position, its owners, and a key and a value per layer as they were stored. A row that belongs to a
//! sequence from its beginning without gaps also stores the tokens of that sequence, so that its logits can be compared with
//! full recomputation ([`Naive::path`]).

use std::ops::Range;

use super::decoder::Decoder;
use super::form::Form;

/// What the layers of a cache group see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All rows of the sequence.
    All,
    /// The last `size` positions, the token's own included, and the first `sinks`.
    Window {
        /// Positions seen.
        size: usize,
        /// Positions always seen.
        sinks: usize,
    },
}

/// A token to be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The token.
    pub token: u32,
    /// Its sequence.
    pub seq: u8,
    /// Its position.
    pub pos: usize,
}

#[derive(Clone, Debug)]
struct Row {
    pos: usize,
    /// Position that the keys are rotated to.
    rotated_pos: usize,
    seqs: u64,
    /// By layer.
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
    /// By group: dropped by its window.
    gone: Vec<bool>,
    /// The tokens from position 0 to this one, if it saw exactly these.
    path: Option<Vec<u32>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Naive<'a> {
    decoder: &'a Decoder,
    form: &'a Form,
    rules: Vec<Rule>,
    rows: Vec<Row>,
    next: [usize; 64],
}

impl<'a> Naive<'a> {
    /// An empty cache; a rule for each group of the form.
    pub fn new(decoder: &'a Decoder, form: &'a Form, rules: &[Rule]) -> Self {
        Self { decoder, form, rules: rules.to_vec(), rows: Vec::new(), next: [0; 64] }
    }

    /// Position of a sequence's next token.
    pub fn next(&self, seq: u8) -> usize {
        self.next[usize::from(seq)]
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.rows.iter().filter(|r| !r.gone[0]).count()
    }

    /// Processes tokens at once and keeps all; returns the logits of each.
    pub fn process(&mut self, batch: &[Entry]) -> Vec<Vec<f64>> {
        self.process_some(batch, &vec![true; batch.len()])
    }

    /// Processes the next tokens of a sequence.
    pub fn go_on(&mut self, seq: u8, tokens: &[u32]) -> Vec<Vec<f64>> {
        let first = self.next(seq);
        let entry = |(i, &token)| Entry { token, seq, pos: first + i };
        self.process(&tokens.iter().enumerate().map(entry).collect::<Vec<_>>())
    }

    /// Processes tokens at once and keeps some.
    pub fn process_some(&mut self, batch: &[Entry], keep: &[bool]) -> Vec<Vec<f64>> {
        self.rotate_keys();
        self.expire();
        let n_old = self.rows.len();
        let mut x: Vec<Vec<f64>> = batch.iter().map(|e| self.decoder.embedding(e.token)).collect();
        for e in batch {
            let path = self.path_of(e, batch, n_old);
            let gone = vec![false; self.rules.len()];
            let row =
                Row { pos: e.pos, rotated_pos: e.pos, seqs: 1 << e.seq, keys: vec![], values: vec![], gone, path };
            self.rows.push(row);
        }
        for l in 0..self.decoder.size.layers {
            let layer = &self.decoder.layers[l];
            let mut queries = Vec::new();
            for (i, e) in batch.iter().enumerate() {
                let (q, mut k, mut v) = self.decoder.project(layer, &x[i], e.pos);
                k.iter_mut().chain(&mut v).for_each(|x| *x = self.form.kept(*x));
                self.rows[n_old + i].keys.push(k);
                self.rows[n_old + i].values.push(v);
                queries.push(q);
            }
            let group = self.form.groups.iter().position(|g| g.layers.contains(&l)).expect("every layer has a group");
            for (i, e) in batch.iter().enumerate() {
                let seen = (0..self.rows.len()).filter(|&r| self.sees(group, e, i, r, n_old)).map(|r| &self.rows[r]);
                let seen: Vec<_> = seen.map(|r| (r.keys[l].as_slice(), r.values[l].as_slice())).collect();
                self.decoder.finish(layer, &mut x[i], &queries[i], &seen);
            }
        }
        let mut kept = keep.iter();
        let mut at = 0;
        self.rows.retain(|_| {
            at += 1;
            at <= n_old || *kept.next().unwrap_or(&false)
        });
        for (e, _) in batch.iter().zip(keep).filter(|(_, keep)| **keep) {
            let next = &mut self.next[usize::from(e.seq)];
            *next = (*next).max(e.pos + 1);
        }
        self.expire();
        x.iter().map(|x| self.decoder.head(x)).collect()
    }

    /// The tokens of a sequence, if its last token has seen exactly these.
    pub fn path(&self, seq: u8) -> Option<&[u32]> {
        let last = self.next(seq).checked_sub(1)?;
        self.rows.iter().rfind(|r| r.seqs >> seq & 1 == 1 && r.pos == last)?.path.as_deref()
    }

    fn sees(&self, group: usize, e: &Entry, i: usize, r: usize, n_old: usize) -> bool {
        let row = &self.rows[r];
        if r == n_old + i {
            return true;
        }
        let before = if r < n_old { row.pos <= e.pos } else { row.pos < e.pos };
        row.seqs >> e.seq & 1 == 1 && before && self.in_reach(group, e.pos, row.pos) && !row.gone[group]
    }

    fn in_reach(&self, group: usize, pos: usize, key: usize) -> bool {
        match self.rules[group] {
            Rule::All => true,
            Rule::Window { size, sinks } => key + size > pos || key < sinks,
        }
    }

    /// Full recomputation of a sequence under the groups' rules: logits of its last token, from the tokens alone.
    pub fn recompute(&self, tokens: &[u32]) -> Vec<f64> {
        let positions = |group: usize, p: usize| (0..=p).filter(|&key| self.in_reach(group, p, key)).collect();
        let seen: Vec<Vec<Vec<usize>>> =
            (0..self.rules.len()).map(|g| (0..tokens.len()).map(|p| positions(g, p)).collect()).collect();
        let group = |l: usize| self.form.groups.iter().position(|g| g.layers.contains(&l)).expect("as above");
        self.decoder.logits_seeing(tokens, |x| self.form.kept(x), |l, p| &seen[group(l)][p])
    }

    /// Drops the oldest rows except the first `sinks` until `n_left` are left: a ring of slots, as it is when a step begins.
    pub fn ring(&mut self, n_left: usize, sinks: usize) {
        while self.rows.len() > n_left {
            let oldest = self.rows.iter().enumerate().filter(|(_, r)| r.pos >= sinks).min_by_key(|(_, r)| r.pos);
            let Some((at, _)) = oldest else { return };
            self.rows.remove(at);
        }
    }

    /// The path of a new token: what it sees must be positions 0 to its own, once each, with paths that continue each other.
    fn path_of(&self, e: &Entry, batch: &[Entry], n_old: usize) -> Option<Vec<u32>> {
        let old = self.rows[..n_old].iter().filter(|r| r.seqs >> e.seq & 1 == 1 && r.pos <= e.pos);
        let mut old: Vec<&Row> = old.collect();
        old.sort_by_key(|r| r.pos);
        let mut path: Vec<u32> = match old.last() {
            Some(last) => last.path.clone()?,
            None => Vec::new(),
        };
        let whole = old.len() == path.len()
            && old.iter().enumerate().all(|(p, r)| r.pos == p && r.path.as_deref() == path.get(..=p));
        let mut new: Vec<&Entry> = batch.iter().filter(|o| o.seq == e.seq && o.pos < e.pos).collect();
        new.sort_by_key(|o| o.pos);
        path.extend(new.iter().map(|o| o.token));
        path.push(e.token);
        let follows = new.iter().enumerate().all(|(i, o)| o.pos == old.len() + i);
        let misses = |r: &Row| (0..self.rules.len()).any(|g| r.gone[g] && self.in_reach(g, e.pos, r.pos));
        let complete = whole && follows && path.len() == e.pos + 1 && !old.iter().any(|r| misses(r));
        complete.then_some(path)
    }

    /// Rotates keys to their positions, as the cache does before a step: dequantised, rotated, quantised again.
    fn rotate_keys(&mut self) {
        for row in &mut self.rows {
            let by = row.pos as f64 - row.rotated_pos as f64;
            if by != 0.0 {
                for keys in &mut row.keys {
                    self.decoder.rotate(keys, by);
                    keys.iter_mut().for_each(|x| *x = self.form.kept(*x));
                }
                row.rotated_pos = row.pos;
            }
        }
    }

    /// Drops, by group, rows that no later token sees.
    fn expire(&mut self) {
        for (g, rule) in self.rules.iter().enumerate() {
            let Rule::Window { size, sinks } = *rule else { continue };
            for row in &mut self.rows {
                let mut owners = (0..64).filter(|s| row.seqs >> s & 1 == 1);
                row.gone[g] |= row.pos >= sinks && owners.all(|s| row.pos + size <= self.next[s]);
            }
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.next = [0; 64];
    }

    /// Goes back to the first `n` positions of sequence 0.
    pub fn rewind(&mut self, n: usize) {
        self.disown(0, &(n..usize::MAX));
        self.next[0] = n;
    }

    fn disown(&mut self, seq: u8, range: &Range<usize>) {
        for row in self.rows.iter_mut().filter(|r| range.contains(&r.pos)) {
            row.seqs &= !(1 << seq);
        }
        self.rows.retain(|r| r.seqs != 0);
    }

    /// Removes a range from a sequence.
    pub fn remove(&mut self, seq: u8, range: &Range<usize>) {
        self.disown(seq, range);
        let next = &mut self.next[usize::from(seq)];
        if range.end >= *next && range.start < *next {
            *next = range.start;
        }
    }

    /// Keeps one sequence.
    pub fn keep(&mut self, seq: u8) {
        self.rows.iter_mut().for_each(|r| r.seqs &= 1 << seq);
        self.rows.retain(|r| r.seqs != 0);
        let next = self.next(seq);
        self.next = [0; 64];
        self.next[usize::from(seq)] = next;
    }

    /// Shares the rows of `src` in a range with `dst`.
    pub fn share(&mut self, src: u8, dst: u8, range: &Range<usize>) {
        let of_src = |r: &&mut Row| r.seqs >> src & 1 == 1 && range.contains(&r.pos);
        self.rows.iter_mut().filter(of_src).for_each(|r| r.seqs |= 1 << dst);
        self.reach(src, dst, range);
    }

    /// Copies the rows of `src` in a range to `dst`.
    pub fn copy(&mut self, src: u8, dst: u8, range: &Range<usize>) {
        if src != dst {
            self.duplicate(dst, |r| r.seqs >> src & 1 == 1 && range.contains(&r.pos));
            self.reach(src, dst, range);
        }
    }

    fn reach(&mut self, src: u8, dst: u8, range: &Range<usize>) {
        let end = range.end.min(self.next(src));
        let next = &mut self.next[usize::from(dst)];
        *next = (*next).max(end);
    }

    fn duplicate(&mut self, owner: u8, wanted: impl Fn(&Row) -> bool) {
        let mut copies = Vec::new();
        for row in self.rows.iter_mut().filter(|r| wanted(r)) {
            copies.push(Row { seqs: 1 << owner, ..row.clone() });
            row.seqs &= !(1 << owner);
        }
        self.rows.extend(copies);
        self.rows.retain(|r| r.seqs != 0);
    }

    /// Moves positions of a sequence in a range.
    pub fn remap(&mut self, seq: u8, range: &Range<usize>, to: impl Fn(usize) -> Option<usize>) {
        let next = self.next(seq);
        self.duplicate(seq, |r| r.seqs >> seq & 1 == 1 && r.seqs != 1 << seq && range.contains(&r.pos));
        for row in self.rows.iter_mut().filter(|r| r.seqs == 1 << seq && range.contains(&r.pos)) {
            match to(row.pos) {
                Some(pos) => {
                    row.path = row.path.take().filter(|_| pos == row.pos);
                    row.pos = pos;
                }
                None => row.seqs = 0,
            }
        }
        self.rows.retain(|r| r.seqs != 0);
        let moved = next > 0 && range.contains(&(next - 1));
        let end = if moved { to(next - 1).map_or(0, |last| last + 1) } else { next };
        // Never behind a row that is still there.
        let own = self.rows.iter().filter(|r| r.seqs >> seq & 1 == 1 && r.gone.contains(&false));
        self.next[usize::from(seq)] = own.map(|r| r.pos + 1).fold(end, usize::max);
    }
}

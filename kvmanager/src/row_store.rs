//! Rows of one sequence in buffers of its own, row = position, for graphs that take the caches of two requests side by side.
//!
//! *Layout*: each tensor lies in lines of `past_len` rows, as [`KvTensor`] has them; another graph may see a past of another length,
//! so lines move closer together or apart ([`RowStore::set_past`]). *Invariant*: `n_rows <= past_len <= max_past`; every byte was written,
//! so a hidden column never brings a NaN of its own.

use crate::buffer::{AlignedBytes, fill};
use crate::error::KvError;
use crate::geometry::KvTensor;

/// The rows of one sequence in every cache tensor.
#[derive(Debug)]
pub struct RowStore {
    tensors: Vec<KvTensor>,
    bytes: Vec<AlignedBytes>,
    max_past: usize,
    past_len: usize,
    n_rows: usize,
    /// Bytes that changes of the past's length have moved.
    moved: u64,
}

impl RowStore {
    /// An empty store for pasts of up to `max_past` rows.
    ///
    /// # Errors
    /// [`KvError::Memory`].
    pub fn new(tensors: &[KvTensor], max_past: usize) -> Result<Self, KvError> {
        let mut bytes = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let mut block = AlignedBytes::zeroed(tensor.rows_bytes(max_past))?;
            let (pad, size) = tensor.pad_element();
            fill(block.as_mut_slice(), &pad[..size]);
            bytes.push(block);
        }
        Ok(Self { tensors: tensors.to_vec(), bytes, max_past, past_len: max_past, n_rows: 0, moved: 0 })
    }

    /// Rows that are in use.
    pub const fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Rows that the graph sees whose past this is now.
    pub const fn past_len(&self) -> usize {
        self.past_len
    }

    /// Bytes that changes of the past's length have moved since the store was made.
    pub const fn moved_bytes(&self) -> u64 {
        self.moved
    }

    /// Bytes that the store takes.
    pub fn size_bytes(&self) -> usize {
        self.tensors.iter().map(|t| t.rows_bytes(self.max_past)).sum()
    }

    /// The pasts of all tensors, in their order, in the form of the graph that runs next.
    pub fn pasts(&self) -> impl Iterator<Item = &[u8]> {
        let past_len = self.past_len;
        self.tensors.iter().zip(&self.bytes).map(move |(t, bytes)| &bytes.as_slice()[..t.rows_bytes(past_len)])
    }

    /// The same, for a graph that writes new rows itself. Rows in use must come back as they were.
    pub fn pasts_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let past_len = self.past_len;
        self.tensors
            .iter()
            .zip(&mut self.bytes)
            .map(move |(t, bytes)| &mut bytes.as_mut_slice()[..t.rows_bytes(past_len)])
    }

    /// Takes the form of a graph with a past of another length.
    ///
    /// # Errors
    /// [`KvError::RowsCut`] where rows in use would not fit; nothing has moved.
    pub fn set_past(&mut self, past_len: usize) -> Result<(), KvError> {
        if self.n_rows > past_len || past_len > self.max_past {
            return Err(KvError::RowsCut { past_len: past_len.min(self.max_past), n_rows: self.n_rows });
        }
        let old = core::mem::replace(&mut self.past_len, past_len);
        if old == past_len || self.n_rows == 0 {
            return Ok(());
        }
        for (tensor, bytes) in self.tensors.iter().zip(&mut self.bytes) {
            let (bytes, unit, n_lines) = (bytes.as_mut_slice(), tensor.unit_bytes(), tensor.n_lines());
            let len = self.n_rows * unit;
            let mut shift = |line: usize| {
                let from = line * old * unit;
                bytes.copy_within(from..from + len, line * past_len * unit);
            };
            // Lines that come closer move from the first on, others from the last: none runs over one that is still to move.
            if past_len < old {
                (1..n_lines).for_each(&mut shift)
            } else {
                (1..n_lines).rev().for_each(&mut shift)
            }
            self.moved += (n_lines.saturating_sub(1) * len) as u64;
        }
        Ok(())
    }

    /// Copies new rows of one tensor behind those in use: columns `first..first + n` of a graph's output of `width` columns. They
    /// are in use after [`Self::advance`].
    ///
    /// # Errors
    /// [`KvError::RowsCut`] where they do not fit.
    pub fn write(&mut self, tensor: usize, new: &[u8], width: usize, first: usize, n: usize) -> Result<(), KvError> {
        self.check_room(n)?;
        let spec = &self.tensors[tensor];
        let (bytes, unit) = (self.bytes[tensor].as_mut_slice(), spec.unit_bytes());
        for line in 0..spec.n_lines() {
            let from = (line * width + first) * unit;
            let to = (line * self.past_len + self.n_rows) * unit;
            bytes[to..to + n * unit].copy_from_slice(&new[from..from + n * unit]);
        }
        Ok(())
    }

    /// Takes `n` rows behind those in use as written.
    ///
    /// # Errors
    /// [`KvError::RowsCut`] where they do not fit.
    pub fn advance(&mut self, n: usize) -> Result<(), KvError> {
        self.check_room(n)?;
        self.n_rows += n;
        Ok(())
    }

    /// Drops all rows from `n` on; true if there were that many.
    pub const fn truncate(&mut self, n: usize) -> bool {
        let has = n <= self.n_rows;
        if has {
            self.n_rows = n;
        }
        has
    }

    /// Replaces the rows by the first `n` of another store of the same tensors.
    ///
    /// # Errors
    /// [`KvError::RowsCut`] where there are not that many, or they do not fit.
    pub fn copy_from(&mut self, other: &Self, n: usize) -> Result<(), KvError> {
        if n > other.n_rows || n > self.max_past {
            return Err(KvError::RowsCut { past_len: other.n_rows.min(self.max_past), n_rows: n });
        }
        self.past_len = self.max_past;
        for (i, spec) in self.tensors.iter().enumerate() {
            let (to, from, unit) = (self.bytes[i].as_mut_slice(), other.bytes[i].as_slice(), spec.unit_bytes());
            for line in 0..spec.n_lines() {
                let at = line * other.past_len * unit;
                to[line * self.past_len * unit..][..n * unit].copy_from_slice(&from[at..at + n * unit]);
            }
        }
        self.n_rows = n;
        Ok(())
    }

    /// The rows in use of one tensor, line after line without gaps.
    pub fn rows(&self, tensor: usize) -> Vec<u8> {
        let (spec, bytes) = (&self.tensors[tensor], self.bytes[tensor].as_slice());
        let unit = spec.unit_bytes();
        let lines = (0..spec.n_lines()).map(|line| &bytes[line * self.past_len * unit..][..self.n_rows * unit]);
        lines.flatten().copied().collect()
    }

    fn check_room(&self, n: usize) -> Result<(), KvError> {
        let n_rows = self.n_rows + n;
        if n_rows > self.past_len { Err(KvError::RowsCut { past_len: self.past_len, n_rows }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvKind};
    use proptest::prelude::*;

    /// What a row of a line holds, so that any mix-up shows.
    fn unit(spec: &KvTensor, line: usize, row: usize) -> Vec<u8> {
        (0..spec.unit_bytes()).map(|byte| (17 * line + 5 * row + byte + 1) as u8).collect()
    }

    fn expected(spec: &KvTensor, n: usize) -> Vec<u8> {
        (0..spec.n_lines()).flat_map(|line| (0..n).flat_map(move |row| unit(spec, line, row))).collect()
    }

    fn tensors() -> [KvTensor; 2] {
        [
            KvTensor::new(KvKind::Key, 0, 2, 3, KvDtype::F16),
            KvTensor::new(KvKind::Value, 0, 2, 3, KvDtype::U8).with_quant(0.5, -128),
        ]
    }

    /// Appends rows as a graph of that width gives them, right-aligned.
    fn append(store: &mut RowStore, width: usize, n: usize) -> Result<(), KvError> {
        let (specs, at) = (tensors(), store.n_rows());
        for (i, spec) in specs.iter().enumerate() {
            let column = |line: usize, col: usize| match col.checked_sub(width - n) {
                Some(k) => unit(spec, line, at + k),
                None => vec![0xee; spec.unit_bytes()],
            };
            let new: Vec<u8> =
                (0..spec.n_lines()).flat_map(|line| (0..width).flat_map(move |col| column(line, col))).collect();
            store.write(i, &new, width, width - n, n)?;
        }
        store.advance(n)
    }

    proptest! {
        #[test]
        fn rows_survive_every_change_of_the_past(steps in prop::collection::vec((0usize..4, 1usize..12, 0usize..14), 1..40)) {
            let specs = tensors();
            let mut store = RowStore::new(&specs, 24).unwrap();
            let mut n = 0;
            for (op, a, b) in steps {
                match op {
                    0 => {
                        let fits = n + a <= store.past_len();
                        prop_assert_eq!(append(&mut store, a + b % 3, a).is_ok(), fits);
                        n += if fits { a } else { 0 };
                    }
                    1 | 2 => {
                        let to = 10 + b;
                        let before = store.past_len();
                        let done = store.set_past(to);
                        // Cutting is refused, and nothing has changed.
                        prop_assert_eq!(done.is_ok(), n <= to);
                        prop_assert_eq!(store.past_len(), if done.is_ok() { to } else { before });
                    }
                    _ => {
                        prop_assert!(store.truncate(n.min(b)));
                        n = n.min(b);
                    }
                }
                prop_assert_eq!(store.n_rows(), n);
                for (i, spec) in specs.iter().enumerate() {
                    prop_assert_eq!(store.rows(i), expected(spec, n));
                }
                let mut copy = RowStore::new(&specs, 24).unwrap();
                copy.copy_from(&store, n).unwrap();
                prop_assert_eq!(copy.rows(0), store.rows(0));
                prop_assert_eq!(copy.rows(1), store.rows(1));
            }
        }
    }

    #[test]
    fn a_past_that_would_cut_rows_is_refused() {
        let mut store = RowStore::new(&tensors(), 16).unwrap();
        append(&mut store, 12, 12).unwrap();
        let error = store.set_past(11).unwrap_err();
        assert_eq!(error.to_string(), "a past of 11 rows would lose some of 12");
        assert_eq!(store.past_len(), 16);
        store.set_past(12).unwrap();
        assert_eq!(store.rows(0), expected(&tensors()[0], 12));
        assert!(store.advance(1).is_err() && !store.truncate(13));
    }

    #[test]
    fn unused_rows_are_zero_in_the_codes_of_the_tensor() {
        let store = RowStore::new(&tensors(), 2).unwrap();
        let pasts: Vec<&[u8]> = store.pasts().collect();
        assert!(pasts[0].iter().all(|&b| b == 0) && pasts[1].iter().all(|&b| b == 128));
    }
}

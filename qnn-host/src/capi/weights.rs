//! Static tensors of a context, each content kept once.
//!
//! Variants of one model (AR/CL) are fed the same weights again and again; a hash finds the earlier copy, its length and
//! a comparison of all bytes confirm it. Invariant: no two entries have equal bytes.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::Bytes;

/// The contents of a context's static tensors.
#[derive(Debug, Default)]
pub(super) struct WeightStore {
    by_content: HashMap<(u64, usize), Vec<Bytes>>,
    bytes: usize,
}

impl WeightStore {
    /// The kept copy of these bytes, made now if there is none.
    pub(super) fn intern(&mut self, data: &[u8]) -> Bytes {
        let twins = self.by_content.entry((xxh3_64(data), data.len())).or_default();
        if let Some(twin) = twins.iter().find(|b| b[..] == *data) {
            return twin.clone();
        }
        let bytes = Bytes::copy_from(data);
        self.bytes += data.len();
        twins.push(bytes.clone());
        bytes
    }

    /// Bytes kept.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_share_a_copy() {
        let mut store = WeightStore::default();
        let (a, b) = (store.intern(&[1; 100]), store.intern(&[1; 100]));
        let (c, d) = (store.intern(&[1; 99]), store.intern(&[2; 100]));
        assert_eq!(a.as_ptr(), b.as_ptr());
        assert!(a.as_ptr() != c.as_ptr() && a.as_ptr() != d.as_ptr());
        assert_eq!(store.total_bytes(), 299);
    }

    #[test]
    fn equal_hashes_are_not_enough() {
        let mut store = WeightStore::default();
        let hash = xxh3_64(&[5; 10]);
        store.by_content.insert((hash, 10), vec![Bytes::copy_from(&[6; 10])]);
        assert_eq!(store.intern(&[5; 10])[..], [5; 10]);
        assert_eq!(store.by_content[&(hash, 10)].len(), 2);
    }
}

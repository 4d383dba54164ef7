//! Static tensors of a context, each content kept once.
//!
//! Variants of one model (AR/CL) are fed the same weights again and again; a hash finds the earlier copy, its length and
//! a comparison of all bytes confirm it. Invariant: no two entries have equal bytes.
//!
//! With a [`Scratch`] large ones lie in a file, and blocks that the product kernels take are packed at once: that form alone is
//! kept. Equal ones are then found by 128 bits of hash, of values and scales each, as there is nothing left to compare with.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::bytes::Bytes;
use crate::container;
use crate::graph::typed::Constant;
use crate::graph::{Derived, SharedConstants};
use crate::ir::{Dtype, Quant, Role, Tensor};
use crate::passes::weights::{pack_rows, packing_of};

use super::scratch::{LEAST_BYTES, Scratch};

/// What tells packed tensors apart: hashes of values and scales, lengths, extents, type, extents of a block.
type Content = ((u128, u128), (usize, usize), Vec<u32>, Dtype, Vec<u32>);

/// The contents of a context's static tensors.
#[derive(Debug, Default)]
pub(super) struct WeightStore {
    by_content: HashMap<(u64, usize), Vec<Bytes>>,
    packed: HashMap<Content, (Role, Quant)>,
    scratch: Option<Scratch>,
    bytes: usize,
}

impl WeightStore {
    /// Keeps large contents in a file in `folder` from now on.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn use_folder(&mut self, folder: &Path) -> io::Result<()> {
        self.scratch = Some(Scratch::create(folder)?);
        Ok(())
    }

    /// Whether large contents are in a file.
    pub(super) fn has_scratch(&self) -> bool {
        self.scratch.is_some()
    }

    /// The kept copy of these bytes, made now if there is none.
    pub(super) fn intern(&mut self, data: &[u8]) -> Bytes {
        let twins = self.by_content.entry((xxh3_64(data), data.len())).or_default();
        let twin = twins.iter().find(|b| {
            let same = b[..] == *data;
            b.forget_pages();
            same
        });
        if let Some(twin) = twin {
            return twin.clone();
        }
        let scratch = self.scratch.as_mut().filter(|_| data.len() >= LEAST_BYTES);
        // A disk that is full is no reason to give up here: whether all fits is known when the binary is written.
        let in_file = scratch.and_then(|scratch| scratch.put(data.len(), |out| out.write_all(data)).ok());
        let bytes = in_file.unwrap_or_else(|| Bytes::copy_from(data));
        self.bytes += data.len();
        twins.push(bytes.clone());
        bytes
    }

    /// Keeps what a static tensor refers to: packed if it can be, else as it is.
    pub(super) fn settle(&mut self, tensor: &mut Tensor, shared: &SharedConstants) {
        let Role::Static(data) = &tensor.role else { return };
        if let Some((role, quant)) = self.settle_packed(tensor, data, shared) {
            (tensor.role, tensor.quant) = (role, quant);
            return;
        }
        let kept = self.intern(data);
        if let Quant::Block { scales, .. } = &mut tensor.quant
            && let Some(of_store) = crate::ir::BlockScales::new(self.intern(scales.bytes()))
        {
            *scales = of_store;
        }
        tensor.role = Role::Static(kept);
    }

    /// Values and scales of a tensor in blocks that are made of its packed form when they are read, and never are.
    fn settle_packed(&mut self, tensor: &Tensor, data: &Bytes, shared: &SharedConstants) -> Option<(Role, Quant)> {
        let scratch = self.scratch.as_mut().filter(|_| data.len() >= LEAST_BYTES)?;
        let Quant::Block { block_dims, scales, .. } = &tensor.quant else { return None };
        let &[rows, cols] = tensor.dims.as_slice() else { return None };
        let (rows, cols) = (rows as usize, cols as usize);
        let hashes = (xxh3_128(data), xxh3_128(scales.bytes()));
        let lengths = (data.len(), scales.bytes().len());
        let content = (hashes, lengths, tensor.dims.clone(), tensor.dtype, block_dims.to_vec());
        if let Some(known) = self.packed.get(&content) {
            return Some(known.clone());
        }
        let constant = Constant::new(data.clone(), tensor.dtype, tensor.quant.clone());
        let packing = packing_of(&constant, rows, cols)?;
        let size = packing.size_bytes(rows, cols)?;
        // Full disks: as in `intern`.
        let form =
            scratch.put(size, |out| pack_rows(&constant, packing, rows, cols, |part| out.write_all(part))).ok()?;
        let (values, scales) = container::portable_of(&form, packing, tensor)?;
        form.forget_pages();
        let quant = Quant::Block { block_dims: block_dims.clone(), scales, offsets: [].into() };
        let constant = Constant::new(values.clone(), tensor.dtype, quant.clone());
        self.bytes += size;
        shared.put(&constant, &[rows, cols], Derived::Packed(packing), form);
        let kept = (Role::Static(values), quant);
        self.packed.insert(content, kept.clone());
        Some(kept)
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

    #[cfg(unix)]
    #[test]
    fn with_a_folder_blocks_are_packed_once_and_mean_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = WeightStore::default();
        store.use_folder(folder.path()).unwrap();
        let shared = SharedConstants::default();
        // Rows that fill no group, in more than one strip.
        let (rows, cols) = (40, 4096);
        let values: Vec<u8> = (0..rows * cols).map(|i| (i * 37 % 251) as u8).collect();
        let scales: crate::ir::BlockScales = (0..rows * cols / 32).map(|i| (i % 97) as f32 / 64.0).collect();
        let quant = Quant::Block { block_dims: [1, 32].into(), scales: scales.clone(), offsets: [].into() };
        let given = Tensor {
            name: "w".into(),
            dims: vec![rows as u32, cols as u32],
            dtype: Dtype::SFixed8,
            quant,
            data_format: 0,
            role: Role::Static(Bytes::copy_from(&values)),
        };
        let mut kept = given.clone();
        store.settle(&mut kept, &shared);
        let mut again = given.clone();
        store.settle(&mut again, &shared);
        let mut other = Tensor { quant: Quant::None, ..given };
        store.settle(&mut other, &shared);
        let parts = |tensor: &Tensor| match (&tensor.role, &tensor.quant) {
            (Role::Static(values), Quant::Block { scales, .. }) => (values.clone(), scales.clone()),
            other => panic!("{other:?}"),
        };
        let ((found, found_scales), (twin, _)) = (parts(&kept), parts(&again));
        assert_eq!(found.id(), twin.id(), "kept once");
        assert!(!found.is_made() && !found_scales.bytes().is_made());
        assert!(
            matches!(&other.role, Role::Static(data) if data[..] == values[..]),
            "what has no blocks is kept as it is"
        );
        assert_eq!(found[..], values[..]);
        assert!(found_scales.iter().eq(scales.iter()));
    }
}

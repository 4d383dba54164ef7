//! Static tensors of a context, each content kept once.
//!
//! Variants of one model (AR/CL) are fed the same weights again and again; a hash finds the earlier copy, its length and
//! a comparison of all bytes confirm it. Invariant: no two entries have equal bytes.
//!
//! With a [`Scratch`] large ones lie in a file, and blocks that the product kernels take are packed at once: that form alone is
//! kept. Equal ones are then found by 128 bits of hash, of values and scales each, as there is nothing left to compare with.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::bytes::Bytes;
use crate::container;
use crate::graph::typed::Constant;
use crate::graph::{Derived, SharedConstants};
use crate::ir::{Dtype, Quant, Role, Tensor};
use crate::passes::weights::{pack_rows, packing_of};

use super::scratch::{LEAST_BYTES, Scratch};

/// What tells packed tensors apart: hashes of values and scales, lengths, extents, type, extents of a block.
type Content = ((u128, u128), (usize, usize), Vec<u32>, Dtype, Vec<u32>);

/// Bytes that are hashed, compared or written between two questions whether to go on.
const PART: usize = 4 << 20;

/// Asked whether to go on; once it said no, it says no again.
type GoOn<'a> = dyn FnMut() -> bool + 'a;

/// The client wants an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

/// All bytes hashed; none once `go_on` says no.
fn hashed(data: &[u8], go_on: &mut GoOn<'_>) -> Option<Xxh3> {
    let mut hasher = Xxh3::new();
    for part in data.chunks(PART) {
        go_on().then(|| hasher.update(part))?;
    }
    Some(hasher)
}

/// Writes a part, unless `go_on` says no.
fn write(out: &mut dyn Write, part: &[u8], go_on: &mut GoOn<'_>) -> io::Result<()> {
    if go_on() { out.write_all(part) } else { Err(io::Error::other("stopped on request")) }
}

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
        self.intern_asking(data, &mut || true).expect("it goes on")
    }

    /// The same; none once `go_on` says no, and never asks again.
    fn intern_asking(&mut self, data: &[u8], go_on: &mut GoOn<'_>) -> Option<Bytes> {
        let hash = hashed(data, go_on)?.digest();
        let twins = self.by_content.entry((hash, data.len())).or_default();
        let twin = twins.iter().find(|b| {
            let mut parts = b.chunks(PART).zip(data.chunks(PART));
            let same = b.len() == data.len() && parts.all(|(a, b)| go_on() && a == b);
            b.forget_pages();
            same
        });
        if let Some(twin) = twin {
            return Some(twin.clone());
        }
        let scratch = self.scratch.as_mut().filter(|_| data.len() >= LEAST_BYTES);
        // A disk that is full is no reason to give up here: whether all fits is known when the binary is written.
        let in_file = scratch.and_then(|scratch| {
            let fill = |out: &mut dyn Write| data.chunks(PART).try_for_each(|part| write(out, part, go_on));
            scratch.put(data.len(), fill).ok()
        });
        let bytes = match in_file {
            Some(bytes) => bytes,
            None if !go_on() => return None,
            None => Bytes::copy_from(data),
        };
        self.bytes += data.len();
        twins.push(bytes.clone());
        Some(bytes)
    }

    /// Keeps what a static tensor refers to: packed if it can be, else as it is. `go_on` is asked every few megabytes.
    ///
    /// # Errors
    /// `go_on` said no: the tensor is as it was, and nothing of it is kept but perhaps its values.
    pub(super) fn settle(
        &mut self,
        tensor: &mut Tensor,
        shared: &SharedConstants,
        go_on: &mut GoOn<'_>,
    ) -> Result<(), Stopped> {
        let Role::Static(data) = &tensor.role else { return Ok(()) };
        let mut stopped = false;
        let go_on: &mut GoOn<'_> = &mut || {
            stopped = stopped || !go_on();
            !stopped
        };
        if let Some((role, quant)) = self.settle_packed(tensor, data, shared, go_on) {
            (tensor.role, tensor.quant) = (role, quant);
            return Ok(());
        }
        let kept = self.intern_asking(data, go_on).ok_or(Stopped)?;
        if let Quant::Block { scales, .. } = &mut tensor.quant
            && let Some(of_store) =
                crate::ir::BlockScales::new(self.intern_asking(scales.bytes(), go_on).ok_or(Stopped)?)
        {
            *scales = of_store;
        }
        tensor.role = Role::Static(kept);
        Ok(())
    }

    /// Values and scales of a tensor in blocks that are made of its packed form when they are read, and never are.
    fn settle_packed(
        &mut self,
        tensor: &Tensor,
        data: &Bytes,
        shared: &SharedConstants,
        go_on: &mut GoOn<'_>,
    ) -> Option<(Role, Quant)> {
        let scratch = self.scratch.as_mut().filter(|_| data.len() >= LEAST_BYTES)?;
        let Quant::Block { block_dims, scales, .. } = &tensor.quant else { return None };
        let &[rows, cols] = tensor.dims.as_slice() else { return None };
        let (rows, cols) = (rows as usize, cols as usize);
        let hashes = (hashed(data, go_on)?.digest128(), hashed(scales.bytes(), go_on)?.digest128());
        let lengths = (data.len(), scales.bytes().len());
        let content = (hashes, lengths, tensor.dims.clone(), tensor.dtype, block_dims.to_vec());
        if let Some(known) = self.packed.get(&content) {
            return Some(known.clone());
        }
        let constant = Constant::new(data.clone(), tensor.dtype, tensor.quant.clone());
        let packing = packing_of(&constant, rows, cols, go_on)?;
        let size = packing.size_bytes(rows, cols)?;
        // Full disks: as in `intern`.
        let fill = |out: &mut dyn Write| pack_rows(&constant, packing, rows, cols, |part| write(out, part, go_on));
        let form = scratch.put(size, fill).ok()?;
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
        let hash = xxhash_rust::xxh3::xxh3_64(&[5; 10]);
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
        store.settle(&mut kept, &shared, &mut || true).unwrap();
        let mut again = given.clone();
        store.settle(&mut again, &shared, &mut || true).unwrap();
        let mut other = Tensor { quant: Quant::None, ..given };
        store.settle(&mut other, &shared, &mut || true).unwrap();
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

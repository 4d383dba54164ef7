//! Constants made from constants, kept once for all graphs of a context: transposed weights, decoded and packed ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::bytes::Bytes;
use crate::graph::typed::Constant;
use crate::kernels::packed::Packing;

/// The forms that are derived of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Derived {
    /// A matrix, transposed.
    Transposed,
    /// `f32` or `i32` words.
    Decoded,
    /// For the product kernels.
    Packed(Packing),
}

/// Derived constants. Give all graphs of a context the same one, and weights that have to be rearranged are so only once.
#[derive(Default)]
pub struct SharedConstants {
    made: Mutex<HashMap<Key, Vec<Entry>>>,
}

/// Place, shape, and what was made.
type Key = ((usize, usize), Vec<usize>, Derived);
/// The source, kept so that its place goes on naming it, and what was made of it.
type Entry = (Constant, Bytes);

impl SharedConstants {
    /// What was made of `source` before, or what `make` makes now.
    pub(crate) fn get(&self, source: &Constant, shape: &[usize], what: Derived, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = made.entry(key(source, shape, what)).or_default();
        if let Some((_, bytes)) = entries.iter().find(|(c, _)| is_same(c, source)) {
            return bytes.clone();
        }
        let bytes = make();
        entries.push((source.clone(), bytes.clone()));
        bytes
    }

    /// Keeps what was made elsewhere.
    pub(crate) fn put(&self, source: &Constant, shape: &[usize], what: Derived, bytes: Bytes) {
        self.get(source, shape, what, || bytes);
    }

    /// What was made of `source` before.
    pub(crate) fn find(&self, source: &Constant, shape: &[usize], what: Derived) -> Option<Bytes> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = made.get(&key(source, shape, what))?;
        entries.iter().find(|(c, _)| is_same(c, source)).map(|(_, bytes)| bytes.clone())
    }
}

fn key(source: &Constant, shape: &[usize], what: Derived) -> Key {
    (source.bytes.id(), shape.to_vec(), what)
}

fn is_same(a: &Constant, b: &Constant) -> bool {
    a.bytes.len() == b.bytes.len() && a.dtype == b.dtype && a.quant == b.quant
}

impl fmt::Debug for SharedConstants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "SharedConstants({})", made.values().map(Vec::len).sum::<usize>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Dtype, Quant};

    #[test]
    fn the_same_source_is_made_once() {
        let shared = SharedConstants::default();
        let source = Constant::new(Bytes::copy_from(&[1, 2]), Dtype::U8, Quant::None);
        let other = Constant { quant: Quant::PerTensor { scale: 1.0, offset: 0 }, ..source.clone() };
        let make = |byte| move || Bytes::copy_from(&[byte]);
        assert_eq!(shared.get(&source, &[2], Derived::Decoded, make(5))[0], 5);
        assert_eq!(shared.get(&source.clone(), &[2], Derived::Decoded, make(6))[0], 5);
        assert_eq!(shared.get(&source, &[1, 2], Derived::Decoded, make(7))[0], 7);
        assert_eq!(shared.get(&other, &[2], Derived::Decoded, make(8))[0], 8);
        assert_eq!(shared.get(&source, &[2], Derived::Transposed, make(9))[0], 9);
    }
}

//! Plain bytes at an aligned address, as client buffers of a graph want to be.

/// Alignment of every buffer: a cache line, and the widest vector load.
pub(crate) const ALIGN: usize = 64;

/// A block of bytes that starts at a multiple of [`ALIGN`] and never moves.
///
/// The address is aligned by skipping the head of a slightly larger block, so no `unsafe` is needed.
#[derive(Debug)]
pub(crate) struct AlignedBytes {
    block: Box<[u8]>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Self {
        let block = vec![0; if len == 0 { 0 } else { len + ALIGN - 1 }].into_boxed_slice();
        let start = if len == 0 { 0 } else { block.as_ptr().addr().wrapping_neg() % ALIGN };
        Self { block, start, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.block[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.block[self.start..self.start + self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Fills with a repeated element of 1, 2 or 4 bytes.
pub(crate) fn fill(bytes: &mut [u8], element: &[u8]) {
    match *element {
        [] => {}
        [b] => bytes.fill(b),
        _ => bytes.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_aligned_for_any_length() {
        for len in [0, 1, 63, 64, 65, 4096] {
            let mut bytes = AlignedBytes::zeroed(len);
            assert_eq!(bytes.as_mut_slice().len(), len);
            assert!(len == 0 || bytes.as_slice().as_ptr().addr().is_multiple_of(ALIGN));
        }
    }

    #[test]
    fn fills_with_the_element() {
        let mut bytes = [0; 6];
        fill(&mut bytes, &[1, 2]);
        assert_eq!(bytes, [1, 2, 1, 2, 1, 2]);
    }
}

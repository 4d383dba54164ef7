//! Numbers, strings and lists as little-endian bytes, read back with every length checked before anything is allocated.

use super::FormatError;

/// Appends values to a buffer.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn u8(&mut self, v: u8) {
        self.bytes.push(v);
    }

    pub(super) fn u32(&mut self, v: u32) {
        self.bytes.extend_from_slice(&v.to_le_bytes());
    }

    pub(super) fn u64(&mut self, v: u64) {
        self.bytes.extend_from_slice(&v.to_le_bytes());
    }

    /// A length or count.
    pub(super) fn len(&mut self, n: usize) -> Result<(), FormatError> {
        self.u32(u32::try_from(n).map_err(|_| FormatError::TooLarge { what: format!("a list of {n}") })?);
        Ok(())
    }

    pub(super) fn text(&mut self, v: &str) -> Result<(), FormatError> {
        self.len(v.len())?;
        self.bytes.extend_from_slice(v.as_bytes());
        Ok(())
    }

    pub(super) fn u32s(&mut self, vs: impl ExactSizeIterator<Item = u32>) -> Result<(), FormatError> {
        self.len(vs.len())?;
        vs.for_each(|v| self.u32(v));
        Ok(())
    }
}

/// Takes values from a buffer, from front to back.
pub(super) struct Reader<'a> {
    left: &'a [u8],
    /// Offset of `left` in the file, for messages.
    at: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: u64) -> Self {
        Self { left: bytes, at }
    }

    /// Error about the next value (or the one just read).
    pub(super) fn malformed(&self, what: impl Into<String>) -> FormatError {
        FormatError::Malformed { at: self.at, what: what.into() }
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], FormatError> {
        let Some((head, tail)) = self.left.split_at_checked(n) else {
            return Err(self.malformed(format!("expected {n} more bytes, found {}", self.left.len())));
        };
        self.left = tail;
        self.at += n as u64;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn f32(&mut self) -> Result<f32, FormatError> {
        Ok(f32::from_bits(self.u32()?))
    }

    /// A count of things that take at least `least` bytes each, so a list can never be larger than its file.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, FormatError> {
        let n = self.u32()? as usize;
        if n.checked_mul(least).is_none_or(|bytes| bytes > self.left.len()) {
            return Err(self.malformed(format!("a list of {n} does not fit the {} bytes left", self.left.len())));
        }
        Ok(n)
    }

    pub(super) fn text(&mut self) -> Result<String, FormatError> {
        let n = self.count(1)?;
        let bytes = self.take(n)?;
        match std::str::from_utf8(bytes) {
            Ok(s) if !s.contains('\0') => Ok(s.to_owned()),
            Ok(_) => Err(self.malformed("a name with a zero byte in it")),
            Err(_) => Err(self.malformed("a name that is not UTF-8")),
        }
    }

    pub(super) fn u32s(&mut self) -> Result<Vec<u32>, FormatError> {
        let n = self.count(4)?;
        (0..n).map(|_| self.u32()).collect()
    }

    pub(super) fn finish(self) -> Result<(), FormatError> {
        match self.left.len() {
            0 => Ok(()),
            n => Err(self.malformed(format!("{n} bytes too many"))),
        }
    }
}

//! Reading client buffers and constants in their declared type.

use crate::graph::codec::decode;
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};
use crate::storage::QuantGrid;

/// Elements stored as they were declared.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) src: Src,
    /// How fixed-point codes become numbers.
    pub(crate) grid: Option<QuantGrid>,
}

impl Table {
    /// Elements from `at` on, as words.
    pub(crate) fn read(&self, cx: &RunContext<'_>, at: usize, out: &mut [u32]) {
        let size = self.src.dtype.size_bytes();
        let bytes = &cx.bytes(&self.src)[at * size..(at + out.len()) * size];
        decode(cx.isa, bytes, self.src.dtype, self.grid, out);
    }
}

/// A whole tensor as words.
pub(crate) struct Load(pub(crate) Table);

impl Fill for Load {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        self.0.read(cx, first, out);
        Ok(())
    }
}

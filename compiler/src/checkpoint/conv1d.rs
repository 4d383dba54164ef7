//! GPT-2's checkpoints under the compiler's names: linear layers are stored as `[in, out]` there and seen as `[out, in]`.
//!
//! *Layout* of such a view: row `o` of it is column `first + o` of the stored matrix, whose rows are `width` elements.

use super::{Checkpoint, Names};
use crate::Result;
use crate::family::gpt2;

/// Where a tensor's rows are columns of a stored matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Elements of a stored row.
    pub width: usize,
    /// The first column that belongs to the tensor.
    pub first: usize,
}

impl Checkpoint {
    /// Gives GPT-2's tensors the compiler's names and extents, and drops the constants of the causal mask.
    ///
    /// # Errors
    /// Two tensors of one name.
    pub(crate) fn turn_conv1d(&mut self) -> Result<()> {
        let prefixed = self.tensors.keys().any(|name| name.starts_with(gpt2::PREFIX));
        let stored = std::mem::take(&mut self.tensors);
        for (name, mut entry) in stored {
            if gpt2::is_mask(&name) {
                continue;
            }
            if let (true, &[inner, out]) = (gpt2::is_conv1d(&name), &entry.dims[..]) {
                entry.dims = vec![out, inner];
                entry.columns = Some(Columns { width: out, first: 0 });
            }
            let own = gpt2::own_name(&name).unwrap_or_else(|| name.clone());
            self.put(&name, own, entry)?;
        }
        self.names = Names::Gpt2 { prefix: if prefixed { gpt2::PREFIX } else { "" } };
        Ok(())
    }
}

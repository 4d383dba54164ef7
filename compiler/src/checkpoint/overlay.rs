//! What is added to weights as they are read, by who merges adapters into a model.

use crate::Result;

/// Changes of some of a checkpoint's tensors.
pub(crate) trait Overlay: core::fmt::Debug + Send + Sync {
    /// True where the tensor of that name changes.
    fn concerns(&self, name: &str) -> bool;

    /// What is added to a tensor of those extents; `None` for nothing.
    ///
    /// # Errors
    /// Those of reading the change.
    fn deltas(&self, name: &str, dims: &[usize]) -> Result<Option<Box<dyn Deltas>>>;
}

/// The change of one tensor, taken in runs from its beginning to its end.
pub(crate) trait Deltas {
    /// Adds to the next run of elements, row-major.
    fn add(&mut self, values: &mut [f32]);
}

//! Where models come from, and how many of them may be loaded.

use crate::served_model::ServedModel;

/// Why a model could not be listed or opened.
pub type OpenError = Box<dyn std::error::Error + Send + Sync>;

/// A model that could be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEntry {
    /// What requests call it.
    pub name: String,
    /// Memory that it takes, about.
    pub bytes: u64,
}

/// A place with models. Its methods may take long; they are called on threads that may wait.
pub trait ModelSource: Send + Sync + 'static {
    /// What is there now, by name.
    ///
    /// # Errors
    /// The place cannot be read.
    fn list(&self) -> Result<Vec<ModelEntry>, OpenError>;

    /// Loads one.
    ///
    /// # Errors
    /// It is damaged, or its backend is not there.
    fn open(&self, name: &str) -> Result<ServedModel, OpenError>;
}

/// What may be loaded at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadLimits {
    /// Most bytes, by [`ModelEntry::bytes`]; none: no limit.
    pub bytes: Option<u64>,
    /// Most models; none: no limit.
    pub models: Option<usize>,
}

impl LoadLimits {
    /// Whether one of `bytes` fits beside those that are loaded.
    pub(super) fn fit(&self, bytes: u64, loaded: impl ExactSizeIterator<Item = u64>) -> bool {
        let n = loaded.len() + 1;
        let sum = loaded.fold(bytes, u64::saturating_add);
        self.models.is_none_or(|most| n <= most) && self.bytes.is_none_or(|most| sum <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_bytes_and_models() {
        let fit = |bytes, models, new, loaded: &[u64]| LoadLimits { bytes, models }.fit(new, loaded.iter().copied());
        assert!(fit(None, None, u64::MAX, &[u64::MAX]));
        assert!(fit(Some(10), None, 4, &[3, 3]) && !fit(Some(10), None, 5, &[3, 3]));
        assert!(fit(None, Some(2), 4, &[3]) && !fit(None, Some(2), 4, &[3, 3]));
        assert!(!fit(Some(3), None, 4, &[]));
    }
}

//! What the check of the weights finds.

use std::sync::Arc;

use genie_bundle::BundleError;
use qnn_host::container::SumsError;

/// What is wrong with a file of weights.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightFault {
    /// It differs from the manifest, or cannot be read.
    #[error(transparent)]
    Manifest(#[from] Arc<BundleError>),
    /// It differs from the checksums in it, or cannot be read.
    #[error(transparent)]
    Checksums(#[from] SumsError),
}

impl From<BundleError> for WeightFault {
    fn from(error: BundleError) -> Self {
        Self::Manifest(Arc::new(error))
    }
}

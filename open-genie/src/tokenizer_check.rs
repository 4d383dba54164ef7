//! Whether the tokenizer is the one that the bundle was made with.

use dialog::DialogConfig;
use genie_bundle::{BundleError, FileCheck, Manifest};

/// Logs where it is another one by the manifest: by another one's ids the model reads and writes other words. Hashing takes far less time
/// than reading a tokenizer.
pub(crate) fn compare(config: &DialogConfig) {
    let path = config.tokenizer();
    let Ok(manifest) = Manifest::read(config.base()) else { return };
    let Some(entry) = FileCheck::entry(&manifest, config.base(), path) else { return };
    // One that cannot be read is an error of whoever reads it.
    let Ok(check) = FileCheck::open(path, entry, None) else { return };
    if let Err(BundleError::FileChanged { .. }) = check.compare_length().and_then(|()| check.finish()) {
        tracing::warn!(
            "`{}` is another file than the one that this bundle was made with: the model may read and write other words than are shown",
            path.display()
        );
    }
}

//! One process at a time compiles a model into its place of the cache; others wait for it.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use compiler::{CompileError, Progress};

use super::error::ModelsError;

const NAME: &str = ".lock";
/// How often who waits looks, for the lock and for whether it is to go on.
const INTERVAL: Duration = Duration::from_millis(50);

/// Makes the model's folder and locks it until the file is dropped; says whether another process had it locked. Where the system has
/// no locks for the folder, nothing is waited for.
///
/// # Errors
/// The folder or the file in it cannot be made; [`CompileError::Cancelled`] while waiting.
pub(super) fn take(folder: &Path, progress: &mut dyn Progress) -> Result<(File, bool), ModelsError> {
    let path = folder.join(NAME);
    let mut waited = false;
    loop {
        fs::create_dir_all(folder).map_err(|source| ModelsError::Make { path: folder.to_owned(), source })?;
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|source| ModelsError::Make { path: path.clone(), source })?;
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if !waited {
                progress.note("another process compiles this model: its bundle is waited for");
                waited = true;
            }
            if progress.cancelled() {
                return Err(CompileError::Cancelled.into());
            }
            std::thread::sleep(INTERVAL);
        }
        // The folder may have been removed meanwhile, and the file with it.
        if path.exists() {
            return Ok((file, waited));
        }
    }
}
